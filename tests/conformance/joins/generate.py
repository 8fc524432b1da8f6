"""Let Kafka Streams join random records again: `python -m tests.conformance.joins.generate HOME`.

Needs a JDK and the network: the jars are downloaded below HOME, and checked against `jars.lock`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.peers import STREAMS_LOCK, find_compiler

from tidegate.spark.java import find_java
from tidegate_dev.jars import ensure_jars

FOLDER = Path(__file__).resolve().parent
HISTORIES = FOLDER / "kafka-streams.jsonl"
NUMBER = 45


def main(home: Path) -> None:
    """Write the histories."""
    jars = [*ensure_jars("streams", home, STREAMS_LOCK), *ensure_jars("driver", home, FOLDER / "jars.lock")]
    classes = home / "joins-classes"
    class_path = os.pathsep.join(map(str, [classes, *jars]))
    source = str(FOLDER / "Joins.java")
    subprocess.run([str(find_compiler()), "-cp", class_path, "-d", str(classes), source], check=True)
    subprocess.run([str(find_java()), "-cp", class_path, "Joins", str(HISTORIES), str(NUMBER)], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
