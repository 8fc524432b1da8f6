"""JSON to columns: what is used, what is not, and why."""

from __future__ import annotations

import json
import math
import string
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.reference import Unusable, read
from tidegate.formats import JsonDecoder
from tidegate.kernel.json_text import json_texts

UTC = timezone.utc
SCHEMA = pa.schema(
    [
        pa.field("s", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("tiny", pa.int8()),
        pa.field("b", pa.int64()),
        pa.field("d", pa.float64()),
        pa.field("f", pa.float32()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("day", pa.date32()),
        pa.field("flag", pa.bool_()),
        pa.field("raw", pa.binary()),
        pa.field("l", pa.list_(pa.int32())),
        pa.field("m", pa.map_(pa.string(), pa.float64())),
        pa.field("times", pa.list_(pa.timestamp("us"))),
        pa.field(
            "nested", pa.struct([pa.field("odd name", pa.list_(pa.struct([pa.field("x", pa.int64())])))])
        ),
    ]
)
DECODER = JsonDecoder(SCHEMA)


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def decoded(value: bytes | None) -> tuple[dict[str, Any] | None, str | None]:
    """The fields that are not null, and the reason."""
    result = DECODER.decode([value])
    row = result.columns[0].as_py()
    fields = None if row is None else {name: field for name, field in row.items() if field is not None}
    return fields, result.reasons.get(0)


USED = {
    "all there": (
        body(s="x", n=1, b=2, d=0.5, l=[1, None]),
        {"s": "x", "n": 1, "b": 2, "d": 0.5, "l": [1, None]},
    ),
    "a missing field is null": (body(s="x"), {"s": "x"}),
    "a field that is not declared is passed over": (body(s="x", more={"n": 1}), {"s": "x"}),
    "an explicit null": (body(s=None), {}),
    "an empty object": (b"{}", {}),
    "of a field given twice the last counts": (b'{"n": 1, "n": 2}', {"n": 2}),
    "blanks around": (b' {"n": 1}\r\n', {"n": 1}),
    "an integer for a double": (body(d=1), {"d": 1.0}),
    "a decimal as number or text": (body(price="1.50"), {"price": Decimal("1.50")}),
    "a decimal with an exponent": (b'{"price": 1e3}', {"price": Decimal("1000.00")}),
    "a map": (body(m={"a": 1.5, "b": None}), {"m": [("a", 1.5), ("b", None)]}),
    "structs in lists": (
        body(nested={"odd name": [{"x": 1}, None, {}]}),
        {"nested": {"odd name": [{"x": 1}, None, {"x": None}]}},
    ),
    "bytes as base64": (body(raw="YWI="), {"raw": b"ab"}),
    "a time with a zone": (
        body(at="2026-01-31T10:30:00+02:00"),
        {"at": datetime(2026, 1, 31, 8, 30, tzinfo=UTC)},
    ),
    "a time without a zone is UTC": (
        body(at="2026-01-31 10:30:00.5"),
        {"at": datetime(2026, 1, 31, 10, 30, 0, 500_000, tzinfo=UTC)},
    ),
    "infinity as sinks write it": (body(d="-Infinity", f="Infinity"), {"d": -math.inf, "f": math.inf}),
    "a huge value": (body(s="x" * 10_000_000), {"s": "x" * 10_000_000}),
}


@pytest.mark.parametrize(("value", "fields"), USED.values(), ids=USED.keys())
def test_valid_json_is_used(value: bytes, fields: dict[str, Any]) -> None:
    assert decoded(value) == (fields, None)


UNUSABLE = {
    "not JSON": (b"{oops", "JSON is malformed"),
    "cut off": (b'{"s": "x"', "truncated"),
    "empty": (b"", "truncated"),
    "not UTF-8": (b"\xff\xfe\x00", "not UTF-8"),
    "not UTF-8 in a field that is not declared": (b'{"more": "\xff"}', "not UTF-8"),
    "half of a pair of surrogates": (b'{"s": "\\ud800"}', "truncated"),
    "null": (b"null", "Expected `object`, got `null`"),
    "a list of objects": (b'[{"s": "x"}]', "Expected `object`, got `array`"),
    "text for a number": (body(n="five"), "`$.n`"),
    "a number for a text": (body(s=5), "`$.s`"),
    "a fraction for an integer": (body(n=1.5), "`$.n`"),
    "a boolean for a number": (body(n=True), "`$.n`"),
    "an int too large": (body(n=2**31), "`$.n`"),
    "a bigint too large": (body(b=2**63), "`$.b`"),
    "a number beyond all bounds": (b'{"d": -1e400}', "out of range"),
    "a float beyond its bounds": (b'{"f": 1e39}', "`$.f`"),
    "a decimal with more digits behind the point": (body(price=1.555), "`$.price`"),
    "a decimal with too many digits": (body(price=123456789.5), "`$.price`"),
    "a decimal far below its last digit": (b'{"price": 8e-26}', "`$.price`"),
    "a decimal beyond all exponents": (b'{"price": 1e99999999999999999999}', "`$.price`"),
    "a decimal that is no number": (body(price="NaN"), "Expected a decimal - at `$.price`"),
    "a decimal as Python writes it": (body(price="1_0"), "Expected a decimal - at `$.price`"),
    "a decimal with blanks": (body(price=" 1 "), "Expected a decimal - at `$.price`"),
    "a list for a decimal": (body(price=[1]), "Expected a decimal - at `$.price`"),
    "a number for a time": (body(at=5), "`$.at`"),
    "a time that exists on no clock": (body(at="2026-02-30T10:30:00Z"), "does not exist - at `$.at`"),
    "nanoseconds, which could not be kept": (
        body(at="2026-01-31T10:30:00.1234567Z"),
        "Expected a time as `2026-01-31T10:30:00.123456Z` - at `$.at`",
    ),
    "infinity as others write it": (body(d="inf"), "Expected a number, got 'inf' - at `$.d`"),
    "a byte order mark": (b'\xef\xbb\xbf{"n": 1}', "invalid character"),
    "a control character in a text": (b'{"s": "\x01"}', "invalid character"),
    "a time in a list": (body(times=[None, "10:30"]), "at `$.times[...]`"),
    "an object for a text": (body(s={"x": 1}), "Expected `str | null`, got `object` - at `$.s`"),
    "a text in a list of numbers": (body(l=[1, "x"]), "`$.l[1]`"),
    "deep inside": (body(nested={"odd name": [{"x": 1}, {"x": "y"}]}), "`$.nested.odd name[1].x`"),
    "a time without a date": (body(at="10:30"), "`$.at`"),
    "a time that its zone pushes before the year 1": (body(at="0001-01-01T00:00:00+05:00"), "`$.at`"),
    "a zone where there can be none": (body(local="2026-01-31T10:30:00Z"), "`$.local`"),
    "a day that does not exist": (body(day="2026-02-30"), "`$.day`"),
    "two objects": (b'{"n": 1}\n{"n": 2}', "trailing"),
    "NaN, which is not JSON": (b'{"d": NaN}', "invalid character"),
    "a number of 5000 digits": (b'{"d": ' + b"9" * 5000 + b"}", "out of range"),
    "deep nesting of a field that is not declared": (
        b'{"more": ' + b"[" * 3000 + b"]" * 3000 + b"}",
        "nested more than 500 deep",
    ),
}


@pytest.mark.parametrize(("value", "why"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_invalid_json_is_unusable_with_its_reason(value: bytes, why: str) -> None:
    fields, reason = decoded(value)
    assert fields is None
    assert reason is not None
    assert reason.startswith("malformed: ")
    assert why in reason


def test_a_tombstone_is_null_and_has_no_reason() -> None:
    assert decoded(None) == (None, None)


def test_unusable_values_do_not_touch_their_neighbours() -> None:
    usable, misfits = body(price=1.5), body(price=1.555)
    values = [usable, misfits, None, b"{", usable, misfits, usable, misfits]
    result = DECODER.decode(values)
    assert sorted(result.reasons) == [1, 3, 5, 7]
    assert [row is not None for row in result.columns.to_pylist()] == [value == usable for value in values]


def test_no_values_give_no_rows() -> None:
    result = DECODER.decode([])
    assert len(result.columns) == 0
    assert result.columns.type == pa.struct(list(SCHEMA))


texts = st.text(string.printable + "äß\u2028😀\ud800", max_size=8)
numbers = st.one_of(
    st.integers(-(2**65), 2**65),
    st.integers(-200, 200),
    st.floats(allow_nan=True, allow_infinity=True),
    st.decimals(-(10**9), 10**9, places=3).map(float),
)
times = st.datetimes(timezones=st.none() | st.just(UTC)).map(datetime.isoformat) | st.sampled_from(
    ["2026-01-31t10:30:00.5z", "2026-01-31 10:30:00-2359", "2026-02-29T10:30:00", "2026-01-31T24:00:00Z"]
)
named = st.sampled_from(["Infinity", "-Infinity", "inf", "nan"])
scalars = st.one_of(st.none(), st.booleans(), numbers, texts, times, st.dates().map(str))
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts | st.sampled_from("xsn"), inner, max_size=3)
    ),
    max_leaves=6,
)
fitting = st.fixed_dictionaries(
    {},
    optional={
        "s": texts | scalars,
        "n": st.integers(-(2**31) - 1, 2**31),
        "tiny": st.integers(-129, 128) | scalars,
        "b": st.integers(-(2**63) - 1, 2**63) | scalars,
        "flag": st.booleans() | scalars,
        "d": numbers | named,
        "f": numbers | named,
        "price": numbers | st.sampled_from(["1.25", "x", "-0.1", "1e2", " 1", "1_0", ".5", "\u0663"]),
        "at": times | scalars,
        "local": times,
        "times": st.lists(times | st.none(), max_size=2),
        "day": st.dates().map(str) | times,
        "l": st.lists(st.integers(-3, 3) | st.none(), max_size=3) | documents,
        "m": st.dictionaries(texts, numbers | st.none(), max_size=3) | documents,
        "nested": st.fixed_dictionaries(
            {"odd name": st.lists(st.dictionaries(st.just("x"), scalars), max_size=2)}
        ),
        "raw": st.sampled_from(["YWI=", "YW", "%", ""]),
        "more": documents,
    },
)


def text(document: Any) -> bytes:
    return json.dumps(document).encode()


def is_usable(value: bytes) -> bool:
    try:
        read(value, SCHEMA)
    except Unusable:
        return False
    return True


def with_names_twice(first: dict[str, Any], last: dict[str, Any]) -> bytes:
    """The usable fields of two documents in one object."""
    fields = [text({name: field}) for document in (first, last) for name, field in document.items()]
    return b"{" + b",".join(field[1:-1] for field in fields if is_usable(field)) + b"}"


values = st.one_of(
    (fitting | documents).map(text), st.builds(with_names_twice, fitting, fitting), st.binary(max_size=6)
)


@given(st.lists(st.none() | values, max_size=6))
def test_json_values_equal_the_strict_reference(batch: list[bytes | None]) -> None:
    result = DECODER.decode(batch)
    for row, value in enumerate(batch):
        got = result.columns[row].as_py()
        if value is None:
            assert (got, row in result.reasons) == (None, False)
            continue
        try:
            expected = read(value, SCHEMA)
        except Unusable:
            assert (got, row in result.reasons) == (None, True), value
        else:
            assert (got, row in result.reasons) == (expected, False), value


def test_depth_limit_does_not_depend_on_the_reader() -> None:
    """Brackets in texts do not count, and the stack of the reader does not, either."""
    within = b'{"s": "' + b"[" * 2000 + b'", "more": ' + b"[" * 499 + b"]" * 499 + b"}"
    beyond = b'{"more": ' + b"[" * 500 + b"]" * 500 + b"}"
    assert decoded(within)[1] is None
    assert decoded(beyond)[1] == "malformed: it is nested more than 500 deep"

    def deeper(frames: int) -> str | None:
        return deeper(frames - 1) if frames else decoded(within)[1]

    assert deeper(200) is None


def test_non_numbers_are_read_as_sinks_write_them() -> None:
    fields, reason = decoded(
        json_texts(pa.array([{"d": math.nan}], pa.struct([("d", pa.float64())])))[0].as_py().encode()
    )
    assert reason is None
    assert fields is not None
    assert math.isnan(fields["d"])
