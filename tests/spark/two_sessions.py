"""A program that opens a session of its own twice; prints what it found, as JSON. See `test_session`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from tidegate.spark.session import OwnSession


def _pids(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pylist([{"worker": os.getpid()}])


def _lives_on(worker: int) -> bool:
    """Return whether a worker is still there some seconds after Spark has told it to end."""
    deadline = time.monotonic() + 5
    while Path(f"/proc/{worker}").exists():
        if time.monotonic() > deadline:
            return True
        time.sleep(0.01)
    return False


def main() -> None:
    """A worker of each session, and whether it still lives after the session."""
    workers = []
    for _ in range(2):
        with OwnSession("local[1]", None) as session:
            spark = session.open(1)
            (row,) = spark.range(1).coalesce(1).mapInArrow(_pids, "worker long").collect()
            assert session.open(0) is spark, "a publication uses the session of the computation"
            session.end()
        workers.append({"worker": row.worker, "lives on": _lives_on(row.worker)})
    print(json.dumps(workers))


if __name__ == "__main__":
    main()
