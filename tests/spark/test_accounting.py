"""The counts of a batch: every row that came into a pass has a fate, or the batch fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.spark.stages import CHANGES, COUNTED
from tidegate import kernel
from tidegate.errors import CountMismatch
from tidegate.spark.accounting import account_for, stage_counts
from tidegate.spark.shuffle import Report, SliceReport, TaskReport
from tidegate.spark.steps import passes_of
from tidegate.yaml.load import parse_case_pipeline

READ = SliceReport("source", "in", 0, 0, records=10, rows=10, empty=0, unkeyed=0, time=None)
"""A slice of ten records."""
OF_FIRST = TaskReport("changes", 0, {"used": 6, "quarantined": 3, "deduplicated": 1, "emitted": 5}, ())
OF_SECOND = TaskReport("counted", 0, {"used": 4, "expired-window-record-drop": 1}, ())


def whole(*reports: Report) -> kernel.Counts:
    """The counts of a batch of two stages whose tasks have reported so."""
    source = {"topics": ["in"], "format": "json", "columns": "id bigint, quantity int", "key": ["id"]}
    case: dict[str, Any] = {"pipeline": "p", "source": source, "stages": [CHANGES, COUNTED]}
    passes = passes_of(parse_case_pipeline(case, "case"))
    return account_for(passes, stage_counts(reports, passes), reports)


def test_fates_that_add_up_become_batch_counts() -> None:
    counts = whole(READ, OF_FIRST, OF_SECOND)
    assert (counts["read"], counts["quarantined"], counts["deduplicated"]) == (10, 3, 1)


def test_exploded_rows_count_and_empty_ones_do_not() -> None:
    counts = whole(replace(READ, records=4, rows=12, empty=2), OF_FIRST, OF_SECOND)
    assert (counts["read"], counts["exploded"], counts["nothing-to-explode"]) == (4, 8, 2)


@pytest.mark.parametrize(
    ("reports", "stage"),
    [
        pytest.param((replace(READ, rows=11), OF_FIRST, OF_SECOND), "changes", id="a record without a fate"),
        pytest.param((READ, OF_FIRST, OF_FIRST, OF_SECOND), "changes", id="a task that counts twice"),
        pytest.param((OF_FIRST, OF_SECOND), "changes", id="a slice that has not reported"),
        pytest.param((READ, OF_FIRST), "counted", id="an emission that did not reach the next stage"),
    ],
)
def test_lost_or_doubled_rows_fail_the_batch(reports: tuple[Report, ...], stage: str) -> None:
    with pytest.raises(CountMismatch, match=f"records came into {stage}, but"):
        whole(*reports)
