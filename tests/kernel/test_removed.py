"""Records that a filter removes: the kernel counts them, and does not decide them."""

from __future__ import annotations

import json
from typing import Any

from tests.kernel.rows_for_tests import Record, record_row, sorted_batches
from tidegate import kernel

STAGE = kernel.Stage(kernel.Latest(), kernel.Update())


def row(key: str | None, number: int, kind: int) -> dict[str, Any]:
    value = {"a": float(number), "b": None} if kind == kernel.RECORD else None
    return record_row(Record(key, value, 0, number, number)) | {"kind": kind, "hash": 7}


def decided(batch: kernel.Batch, *kinds: int) -> list[dict[str, Any]]:
    rows = [row("k", number, kind) for number, kind in enumerate(kinds)]
    return [
        part for rows in kernel.decide(STAGE, sorted_batches(rows, 2), batch) for part in rows.to_pylist()
    ]


def counts(rows: list[dict[str, Any]]) -> kernel.Counts:
    return kernel.Counts(json.loads(rows[-1]["counts"]))


def test_removed_records_are_counted_and_not_emitted() -> None:
    rows = decided(kernel.Batch(), kernel.REMOVED, kernel.RECORD, kernel.REMOVED)
    emitted = [row["offset"] for row in rows if row["kind"] == kernel.EMISSION]
    assert emitted == [1]
    assert (counts(rows)["removed"], counts(rows)["used"], counts(rows).accounted) == (2, 1, 3)


def test_batch_of_removed_records_only_counts() -> None:
    rows = decided(kernel.Batch(), kernel.REMOVED)
    assert [row["kind"] for row in rows] == [kernel.COUNTS]
    assert counts(rows)["removed"] == 1


def test_removed_row_of_a_table_is_no_input() -> None:
    rows = [row("k", number, kernel.REMOVED) for number in range(2)]
    rows[0]["topic"] = "#rates.current"
    (batch,) = kernel.decide(STAGE, sorted_batches(rows, 2), kernel.Batch(tables=True))
    assert (counts(batch.to_pylist())["removed"], counts(batch.to_pylist())["rejoined"]) == (1, 1)


def test_trace_has_a_removed_record() -> None:
    rows = decided(kernel.Batch(trace=True), kernel.REMOVED, kernel.RECORD)
    traced = {row["offset"]: (row["reason"], json.loads(row["trace"])) for row in rows if row["trace"]}
    assert traced[0] == ("removed", {"value": None, "known": []})
    assert traced[1][0] == "new"
