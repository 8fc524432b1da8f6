"""The case files, each batch a job of the data plane: shuffles, state files and manifests included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.case_files import cases_in
from tests.conformance.test_cases import CASES
from tests.spark.played import Played, by_place
from tidegate.errors import TidegateError
from tidegate.sinks.table.model import TableSink
from tidegate.spark.case_parts import Emitted, Outcome
from tidegate.spark.cases import against_expectation
from tidegate.yaml.cases import Case, CaseRecord, Tick
from tidegate.yaml.tree import read_exactly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# one of each kind of stage; all others are `long`
ALWAYS = {
    *("availability/quarantine-0", "rate_limited/limit-0", "screw_fastening/counts-0"),
    *("stages/repetitions-0", "stages/expressions-0", "stages/expressions-2"),
    "kafka-streams/session-update-001-0",
}


def _batches(case: Case) -> Iterator[tuple[list[CaseRecord], int | None]]:
    """The records of each batch, and its clock."""
    records: list[CaseRecord] = []
    for step in case.input:
        if isinstance(step, Tick):
            yield records, step.clock_ms
            records = []
        elif isinstance(step, CaseRecord):
            records.append(step)
    if records:
        yield records, None


def _in_log_order(records: Sequence[CaseRecord]) -> bool:
    """Whether Kafka could have them: offsets rise in each topic-partition."""
    return all(
        offsets == sorted(set(offsets))
        for home in by_place(records).values()
        for offsets in [[record.offset for record in home]]
    )


def _cases() -> Iterator[Any]:
    for path, number in CASES:
        case = cases_in(path)[number]
        records = [step for step in case.input if isinstance(step, CaseRecord)]
        if case.pipeline.tables or not _in_log_order(records):
            continue
        name = f"{path.parent.name}/{path.stem}-{number}"
        marks = [] if name in ALWAYS else [pytest.mark.long]
        yield pytest.param(case, id=name, marks=marks)


@pytest.mark.parametrize("case", list(_cases()))
def test_case_gives_its_expectation_in_the_data_plane(
    spark: SparkSession, tmp_path: Path, case: Case
) -> None:
    # the emissions of a stage are stored if a sink gets them
    sinks = [TableSink.model_construct(kind="table", stage=stage) for stage in case.expect.stages]
    pipeline = case.pipeline.model_copy(update={"sinks": (*case.pipeline.sinks, *sinks)})
    played = Played(spark, pipeline, tmp_path)
    if case.expect.error is not None:
        with pytest.raises(TidegateError) as failure:
            _play(played, case)
        assert type(failure.value).__name__ == case.expect.error
        return
    _play(played, case)
    stages = {stage: _emissions(played, stage) for stage in case.expect.stages}
    outcome = Outcome(_emissions(played, None), played.counts, stages=stages)
    assert against_expectation(case, outcome) == []


def _play(played: Played, case: Case) -> None:
    # A plan has all partitions of a topic, also those without a record: their clocks run from the first on.
    records = [step for step in case.input if isinstance(step, CaseRecord)]
    played.clocks = dict.fromkeys(by_place(records), -1)
    for records, clock in _batches(case):
        played.batch(records, clock)


def _emissions(played: Played, stage: str | None) -> list[Emitted]:
    return [_emitted(key, row) for key, rows in played.emissions(stage).items() for row in rows]


def _emitted(key: str, row: Any) -> Emitted:
    window = None if row["window_start"] is None else (row["window_start"], row["window_end"])
    value = None if row["text"] is None else read_exactly(row["text"])
    *_, last = row["source"].split(";")
    topic, partition, offset = last.split("/")
    source = (topic, int(partition), int(offset))
    return Emitted(key, value, row["timestamp"], window, row["reason"], row["at"], source)
