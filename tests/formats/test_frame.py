"""Records to rows: keys, times and reasons, held against a plain reader."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats import frame_reference
from tidegate.formats import FrameDecoder, Header, Reason, RecordLayout, Records, unpack_headers
from tidegate.kernel.keys import LEAST_HASH

BELIEVED_UNTIL_MS = 10_000
COLUMNS = pa.schema(
    [
        pa.field("s", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("b", pa.int64()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("day", pa.date32()),
        pa.field("price", pa.decimal128(10, 8)),
        pa.field("flag", pa.bool_()),
        pa.field("l", pa.list_(pa.int64())),
        pa.field("m", pa.map_(pa.string(), pa.list_(pa.int32()))),
    ]
)


def layout(**fields: Any) -> RecordLayout:
    return RecordLayout(**{"format": "json", "columns": COLUMNS} | fields)


def records(*rows: dict[str, Any]) -> Records:
    """Each of `value`, `key`, `timestamp`, `headers`."""
    return Records(
        "t",
        3,
        range(7, 7 + len(rows)),
        [row.get("timestamp", 1000) for row in rows],
        [row.get("key", b"k") for row in rows],
        [row.get("value", b"{}") for row in rows],
        [row.get("headers") for row in rows],
    )


def decoded(
    record_layout: RecordLayout, *rows: dict[str, Any], keeps_input: bool = False
) -> list[dict[str, Any]]:
    decoder = FrameDecoder(record_layout, BELIEVED_UNTIL_MS, keeps_input)
    batches = list(decoder.decode(records(*rows)))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == decoder.schema
    return [row for batch in batches for row in rows_of(batch)]


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows, with the headers of whole records as quarantine shows them."""
    rows = batch.to_pylist()
    headers = unpack_headers(batch.column("__input").field("headers")).to_pylist()
    for row, unpacked in zip(rows, headers, strict=True):
        if row["__input"] is not None:
            row["__input"]["headers"] = unpacked
    return rows


def single_row(record_layout: RecordLayout, **record: Any) -> dict[str, Any]:
    (row,) = decoded(record_layout, record)
    return row


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def reasons(rows: Sequence[dict[str, Any]]) -> list[str | None]:
    return [row["__reason"] for row in rows]


# one fact each


def test_malformed_record_is_quarantined_with_reason_and_path() -> None:
    headers = [("a", b"1"), ("a", None)]
    row = single_row(layout(), value=b'{"n": "five", "s": "x"}', headers=headers)
    assert row["__reason"] == "malformed: Expected `int | null`, got `str` - at `$.n`"
    assert row["__input"] == {
        "key": b"k",
        "value": b'{"n": "five", "s": "x"}',
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        "reason": row["__reason"],
        "part": None,
        "recorded": 1000,
        "timestamp_type": 1,
    }
    assert row["s"] is None


def test_only_unusable_records_are_stored_whole_by_default() -> None:
    bad = {"value": b"{"}
    assert [row["__input"] is None for row in decoded(layout(), {}, bad)] == [True, False]
    inputs = [row["__input"] for row in decoded(layout(), {}, bad, keeps_input=True)]
    assert [(whole["value"], whole["reason"] is None) for whole in inputs] == [(b"{}", True), (b"{", False)]


KEYS = {
    "a text": (["s"], 'q"\n', 'q"\n'),
    "a number": (["n"], -5, "-5"),
    "a boolean": (["flag"], True, "true"),
    "a decimal, all digits": (["price"], "1E-8", "0.00000001"),
    "a day": (["day"], "0987-01-31", "0987-01-31"),
    "a time": (["at"], "2026-01-31T10:30:00+02:00", "2026-01-31 08:30:00"),
    "a fraction of a second, as much as there is": (
        ["at"],
        "2026-01-31T10:30:00.120Z",
        "2026-01-31 10:30:00.12",
    ),
    "a time without a zone": (["local"], "2026-01-31 10:30:10.000001", "2026-01-31 10:30:10.000001"),
}


@pytest.mark.parametrize(("key", "value", "text"), KEYS.values(), ids=KEYS.keys())
def test_the_key_of_one_column_is_its_text(key: list[str], value: Any, text: str) -> None:
    assert single_row(layout(key=tuple(key)), value=body(**{key[0]: value}))["__key"] == text


def test_several_key_columns_make_an_ordered_object() -> None:
    row = single_row(layout(key=("n", "at", "s")), value=body(s='q"\x1f', n=1, at="2026-01-31 10:30:00.5"))
    assert row["__key"] == '{"n":1,"at":"2026-01-31T10:30:00.500000Z","s":"q\\"\\u001F"}'


def test_tombstone_key_columns_come_from_its_key() -> None:
    keys = [b'{"s": "x", "n": 1}', b"x", b'{"n": 1}', b'{"n": 1, "s": 2}', None, b"\xff"]
    rows = decoded(layout(key=("n", "s")), *({"key": key, "value": None} for key in keys))
    assert [row["__key"] for row in rows] == ['{"n":1,"s":"x"}', *[None] * 5]
    assert reasons(rows) == [None, *[Reason.TOMBSTONE_WITHOUT_KEY] * 4, Reason.KEY_NOT_TEXT]


