"""Debezium's changes: rows, deletions with their keys, and what is neither."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.reference import Unusable, read
from tidegate.formats import FrameDecoder, RecordLayout, Records
from tidegate.formats.debezium import DebeziumDecoder

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("store", pa.string()),
        pa.field("price", pa.decimal128(6, 2)),
        pa.field("at", pa.timestamp("us")),
    ]
)
ROW = {"id": 1, "store": "s", "price": "1.50", "at": None}


def change(**fields: Any) -> bytes:
    return json.dumps({"source": {"db": "shop"}, "ts_ms": 5} | fields).encode()


def wrapped(value: bytes) -> bytes:
    return b'{"schema":{"type":"struct","fields":[]},"payload":' + value + b"}"


def rows(key: tuple[str, ...], *pairs: tuple[bytes | None, bytes | None]) -> list[tuple[Any, ...]]:
    """Key, whether it is deleted, `store`, and the reason of each pair of a record's own key and value."""
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    count = len(pairs)
    decoder = FrameDecoder(RecordLayout("debezium", SCHEMA, key), None, keeps_input=False)
    (batch,) = decoder.decode(Records("t", 0, range(count), [7] * count, keys, values, [None] * count))
    batch.validate(full=True)
    names = ("__key", "__tombstone", "store", "__reason")
    return list(zip(*(batch.column(name).to_pylist() for name in names), strict=True))


def reason(value: bytes) -> str | None:
    result = DebeziumDecoder(SCHEMA, ["id"]).decode([value])
    assert result.columns.null_count == len(result.reasons)
    return result.reasons.get(0)


@pytest.mark.parametrize("wrap", [bytes, wrapped])
@pytest.mark.parametrize("op", ["c", "u", "r"])
def test_creates_updates_and_reads_give_row_after(op: str, wrap: Any) -> None:
    value = wrap(change(op=op, before={"id": 9}, after=ROW))
    assert rows(("id",), (None, value)) == [("1", False, "s", None)]


@pytest.mark.parametrize("wrap", [bytes, wrapped])
def test_deletion_has_the_previous_key_and_no_columns(wrap: Any) -> None:
    value = wrap(change(op="d", before=ROW, after=None))
    assert rows(("store",), (b"\xff", value)) == [("s", True, None, None)]
    assert rows(("id", "store"), (None, value)) == [('{"id":1,"store":"s"}', True, None, None)]


def test_only_key_columns_of_row_before_are_read() -> None:
    value = change(op="d", before={"id": 1, "store": 5, "price": "x"}, after=None)
    assert rows(("id",), (None, value)) == [("1", True, None, None)]


def test_deletion_with_record_key_needs_no_row_before() -> None:
    assert rows((), (b'{"id":1}', change(op="d", before=None))) == [('{"id":1}', True, None, None)]


@pytest.mark.parametrize("before", [None, {}, {"id": None}])
def test_deletion_without_its_key_is_quarantined(before: Any) -> None:
    value = change(op="d", before=before)
    assert rows(("id",), (b'{"id":1}', value)) == [(None, True, None, "tombstone_without_key")]


@pytest.mark.parametrize("own", [b'{"id":1}', wrapped(b'{"id":1}')])
def test_tombstone_key_comes_from_the_debezium_key(own: bytes) -> None:
    assert rows(("id",), (own, None)) == [("1", True, None, None)]


@pytest.mark.parametrize("own", [b'{"number":1}', b"1", b"", b'{"id":"1"}'])
def test_tombstone_without_key_columns_is_quarantined(own: bytes) -> None:
    assert rows(("id",), (own, None)) == [(None, True, None, "tombstone_without_key")]


UNUSABLE = [
    (change(after=ROW), "Expected an operation: c, u, r or d - at `$.op`"),
    (change(op="x", after=ROW), "Expected an operation: c, u, r or d, got 'x' - at `$.op`"),
    (change(op=5), "Expected `str | null`, got `int` - at `$.op`"),
    (change(op="u", before=ROW), "Expected the row of `op: u`, got `null` - at `$.after`"),
    (
        change(op="t"),
        "The table was truncated (`op: t`): the deleted keys are not in the record - at `$.op`",
    ),
    (change(op="d", before=ROW, after=ROW), "Expected no row after `op: d` - at `$.after`"),
    (
        wrapped(change(op="d", before=ROW, after={"price": "x"})),
        "Expected no row after `op: d` - at `$.payload.after`",
    ),
    (change(op="m"), "A message of the database (`op: m`) has no row - at `$.op`"),
    (change(op="c", after=ROW | {"id": "1"}), "Expected `int | null`, got `str` - at `$.after.id`"),
    (change(op="d", before={"id": "1"}), "Expected `int | null`, got `str` - at `$.before.id`"),
    (change(op="c", after=ROW | {"price": "x"}), "Expected a decimal - at `$.after.price`"),
    (wrapped(change(op="c", after=ROW | {"price": "x"})), "Expected a decimal - at `$.payload.after.price`"),
    (wrapped(change(after=ROW)), "Expected an operation: c, u, r or d - at `$.payload.op`"),
    (wrapped(b"null"), "Expected an operation: c, u, r or d - at `$.op`"),
    (b"\xff", "it is not UTF-8"),
]


