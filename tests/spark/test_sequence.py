"""`sequence` in the data plane: batches of Debezium's changes, explained, and their state in files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.played import GivenRecords, Played
from tidegate.model.kernel_stages import SEQUENCE
from tidegate.spark.explain import TraceEvent, explain_batch
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SOURCE = {
    "topics": ["in"],
    "format": "debezium",
    "columns": "id bigint, n int",
    "key": ["id"],
    "sequence": {"source": "lsn bigint"},
}


def change(offset: int, lsn: int | None, n: int | None, partition: int = 0) -> CaseRecord:
    """Return a change of row 1; without `n` it is a deletion, and without `lsn` the null value behind one."""
    row = {"before": {"id": 1}} if n is None else {"after": {"id": 1, "n": n}}
    envelope = {"op": "d" if n is None else "u", **row, "source": {"lsn": lsn}}
    value = None if lsn is None else json.dumps(envelope).encode()
    return CaseRecord('{"id":1}', value, 1_000 + offset, "in", partition, offset)


@pytest.fixture
def played(spark: SparkSession, tmp_path: Path) -> Played:
    stages = [{"name": "rows", "select": {"n": "n"}, "emit": {"on": "update"}}]
    pipeline = parse_case_pipeline({"pipeline": "placed", "source": SOURCE, "stages": stages}, "case")
    return Played(spark, pipeline, tmp_path)


def explained(played: Played, records: Sequence[CaseRecord]) -> list[TraceEvent]:
    """A batch, decided again for the row 1."""
    before, clocks = played.before, dict(played.clocks)
    played.batch(records)
    plan, played.clocks = played.plans[-1], clocks
    source = GivenRecords(tuple(records))
    return explain_batch(played.spark, played.planned(plan, before), source, None, "1")


def test_sequenced_deletion_lasts_and_is_explained(played: Played) -> None:
    played.batch([change(0, 5, 1), change(1, 4, 9), change(2, 7, None), change(3, None, None)])
    assert played.counts["deduplicated"] == 2
    (remembered,) = played.rows("state", SEQUENCE)
    assert (remembered["key"], remembered["digest"]) == ("1", "-0000000000000000007")

    events = explained(played, [change(4, 6, 2), change(5, 8, 3), change(0, 7, None, partition=1)])
    previous = [{"sequence": f"{7:019}", "deleted": True}]
    fates = [(event.source[1:], event.fate, event.previous) for event in events if event.stage == "sequence"]
    assert fates == [
        ((1, 0), "outdated", previous),
        ((0, 4), "outdated", previous),
        ((0, 5), "later", previous),
    ]
    assert {"sequence": f"{6:019}", "record": {"id": 1, "n": 2}} in [event.value for event in events]
    assert [row["text"] for row in played.emissions()["1"]] == ['{"n":1}', None, '{"n":3}']
    assert played.batches[-1].counts[""]["deduplicated"] == 2