def test_tombstone_has_its_key_and_no_columns() -> None:
    rows = decoded(
        layout(key=("s",)), {"value": body(s="a")}, {"key": b"b", "value": None}, {"value": body(s="c")}
    )
    assert [(row["__key"], row["__tombstone"], row["s"]) for row in rows] == [
        ("a", False, "a"),
        ("b", True, None),
        ("c", False, "c"),
    ]


def test_binary_key_matters_only_as_row_key() -> None:
    rows = ({"key": b"\xff", "value": body(s="x")}, {"key": b"\xff", "value": None})
    assert reasons(decoded(layout(), *rows)) == [Reason.KEY_NOT_TEXT, Reason.KEY_NOT_TEXT]
    assert reasons(decoded(layout(key=("s",)), *rows)) == [None, Reason.KEY_NOT_TEXT]


def test_hash_is_that_of_key_or_position() -> None:
    keyed, unkeyed = decoded(layout(), {"key": b"t/3/8"}, {"key": None})
    assert keyed["__hash"] == unkeyed["__hash"]
    assert unkeyed["__key"] is None


def test_hash_of_a_position_is_never_minimal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tidegate.formats.frame.key_hashes", lambda keys: pa.array([LEAST_HASH] * len(keys), pa.int64())
    )
    rows = decoded(layout(), {"key": b"x"}, {"key": None})
    assert [row["__hash"] for row in rows] == [LEAST_HASH, LEAST_HASH + 1]


def test_timestamp_column_does_not_apply_to_tombstones() -> None:
    record_layout = layout(timestamp="b")
    rows = decoded(record_layout, {"value": body(b=77)}, {"value": body()}, {"value": None})
    assert [row["__timestamp"] for row in rows] == [77, None, 1000]
    assert reasons(rows) == [None, Reason.NO_TIMESTAMP, None]


def test_times_round_down_even_before_1970() -> None:
    rows = decoded(
        layout(timestamp="at"),
        {"value": body(at="1970-01-01T00:00:01.0009Z")},
        {"value": body(at="1969-12-31T23:59:59.9995Z")},
    )
    assert [row["__timestamp"] for row in rows] == [1000, -1]
    assert reasons(rows) == [None, Reason.NEGATIVE_TIMESTAMP]


def test_timestamps_are_believed_up_to_the_bound() -> None:
    times = (BELIEVED_UNTIL_MS, BELIEVED_UNTIL_MS + 1, 0, -1)
    rows = decoded(layout(), *({"timestamp": time} for time in times))
    assert reasons(rows) == [None, Reason.FUTURE_TIMESTAMP, None, Reason.NEGATIVE_TIMESTAMP]
    (batch,) = FrameDecoder(layout(), None, False).decode(records({"timestamp": 2**62}))
    assert batch.column("__reason").to_pylist() == [None]


def test_exploded_elements_are_rows_in_order() -> None:
    rows = decoded(
        layout(explode="l", key=("l",)),
        {"value": body(l=[5, None, 6], s="x")},
        {"value": b"{"},
        {"value": body(l=[7])},
    )
    assert [(row["__offset"], row["__part"], row["l"], row["s"]) for row in rows] == [
        (7, 0, 5, "x"),
        (7, 1, None, None),
        (7, 2, 6, "x"),
        (8, 0, None, None),
        (9, 0, 7, None),
    ]
    assert [row["__reason"] and row["__reason"].split(":")[0] for row in rows] == [
        *(None, Reason.NULL_KEY_COLUMN, None, Reason.MALFORMED, None)
    ]


def test_record_without_elements_needs_no_key_or_time() -> None:
    record_layout = layout(explode="l", key=("l",), timestamp="l")
    rows = decoded(record_layout, {"value": body(l=[])}, {"value": body()}, {"key": b"5", "value": None})
    assert [(row["__empty"], row["__reason"]) for row in rows] == [(True, None), (True, None), (False, None)]


def test_large_exploded_record_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.formats.records._MOST_BYTES", 5_000)
    large = body(s="x" * 1_000, l=list(range(12)))
    decoder = FrameDecoder(layout(explode="l"), 0, False)
    batches = list(decoder.decode(records({"value": large}, {"value": body(l=[1])}, {"value": large})))
    assert max(batch.num_rows for batch in batches) < 6
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["__part"] for row in rows] == [*range(12), 0, *range(12)]
    assert {row["__input"]["value"] for row in rows if row["__offset"] == 9} == {large}


def test_the_chain_is_the_newest_of_its_headers() -> None:
    headers = [("tidegate-source", b"a/0/1"), ("other", b"\xff"), ("tidegate-source", b"b/0/2;c/1/3")]
    assert single_row(layout(), headers=headers)["__chain"] == "b/0/2;c/1/3"
    assert single_row(layout(), headers=[("other", b"x")])["__chain"] is None


