"""A change's place in the order of its key's changes: as a text, and where records tell it."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidegate.formats import FrameDecoder, RecordLayout, Records, SequenceParts
from tidegate.formats.records import sequence_texts

NUMBERS = st.one_of(st.integers(-3, 12), st.integers(-(2**63), 2**63 - 1))
TEXTS = st.text(st.sampled_from("\x00\x01\x02 a,é0"), max_size=3)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): NUMBERS,
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.decimal128(38, 0): NUMBERS.map(lambda number: Decimal(number * 10**18)),
    pa.string(): TEXTS,
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(datetime(1, 1, 1), datetime(9999, 1, 1)),
}


@examples(100)
@given(st.data(), st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
def test_sequence_texts_sort_like_their_sequences(data: st.DataObject, types: list[pa.DataType]) -> None:
    rows = data.draw(st.lists(st.tuples(*(VALUES[type_] for type_ in types)), min_size=1, max_size=8))
    parts = [pa.array(part, type_) for part, type_ in zip(zip(*rows, strict=True), types, strict=True)]
    texts = sequence_texts(parts).to_pylist()
    assert [rows[at] for at in sorted(range(len(rows)), key=texts.__getitem__)] == sorted(rows)
    assert len(set(texts)) == len(set(rows))


def test_sequence_without_a_part_is_none() -> None:
    assert sequence_texts([pa.array([1, None]), pa.array([None, "x"])]).to_pylist() == [None, None]
    assert sequence_texts([pa.array([1, None])]).to_pylist() == ["0000000000000000001", None]
    assert sequence_texts([pa.array([date(1970, 1, 2)])]).to_pylist() == ["0000000000000000001"]


COLUMNS = pa.schema([pa.field("id", pa.int64()), pa.field("version", pa.int64())])
OF_SOURCE = pa.schema([pa.field("file", pa.string()), pa.field("pos", pa.int64())])


def rows(layout: RecordLayout, *values: Any) -> list[tuple[Any, ...]]:
    """Key, whether it is deleted, sequence and reason of each."""
    count = len(values)
    texts = [None if value is None else json.dumps(value).encode() for value in values]
    decoder = FrameDecoder(layout, None, keeps_input=False)
    (batch,) = decoder.decode(
        Records("t", 0, range(count), [7] * count, [b"1"] * count, texts, [None] * count)
    )
    batch.validate(full=True)
    assert batch.schema == decoder.schema
    names = ("__key", "__tombstone", "__sequence", "__reason")
    return list(zip(*(batch.column(name).to_pylist() for name in names), strict=True))


def test_record_without_its_sequence_is_quarantined() -> None:
    layout = RecordLayout("json", COLUMNS, ("id",), sequence=SequenceParts(("version",)))
    assert rows(layout, {"id": 1, "version": 5}, {"id": 1, "version": None}, {"id": 1}, None) == [
        ("1", False, "0000000000000000005", None),
        ("1", False, None, "no_sequence"),
        ("1", False, None, "no_sequence"),
        ("1", True, None, "no_sequence"),
    ]


def wrapped(change: dict[str, Any]) -> dict[str, Any]:
    return {"schema": {}, "payload": change}


@pytest.mark.parametrize("wrap", [dict, wrapped])
def test_debeziums_source_tells_it_of_deletions_too(wrap: Any) -> None:
    layout = RecordLayout("debezium", COLUMNS, ("id",), sequence=SequenceParts(of_source=OF_SOURCE))
    source = {"file": "bin.000003", "pos": 17, "db": "shop"}
    changes = [
        {"op": "c", "after": {"id": 1}, "source": source},
        {"op": "d", "before": {"id": 1}, "source": {**source, "pos": 18}},
        {"op": "u", "after": {"id": 1}, "source": {"file": "bin.000003"}},
        {"op": "u", "after": {"id": 1}},
        {"op": "u", "after": {"id": 1}, "source": {**source, "pos": "x"}},
    ]
    path = "$" if wrap is dict else "$.payload"
    assert rows(layout, *map(wrap, changes)) == [
        ("1", False, "bin.000003\x000000000000000000017", None),
        ("1", True, "bin.000003\x000000000000000000018", None),
        ("1", False, None, "no_sequence"),
        ("1", False, None, "no_sequence"),
        (None, False, None, f"malformed: Expected `int | null`, got `str` - at `{path}.source.pos`"),
    ]


def test_the_tombstone_behind_debeziums_deletion_needs_none() -> None:
    layout = RecordLayout("debezium", COLUMNS, ("id",), sequence=SequenceParts(of_source=OF_SOURCE))
    layout_by_own_key = RecordLayout("debezium", COLUMNS, sequence=SequenceParts(of_source=OF_SOURCE))
    assert rows(layout_by_own_key, None) == [("1", True, None, None)]
    assert rows(layout, None) == [(None, True, None, "tombstone_without_key")], "its key is no object"


def test_decimal_sequence_reads_textual_numbers() -> None:
    """Read numbers as text, as Oracle's `scn` is, and name a number that does not fit."""
    of_source = pa.schema([pa.field("scn", pa.decimal128(3, 0))])
    layout = RecordLayout("debezium", COLUMNS, ("id",), sequence=SequenceParts(of_source=of_source))
    values = [{"op": "u", "after": {"id": 1}, "source": {"scn": scn}} for scn in ("17", "1234")]
    (_, _, first, none), (_, _, second, reason) = rows(layout, *values)
    assert (int(first), none, second) == (17, None, None)
    assert "at `$.source.scn`" in reason
