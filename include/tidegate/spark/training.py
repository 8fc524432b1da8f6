"""`python -m tidegate.spark.training`: make the class archive of this Java, by computing a small batch."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidegate.errors import SetupFailed, TidegateError
from tidegate.formats import Records
from tidegate.kafka.records import Slice
from tidegate.ledger import OffsetRange, Plan, Stream
from tidegate.model.compiled import compile_pipeline
from tidegate.spark.batch import compute_batch
from tidegate.spark.computation import Before, PlannedBatch
from tidegate.spark.driver import DriverJvm
from tidegate.spark.java import (
    archive_path,
    find_java,
    forget_launch,
    note_launch,
    probe,
    training_options,
)
from tidegate.spark.session import open_session
from tidegate.spark.source import RecordSlice
from tidegate.storage import Lake
from tidegate.yaml.load import parse_pipeline

_RECORDS = 1_000
_PIPELINE = """\
pipeline: training
generation: 1
source: {topics: [trained], format: json, columns: "id bigint, text string, quantity int", key: [id]}
stages:
  - {name: changes, select: {isAvailable: "quantity > 0", text: text}, reduce: latest, emit: {on: change}}
  - {name: counted, reduce: {changes: count(*)}, emit: {on: update}}
sinks:
  - {kind: kafka, topic: changed, stage: changes}
"""


@dataclass(frozen=True)
class TrainingRecords:
    """Generated records in place of Kafka's: both a source and its only slice.

    Args:
        range: the offsets; a record's number is its offset.
    """

    range: Slice

    def slices(self, timed: bool, cores: int) -> list[RecordSlice]:
        """Return this slice alone, for any number of cores."""
        return [self]

    def blocks(self) -> Iterator[Records]:
        """Yield one block of JSON records with 100 distinct keys."""
        numbers = range(self.range.start, self.range.end)
        values: list[bytes | None] = [
            f'{{"id": {number % 100}, "text": "a", "quantity": {number % 3}}}'.encode() for number in numbers
        ]
        nothing = [None] * len(numbers)
        yield Records("trained", 0, list(numbers), [0] * len(numbers), nothing, values, nothing)


def make_archive() -> Path:
    """Make the archive anew, and return its path. Raises SetupFailed if the JVM does not write one."""
    java = find_java()
    archive = archive_path(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    _provide_base(java)
    with tempfile.TemporaryDirectory(prefix="tidegate-training-", dir=archive.parent) as scratch:
        draft = Path(scratch) / "draft.jsa"
        forget_launch(java)  # so that spark-submit starts the JVM
        jvm = DriverJvm(training_options(draft))
        session = open_session("local[2]", jvm=jvm)
        _compute(session, Path(scratch) / "lake")
        _note_launch(session, java)
        _end(session)
        if not draft.is_file():
            raise SetupFailed(
                f"{java} did not write a class archive: each start of Spark takes some seconds longer",
                "Set JAVA_HOME to a JDK 17 or 21 that has class data sharing, and run `make setup`.",
            )
        # Whole or not at all: another process may start a JVM with the archive at any time.
        draft.replace(archive)
    return archive


def _provide_base(java: Path) -> None:
    """Make Java's own archive, on which tidegate's builds, if a reduced runtime, as that of the wheel, lacks
    it.
    """
    runtime = probe(java)
    if runtime is not None and not (runtime.home / "lib" / "server" / "classes.jsa").is_file():
        subprocess.run([str(java), "-Xshare:dump"], capture_output=True, check=False)


def _compute(session: SparkSession, lake: Path) -> None:
    """Compute the first batch of a pipeline with two stages."""
    pipeline = parse_pipeline(_PIPELINE, "training.yaml")
    ranges = (OffsetRange("trained", 0, 0, _RECORDS),)
    stream = Stream(pipeline.pipeline, pipeline.generation)
    plan = Plan(stream, 1, "training", 0, 0, ranges, {}, pipeline.text, compile_pipeline(pipeline))
    records = Slice("trained", 0, 0, _RECORDS)
    place = Lake(str(lake), stream.pipeline, stream.generation)
    batch = PlannedBatch(plan, pipeline, place, Before())
    compute_batch(session, batch, TrainingRecords(records), "training")


def _note_launch(session: SparkSession, java: Path) -> None:
    """Note what spark-submit has added to the JVM's command."""
    tried = probe(java)
    assert tried is not None, "a Java that has run this session starts"
    jvm: Any = session.sparkContext._jvm
    runtime = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    own = session.conf.get("spark.driver.extraJavaOptions").split()
    options = [str(option) for option in runtime.getInputArguments()]
    added = [option for option in options if option not in own and not option.startswith("-Xmx")]
    note_launch(java, tried, runtime.getClassPath(), added)


def _end(session: SparkSession) -> None:
    """End the JVM in the normal way, and wait: it writes the archive at its end."""
    gateway = session.sparkContext._gateway
    session.stop()
    assert gateway is not None
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    process.wait()


def main() -> int:
    """Make the archive. Returns exit code 1 if that fails."""
    try:
        print(make_archive())
    except TidegateError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    os.environ.pop("SPARK_SUBMIT_OPTS", None)
    sys.exit(main())
