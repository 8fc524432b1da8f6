"""`python -m tests.sessions.named URL NAME ACT`: what a process does in a session that a server keeps.

`look`   prints the processes that its Python workers are children of, as JSON
`close`  ends the session
`hang`   keeps both cores busy for ever; a file, the fourth argument, says that it does
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from tidegate.spark.session import open_session


def parents(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pylist([{"pid": os.getppid()}])


def main(url: str, name: str, act: str, *file: str) -> None:
    spark = open_session(url, name=name)
    rows = spark.range(0, 2, 1, 2)
    if act == "look":
        print(json.dumps(sorted({row.pid for row in rows.mapInArrow(parents, "pid long").collect()})))
    elif act == "close":
        spark.stop()
    elif act == "hang":

        def hang(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                Path(f"{file[0]}-{os.getpid()}").touch()
                time.sleep(3_600)
            yield pa.RecordBatch.from_pylist([{"pid": 0}])

        rows.mapInArrow(hang, "pid long").collect()


if __name__ == "__main__":
    main(*sys.argv[1:])
