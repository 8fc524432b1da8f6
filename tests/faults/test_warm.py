"""One Spark for many processes: what one of them does is no other's business."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pytest

from tests.faults.processes import fork
from tests.faults.warm import WarmSpark

pytestmark = [pytest.mark.spark, pytest.mark.long]


def _slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(2)
    yield from batches


def _stop_one_of_two(folder: Path) -> None:
    spark = WarmSpark.start(folder / "spark.log")
    begun = folder / "begun"

    def compute() -> int:
        session = spark.connect("")
        begun.touch()
        session.range(2, numPartitions=2).mapInArrow(_slowly, "id bigint").collect()
        return 0

    try:
        stopped = fork(compute, folder / "stopped.log")
        while not begun.exists():
            assert not stopped.poll(), (folder / "stopped.log").read_text()
            time.sleep(0.01)
        time.sleep(1)
        stopped.pause()  # its tasks end, and nobody takes note of what they say
        time.sleep(2)
        assert fork(compute, folder / "other.log").wait(600) == 0
        stopped.go_on()
        assert stopped.wait(600) == 0
    finally:
        spark.stop()


def test_stopped_process_holds_up_no_other(tmp_path: Path) -> None:
    # In a new process: forks of this one would inherit the Spark session that other tests have opened here.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as new_process:
        new_process.submit(_stop_one_of_two, tmp_path).result()
