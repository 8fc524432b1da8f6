"""CSV to columns: one value is one row, and nothing in it is converted."""

from __future__ import annotations

import csv
import math
import re
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.formats import csv_reference
from tests.formats.reference import Unusable
from tidegate.formats import Csv, CsvDecoder, FrameDecoder, RecordLayout, Records
from tidegate.formats.csv import csv_texts

SCHEMA = pa.schema(
    [
        pa.field("s", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("b", pa.int64()),
        pa.field("d", pa.float64()),
        pa.field("f", pa.float32()),
        pa.field("price", pa.decimal128(6, 2)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("day", pa.date32()),
        pa.field("flag", pa.bool_()),
        pa.field("raw", pa.binary()),
    ]
)
PLAIN = Csv()
SEMICOLONS = Csv(";", '"', "\\", "\\N")


def texts(count: int) -> pa.Schema:
    return pa.schema([(f"c{place}", pa.string()) for place in range(count)])


def decoded(value: bytes, schema: pa.Schema, dialect: Csv = PLAIN) -> tuple[list[Any] | None, str | None]:
    """The columns of a value, and the reason."""
    result = CsvDecoder(schema, dialect).decode([value])
    row = result.columns[0].as_py()
    return row and [*row.values()], result.reasons.get(0)


ROWS = {
    "fields as they stand, blanks too": (b" a,b b,c ", PLAIN, [" a", "b b", "c "]),
    "what is empty is null, and a text in quotes is not": (b',"",x', PLAIN, [None, "", "x"]),
    "delimiters, doubled quotes, line ends in quotes": (
        b'"a,b","c""d","e\r\nf"',
        PLAIN,
        ["a,b", 'c"d', "e\r\nf"],
    ),
    "a quote inside of a plain field": (b'5" pipe,a"b",c', PLAIN, ['5" pipe', 'a"b"', "c"]),
    "a line end after the row": (b"a,b,c\r\n", PLAIN, ["a", "b", "c"]),
    "escapes, in quotes and without": (rb'a\;b;"c\"d;";\\', SEMICOLONS, ["a;b", 'c"d;', "\\"]),
    "a null text counts without quotes, as it is written": (
        rb'\N;"\N";\\N',
        SEMICOLONS,
        [None, "N", "\\N"],
    ),
    "without a null text nothing is null": (b",a,", Csv(null_text=None), ["", "a", ""]),
    "without quotes a quote is a character": (b'"a,b",c', Csv(quote=None), ['"a', 'b"', "c"]),
    "a delimiter that is more than a byte": ("a→b→ä".encode(), Csv("→"), ["a", "b", "ä"]),
    "tabs": (b"a\tb\tc", Csv("\t"), ["a", "b", "c"]),
    "delimiters that mean something in patterns": (b'a|"b|"|c', Csv("|"), ["a", "b|", "c"]),
}


@pytest.mark.parametrize(("value", "dialect", "fields"), ROWS.values(), ids=ROWS.keys())
def test_csv_row_gives_its_columns(value: bytes, dialect: Csv, fields: list[str | None]) -> None:
    assert decoded(value, texts(3), dialect) == (fields, None)


NO_ROWS = {
    "a field too few": (b"a,b", "Expected 3 fields, got 2"),
    "a field too many": (b"a,b,c,", "Expected 3 fields, got 4"),
    "a field too few, in quotes": (b'a,"b,c"', "Expected 3 fields, got 2"),
    "nothing": (b"", "Expected 3 fields, got 1"),
    "two rows": (b"a,b,c\nd,e,f", "Expected one row, got a line end - at `c2`"),
    "an empty row after the first": (b"a,b,c\n\n", "Expected one row, got a line end - at `c2`"),
    "a quote that is not closed": (b'a,"b,c', "A quote is not closed - at `c1`"),
    "a quote that is not closed, behind the last column": (b'a,b,c,"d', "A quote is not closed - at field 4"),
    "something after a quote": (b'"a"b,c,d', "Expected ',' after the quote, got 'b' - at `c0`"),
    "not UTF-8": (b"\xff,b,c", "it is not UTF-8"),
}


@pytest.mark.parametrize(("value", "why"), NO_ROWS.values(), ids=NO_ROWS.keys())
def test_unfit_csv_row_says_why(value: bytes, why: str) -> None:
    assert decoded(value, texts(3)) == (None, f"malformed: {why}")


def test_nothing_may_follow_an_escape_but_a_character() -> None:
    assert decoded(b"a;b\\", texts(2), SEMICOLONS) == (
        None,
        "malformed: Nothing follows the escape - at `c1`",
    )


USED = {
    "s": (b"x", "x"),
    "n": (b"-5", -5),
    "b": (b"9223372036854775807", 2**63 - 1),
    "d": (b"-Infinity", -math.inf),
    "f": (b"1e3", 1000.0),
    "price": (b"1.5", Decimal("1.50")),
    "at": (b"2026-01-31T10:30:00+02:00", datetime(2026, 1, 31, 8, 30, tzinfo=timezone.utc)),
    "local": (b"2026-01-31 10:30:00.5", datetime(2026, 1, 31, 10, 30, 0, 500_000)),
    "day": (b"2026-01-31", date(2026, 1, 31)),
    "flag": (b"true", True),
    "raw": (b"YWI=", b"ab"),
}


@pytest.mark.parametrize(
    ("name", "value", "expected"), [(name, *pair) for name, pair in USED.items()], ids=USED
)
def test_csv_text_fits_its_column(name: str, value: bytes, expected: Any) -> None:
    assert decoded(value, pa.schema([SCHEMA.field(name)])) == ([expected], None)


MISFITS = [
    ("n", b" 5", "Expected `int` - at `n`"),
    ("n", b"007", "Expected `int` - at `n`"),
    ("n", b"1.0", "Expected `int` - at `n`"),
    ("n", b'""', "Expected `int` - at `n`"),
    ("n", b"2147483648", "A value does not fit into `int` - at `n`"),
    ("b", b"9223372036854775808", "A value does not fit into `bigint` - at `b`"),
    ("d", b"1e400", "A value does not fit into `double` - at `d`"),
    ("d", b"inf", "Expected `double` - at `d`"),
    ("f", b"1e39", "A value does not fit into `float` - at `f`"),
    ("price", b"1.555", "A value does not fit into `decimal128(6, 2)` - at `price`"),
    ("price", b'"""1"""', "Expected a decimal - at `price`"),
    ("at", b"2026-01-31", "Expected a time as `2026-01-31T10:30:00.123456Z` - at `at`"),
    ("day", b"2026-02-30", "A value does not fit into `date` - at `day`"),
    ("day", b"0000-01-01", "A value does not fit into `date` - at `day`"),
    ("flag", b"TRUE", "Expected `boolean` - at `flag`"),
    ("raw", b"%", "Expected base64 - at `raw`"),
]


@pytest.mark.parametrize(("name", "value", "why"), MISFITS)
def test_unfit_csv_text_names_its_column(name: str, value: bytes, why: str) -> None:
    assert decoded(value, pa.schema([SCHEMA.field(name)])) == (None, f"malformed: {why}")


def test_unusable_values_do_not_shift_their_neighbours() -> None:
    values = [b"a,1", b'"b', b"c\n,3", None, b"d,4,", b'"e\n",5', b"f", b"g,7\n"]
    result = CsvDecoder(pa.schema([("s", pa.string()), ("n", pa.int64())]), PLAIN).decode(values)
    assert sorted(result.reasons) == [1, 2, 4, 6]
    rows = result.columns.to_pylist()
    assert [row and [*row.values()] for row in rows] == [
        ["a", 1],
        None,
        None,
        None,
        None,
        ["e\n", 5],
        None,
        ["g", 7],
    ]


def test_no_values_give_no_rows() -> None:
    assert len(CsvDecoder(SCHEMA, PLAIN).decode([]).columns) == 0


def test_csv_rows_and_tombstones_have_their_keys() -> None:
    layout = RecordLayout("csv", pa.schema([("s", pa.string()), ("n", pa.int64())]), ("s", "n"))
    keys, values = [b"any", b'{"s":"a","n":1}'], [b"a,1", None]
    (rows,) = FrameDecoder(layout, None, False).decode(
        Records("t", 0, [0, 1], [7, 7], keys, values, [None] * 2)
    )
    assert rows.column("__key").to_pylist() == ['{"s":"a","n":1}'] * 2
    assert rows.column("__tombstone").to_pylist() == [False, True]


dialects = st.sampled_from([PLAIN, SEMICOLONS, Csv("\t", null_text=None), Csv("|", "'", null_text="null")])
odd_texts = st.text(",;|\t\"'\\\r\nN aä😀0", max_size=12)
numbers = (
    st.integers(-(2**64), 2**64) | st.integers(-9, 9) | st.floats() | st.decimals(-(10**5), 10**5, places=3)
)
times = st.datetimes(timezones=st.none() | st.just(timezone.utc)).map(datetime.isoformat)
fields = st.one_of(
    odd_texts,
    numbers.map(str),
    times,
    st.dates().map(str),
    st.sampled_from(
        ["", "true", "null", "\\N", "NaN", "-Infinity", "1e400", "-0", "YWI=", "0000-01-01", "1e-400"]
    ),
)


@st.composite
def written_rows(draw: st.DrawFn, dialect: Csv) -> bytes:
    """A row of as many fields as `SCHEMA` has, more or less well written."""
    columns = draw(st.sampled_from([len(SCHEMA)] * 8 + [len(SCHEMA) - 1, len(SCHEMA) + 1]))
    parts = draw(st.lists(fields, min_size=columns, max_size=columns))
    quote = dialect.quote or ""
    quoted = draw(st.lists(st.booleans(), min_size=columns, max_size=columns))
    written = [
        f"{quote}{part.replace(quote, quote * 2)}{quote}" if is_quoted else part
        for part, is_quoted in zip(parts, quoted, strict=True)
    ]
    return (dialect.delimiter.join(written) + draw(st.sampled_from(["", "", "\n", "\r\n"]))).encode()


@st.composite
def typed_rows(draw: st.DrawFn, dialect: Csv) -> bytes:
    """A row whose fields mostly fit their columns."""
    fitting: dict[str, st.SearchStrategy[Any]] = {
        "s": st.text("aä ", max_size=3),
        "n": st.integers(-(2**31) - 1, 2**31),
        "b": st.integers(-(2**63) - 1, 2**63),
        "d": numbers,
        "f": st.floats() | st.floats(width=32),
        "price": st.decimals(-9999, 9999, places=2) | numbers,
        "at": times,
        "local": st.datetimes().map(datetime.isoformat),
        "day": st.dates(),
        "flag": st.sampled_from(["true", "false"]),
        "raw": st.sampled_from(["YWI=", ""]),
    }
    parts = [
        str(draw(fitting[name])) if draw(st.integers(0, 5)) else dialect.null_text or ""
        for name in SCHEMA.names
    ]
    return dialect.delimiter.join(parts).encode()


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row that can be compared: NaN is equal to itself, and zero has a sign."""
    return {name: repr(field) if isinstance(field, float) else field for name, field in row.items()}


@examples(100)
@given(st.data(), dialects)
def test_csv_values_equal_a_plain_reader(data: st.DataObject, dialect: Csv) -> None:
    some = (
        st.none()
        | written_rows(dialect)
        | typed_rows(dialect)
        | odd_texts.map(str.encode)
        | st.binary(max_size=4)
    )
    values = data.draw(st.lists(some, max_size=6))
    result = CsvDecoder(SCHEMA, dialect).decode(values)
    result.columns.validate(full=True)
    for row, value in enumerate(values):
        got = result.columns[row].as_py()
        if value is None:
            assert (got, row in result.reasons) == (None, False)
            continue
        try:
            expected = csv_reference.read(value, SCHEMA, dialect)
        except Unusable:
            assert (got, row in result.reasons) == (None, True), value
        else:
            assert row not in result.reasons, (value, result.reasons[row])
            assert comparable(got) == comparable(expected), value


@given(odd_texts | st.text('a,"\n', max_size=8))
@example('"a"\n')
def test_csv_fields_equal_the_python_reader(text: str) -> None:
    # to it nothing is a row without fields, and a row may have any number of line ends behind it
    assume(text.strip("\r\n") and not re.search("\n[\r\n]$|\r\r$", text))
    try:
        (fields,) = csv.reader([text], strict=True)
    except (csv.Error, ValueError):
        fields = None
    got, reason = decoded(text.encode(), texts(len(fields or "1")), Csv(null_text=None))
    assert got == fields
    assert (reason is None) == (got is not None)


WRITTEN = pa.schema([("s", pa.string()), ("n", pa.int64()), ("d", pa.float64()), ("t", pa.string())])
WRITTEN_TEXTS = st.none() | st.text(st.sampled_from('a,"\r\n #-0'), max_size=5)


@examples(100)
@given(
    st.lists(
        st.tuples(
            WRITTEN_TEXTS,
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.floats(allow_nan=False),
            WRITTEN_TEXTS,
        )
    )
)
def test_written_rows_are_read_again(rows: list[tuple[Any, ...]]) -> None:
    values = pa.array([dict(zip(WRITTEN.names, row, strict=True)) for row in rows], pa.struct(list(WRITTEN)))
    texts = [text.encode() for text in csv_texts(values).to_pylist()]
    decoded = CsvDecoder(WRITTEN, PLAIN).decode(texts)
    assert decoded.reasons == {}
    assert decoded.columns.to_pylist() == values.to_pylist()


def test_written_row_is_that_of_apache_commons() -> None:
    values = pa.array(
        [{"s": "-a", "n": -1, "d": 0.1, "t": "b c"}, {"s": "a", "n": None, "d": 1e10, "t": " b"}, None],
        pa.struct(list(WRITTEN)),
    )
    assert csv_texts(values).to_pylist() == ['"-a",-1,0.1,b c', 'a,,1.0E10," b"', None]
