"""A source's filter, tested where records are decoded: before their key, but not their time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.formats.test_frame import body, decoded, layout
from tidegate.errors import RecordFailed
from tidegate.expressions import Expression
from tidegate.expressions.types import INT, STRING
from tidegate.formats import FrameDecoder
from tidegate.formats.records import SequenceParts
from tidegate.model.condition import compiled_expression


def condition(text: str) -> Expression:
    expression = compiled_expression(text, {"n": INT, "s": STRING})
    assert expression is not None
    return expression


def fates(rows: list[dict[str, Any]]) -> list[str]:
    """`removed`, the word for why a row is in quarantine, or `used`."""
    return ["removed" if row["__removed"] else (row["__reason"] or "used").partition(":")[0] for row in rows]


POSITIVE = condition("n > 0")


def test_rows_that_are_not_true_are_removed() -> None:
    rows = decoded(layout(filter=POSITIVE), *({"value": body(n=n)} for n in (1, 0, None)))
    assert fates(rows) == ["used", "removed", "removed"]


def test_removed_row_needs_no_key_and_no_sequence() -> None:
    sequence = SequenceParts(columns=("n",))
    keyed = layout(key=("s",), filter=condition("n > 0"), sequence=sequence)
    rows = decoded(keyed, {"value": body(n=0)}, {"value": body()}, {"value": body(n=1)})
    assert fates(rows) == ["removed", "removed", "null_key_column"]


def test_deletions_and_unreadable_records_are_not_tested() -> None:
    rows = decoded(layout(filter=POSITIVE), {"value": None}, {"value": b"{"}, {"value": b'{"n": "five"}'})
    assert fates(rows) == ["used", "malformed", "malformed"]


def test_time_of_a_removed_row_must_be_believed() -> None:
    stamped = [{"value": body(n=0), "timestamp": timestamp} for timestamp in (-5, 99_999, 1000)]
    assert fates(decoded(layout(filter=POSITIVE), *stamped)) == [
        *("negative_timestamp", "future_timestamp", "removed")
    ]
    declared = layout(filter=POSITIVE, timestamp="b")
    assert fates(decoded(declared, {"value": body(n=0)}, {"value": body(n=1)})) == ["removed", "no_timestamp"]


def test_each_exploded_element_is_tested() -> None:
    columns = pa.schema([("n", pa.list_(pa.int32()))])
    exploded = layout(columns=columns, explode="n", filter=condition("n > 0"))
    rows = decoded(exploded, {"value": body(n=[1, 0, 2])}, {"value": body(n=[])})
    assert [(row["n"], row["__removed"], row["__empty"]) for row in rows] == [
        *((1, False, False), (0, True, False), (2, False, False), (None, False, True))
    ]


def test_condition_without_a_result_names_the_record() -> None:
    with pytest.raises(RecordFailed, match=r"it divides by zero \(the record t\[3\] offset 8\)"):
        decoded(layout(filter=condition("1 / n > 0")), {"value": body(n=1)}, {"value": body(n=0)})


def test_rows_have_no_mark_without_a_filter() -> None:
    assert "__removed" not in FrameDecoder(layout(), None, False).schema.names