@pytest.mark.parametrize(("value", "why"), UNUSABLE, ids=[why for _, why in UNUSABLE])
def test_non_change_event_is_unusable_with_its_path(value: bytes, why: str) -> None:
    assert reason(value) == f"malformed: {why}"


def test_an_unusable_change_does_not_touch_its_neighbours() -> None:
    good, deletion = change(op="c", after=ROW), change(op="d", before=ROW)
    changes = rows(
        ("id",), (None, good), (None, b"{"), (None, deletion), (None, change(op="t")), (None, good)
    )
    assert [(key, deleted) for key, deleted, *_ in changes] == [
        ("1", False),
        (None, False),
        ("1", True),
        (None, False),
        ("1", False),
    ]


def plain(value: bytes | None) -> tuple[str, Any]:
    """One change, read as one would naively: what it is, and its row or key."""
    if value is None:
        return "tombstone", None
    try:
        envelope = json.loads(value)
        envelope = envelope["payload"] if envelope.get("payload") is not None else envelope
        before, after = (
            None if envelope.get(name) is None else read(json.dumps(envelope[name]).encode(), schema)
            for name, schema in (("before", SCHEMA.empty_table().select(["id"]).schema), ("after", SCHEMA))
        )
        if envelope.get("op") == "d":
            return "deletion", before and before["id"]
        return ("row", after) if envelope["op"] in list("cur") and after else ("unusable", None)
    except (Unusable, ValueError, KeyError, TypeError, AttributeError):
        return "unusable", None


IDS = st.one_of(st.none(), st.integers(-3, 3), st.just(2**63), st.just("1"))
IMAGES = st.one_of(
    st.none(),
    st.just(5),
    st.fixed_dictionaries(
        {"id": IDS},
        optional={
            "store": st.sampled_from(["s", None, 5]),
            "price": st.sampled_from(["1.5", "1.555", "x", None]),
            "at": st.sampled_from(["2026-01-31T10:30:00", "2026-02-31T10:30:00", None]),
        },
    ),
)
CHANGES = st.builds(
    # a deletion has no row after: of one that had, as much is checked as parsing it takes
    lambda fields, wrap: wrap(json.dumps(fields | ({"after": None} if fields["op"] == "d" else {})).encode()),
    st.fixed_dictionaries(
        {"op": st.sampled_from(["c", "u", "r", "d", "d", "t", "m", "x", None, 5])},
        optional={"before": IMAGES, "after": IMAGES, "source": st.just({"ts_ms": 1})},
    ),
    st.sampled_from([bytes, wrapped]),
)


@given(st.lists(st.one_of(CHANGES, st.none(), st.binary(max_size=3)), max_size=8))
def test_debezium_changes_equal_a_naive_reader(values: list[bytes | None]) -> None:
    result = DebeziumDecoder(SCHEMA, ["id"]).decode(values)
    expected: list[tuple[str, Any]] = []
    for place, row in enumerate(result.columns.to_pylist()):
        if place in result.reasons:
            expected.append(("unusable", None))
        elif place in result.deletions:
            expected.append(("deletion", row and row["id"]))
        else:
            expected.append(("tombstone", None) if row is None else ("row", row))
    assert expected == list(map(plain, values))


def test_change_without_its_place_has_no_row() -> None:
    of_source = pa.schema([pa.field("scn", pa.decimal128(38, 0))])
    decoder = DebeziumDecoder(SCHEMA, ["id"], sequence=of_source)
    good, bad = (change(op="c", after=row, source={"scn": "x"}) for row in (ROW, {**ROW, "price": "x"}))
    decoded = decoder.decode([good, bad])
    assert decoded.columns.null_count == 2
    expected = "malformed: Expected a decimal - at `$.source.scn`"
    assert [decoded.reasons[row] for row in (0, 1)] == [expected] * 2