def test_deduplicated_chain_must_begin_with_a_position() -> None:
    chains = [b"a/0/1", b"a/0/1;", b"a/0/1\n", b"a/0", b"", b"\xff", None]
    rows = [{"headers": [("tidegate-source", chain)]} for chain in chains]
    fault = Reason.MALFORMED_SOURCE_CHAIN
    assert reasons(decoded(layout(), *rows)) == [*[None] * 5, fault, None]
    assert reasons(decoded(layout(rooted=True), *rows)) == [None, None, *[fault] * 4, None]


def test_string_and_bytes_have_the_one_column_value() -> None:
    text = RecordLayout("string", pa.schema([pa.field("value", pa.string())]))
    rows = decoded(text, {"value": "é".encode()}, {"value": b"\xff"}, {"value": None})
    assert [row["value"] for row in rows] == ["é", None, None]
    assert reasons(rows) == [None, "malformed: it is not UTF-8", None]
    raw = RecordLayout("bytes", pa.schema([pa.field("value", pa.binary())]))
    assert single_row(raw, value=b"\xff")["value"] == b"\xff"


def test_no_records_give_no_rows() -> None:
    for record_layout in (layout(), layout(key=("n", "s"), rooted=True, timestamp="at"), layout(explode="l")):
        assert decoded(record_layout) == []


def test_a_layout_can_be_pickled() -> None:
    record_layout = layout(explode="l", key=("l", "s"))
    copy = pickle.loads(pickle.dumps(record_layout))
    assert copy == record_layout
    assert copy.row_columns.field("l").type == pa.int64()


def test_each_reason_is_explained() -> None:
    assert all(reason.explanation.endswith(".") for reason in Reason)
    assert str(Reason.NULL_KEY) == f"{Reason.NULL_KEY}" == "null_key"


# against the plain reader

names = st.sampled_from(["s", "n", "b", "at", "local", "day", "price", "flag"])
texts = st.text(st.characters(codec="utf-8") | st.sampled_from('"\\\x1f'), max_size=3)
moments = st.sampled_from(["1970-01-01T00:00:00.000500", "2026-01-31T10:30:00Z", "0001-01-01T00:00:00", "x"])
documents = st.fixed_dictionaries(
    {},
    optional={
        "s": texts | st.none() | st.integers(),
        "n": st.integers(-3, 3) | st.none() | st.booleans(),
        "b": st.integers(-2, 2) | st.just(BELIEVED_UNTIL_MS + 1) | st.none(),
        "at": moments,
        "local": moments,
        "day": st.dates().map(str),
        "price": st.sampled_from(["0.00000001", "1.5", "0", "-0.10", "100"]),
        "flag": st.booleans() | st.none(),
        "l": st.lists(st.integers(-1, 3) | st.none(), max_size=3) | st.none(),
        "m": st.dictionaries(texts, st.lists(st.integers(0, 3), max_size=2), max_size=2),
    },
)
bodies = documents.map(lambda document: json.dumps(document).encode())
chains = st.sampled_from([b"a/0/1", b"a/0/1;b/2/3", b"a/0/1\n", b"a", b"\xff", b"", None])
headers: st.SearchStrategy[list[Header] | None] = st.none() | st.lists(
    st.tuples(st.sampled_from(["tidegate-source", "other"]), chains), max_size=2
)
lists = st.sampled_from(["l", None])
rows = st.fixed_dictionaries(
    {
        "value": st.none() | bodies | st.sampled_from([b"{", b"\xff", b"[]", b"null"]),
        "key": st.none() | bodies | st.sampled_from([b"k", b"", b"\xff", b"1"]),
        "timestamp": st.sampled_from([-1, 0, 1000, BELIEVED_UNTIL_MS, BELIEVED_UNTIL_MS + 1]),
        "headers": headers,
    }
)


@st.composite
def layouts(draw: st.DrawFn) -> RecordLayout:
    exploded = draw(lists)
    keys = names | st.just("l") if exploded else names
    times = [None, "b", "at", *(["l"] if exploded else [])]
    key = draw(st.lists(keys, max_size=3, unique=True))
    return layout(
        key=tuple(key), timestamp=draw(st.sampled_from(times)), explode=exploded, rooted=draw(st.booleans())
    )


@given(layouts(), st.sampled_from([None, BELIEVED_UNTIL_MS]), st.booleans(), st.lists(rows, max_size=5))
def test_frames_equal_a_plain_reader(
    record_layout: RecordLayout,
    believed_until_ms: int | None,
    keeps_input: bool,
    given_rows: list[dict[str, Any]],
) -> None:
    source = records(*given_rows)
    batches = FrameDecoder(record_layout, believed_until_ms, keeps_input).decode(source)
    got = [without_detail(row) for batch in batches for row in rows_of(batch)]
    assert got == list(frame_reference.rows(record_layout, believed_until_ms, keeps_input, source))


def without_detail(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose reason, if it is malformed, says only that."""
    if (row["__reason"] or "").startswith("malformed: "):
        row["__reason"] = row["__input"]["reason"] = "malformed"
    return row
