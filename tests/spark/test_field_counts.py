"""Columns that no record has, and fields that are not declared."""

from __future__ import annotations

import pyarrow as pa

from tidegate.formats import RecordLayout
from tidegate.spark.decoding import MOST_FIELDS, SAMPLED_PER_BLOCK, FieldCounter, source_counts
from tidegate.spark.shuffle import SliceReport, from_text, to_text

COLUMNS = pa.schema([("id", pa.int64()), ("quantity", pa.int32())])
LAYOUT = RecordLayout("json", COLUMNS, aliases={"quantity": ("amount",)})


def rows(*quantities: int | None, reason: str | None = None, tombstone: bool = False) -> pa.RecordBatch:
    number = len(quantities)
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array([1] * number, pa.int64()) if reason is None else pa.nulls(number, pa.int64()),
            "quantity": pa.array(quantities, pa.int32()),
            "__reason": pa.array([reason] * number, pa.string()),
            "__tombstone": pa.array([tombstone] * number, pa.bool_()),
        }
    )


def slice_report(counter: FieldCounter) -> SliceReport:
    report = SliceReport(
        *("source", "in", 0, 0, 9, 9, 0, 0, None),
        usable=counter.usable,
        filled=dict(counter.filled),
        undeclared=counter.undeclared,
        sampled=counter.sampled,
    )
    assert from_text(to_text(report)) == report
    return report


def test_column_counts_records_with_a_value() -> None:
    counter = FieldCounter(LAYOUT)
    counter.add_rows(rows(5, None, 7))
    counter.add_rows(rows(None, reason="malformed: oops"))
    counter.add_rows(rows(None, tombstone=True))
    assert (dict(counter.filled), counter.usable) == ({"id": 4, "quantity": 2}, 3)


def test_undeclared_fields_are_sampled_per_block() -> None:
    counter = FieldCounter(LAYOUT)
    counter.add_values([b'{"id": 1, "quantty": 2}', None, b"{oops", b"[1]", b'{"id": 1, "amount": 3}'])
    counter.add_values([b'{"quantty": 1}'] * SAMPLED_PER_BLOCK + [b'{"unseen": 1}'])
    assert counter.undeclared == {"quantty": SAMPLED_PER_BLOCK + 1}
    assert counter.sampled == SAMPLED_PER_BLOCK + 2


def test_field_name_without_utf8_is_passed_over() -> None:
    counter = FieldCounter(LAYOUT)
    counter.add_values([b'{"\xff": 1}', b'{"quantty": 1}'])
    assert (counter.undeclared, counter.sampled) == ({"quantty": 1}, 1)


def test_no_more_fields_are_reported_than_people_read() -> None:
    counter = FieldCounter(LAYOUT)
    counter.add_values([b"{%s}" % b", ".join(b'"f%d": 1' % number for number in range(50))])
    assert len(counter.undeclared) == MOST_FIELDS


def test_other_formats_have_no_sample() -> None:
    counter = FieldCounter(RecordLayout("csv", COLUMNS))
    counter.add_values([b'{"quantty": 2}'])
    assert (counter.undeclared, counter.sampled) == ({}, 0)


def test_slices_add_up_and_unusable_batches_count_nothing() -> None:
    first, second = FieldCounter(LAYOUT), FieldCounter(LAYOUT)
    first.add_values([b'{"id": 1, "quantty": 2}'])
    first.add_rows(rows(None))
    second.add_values([b'{"id": 1, "quantty": 2}'])
    unusable = slice_report(second)
    assert source_counts([slice_report(first), unusable]) == {
        "source:columns": {"id": 1, "quantity": 0},
        "source:fields": {"quantty": 2, "": 2},
    }
    assert source_counts([unusable]) == {}
