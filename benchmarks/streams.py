"""The peer: Kafka Streams with the same job, see `kafka_streams/Application.java`."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import run_measured
from benchmarks.place import Place
from benchmarks.programs import Run, last_line, require_equal
from tidegate.errors import SetupFailed
from tidegate.spark.java import OLDEST, find_java, java_home
from tidegate_dev.jars import ensure_jars

STREAMS = "Kafka Streams"
_FOLDER = Path(__file__).with_name("kafka_streams")
LOCK = _FOLDER / "jars.lock"


@dataclass(frozen=True)
class StreamsPeer:
    """A program, compiled. `class_path` as Java takes it."""

    java: Path
    class_path: str
    program: str

    @classmethod
    def prepare(cls, home: Path, program: str) -> StreamsPeer:
        """Fetch the jars below `home` if they are not there yet, and compile. Raises SetupFailed."""
        compiler = find_compiler()
        jars = list(map(str, ensure_jars("streams", home, LOCK)))
        classes = home / "streams-classes"
        _compile(compiler, jars, classes)
        return cls(find_java(), os.pathsep.join([str(classes), *jars]), program)

    def run(self, place: Place, source: str, sink: str, records: int) -> Run:
        """A whole process that reads so many records of a topic, which are all, and commits its output.

        It is an application of its own, with empty state. Raises ResultWrong, CommandFailed.
        """
        state = place.home / "streams-state"
        command = [str(self.java), f"-Djava.io.tmpdir={place.home / 'work'}", "-cp", self.class_path]
        command += [self.program, place.servers, source, sink, f"streams-{sink}", str(state), str(records)]
        usage, output = run_measured(command, place.env, place.home / "work")
        shutil.rmtree(state)
        require_equal("records processed", int(last_line(output)), records)
        return Run(usage)


def find_compiler() -> Path:
    """A `javac`: beside the `java` that tidegate uses, or on PATH. Raises SetupFailed."""
    beside = java_home(find_java()) / "bin" / "javac"
    compiler = beside if beside.exists() else shutil.which("javac")
    if compiler is None:
        raise SetupFailed(
            f"There is no javac in {beside.parent} nor on PATH: Kafka Streams' program cannot be compiled",
            f"Install a JDK {OLDEST} or newer, or set JAVA_HOME to one.",
        )
    return Path(compiler)


def _compile(compiler: Path, jars: list[str], classes: Path) -> None:
    command = [str(compiler), "--release", str(OLDEST), "-cp", os.pathsep.join(jars), "-d", str(classes)]
    sources = sorted(map(str, _FOLDER.glob("*.java")))
    done = subprocess.run([*command, *sources], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SetupFailed(
            f"{compiler} did not compile {_FOLDER.name}: {done.stderr.strip()[:500]}",
            f"It takes a JDK {OLDEST} or newer.",
        )
