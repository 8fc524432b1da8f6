"""JSON texts of columns: those that `json_text.encoder` gives value by value."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.json_text import encoder, json_texts

texts = st.text(st.characters(codec="utf-8") | st.sampled_from('"\\\x00\x1f\n'), max_size=6)
moments = st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31))
fractions = st.one_of(
    st.floats(),
    st.integers(-(10**8), 10**8).map(float),
    st.sampled_from([-0.0, 1e-3, 9.99e-4, 1e7, 9999999.0, math.inf, math.nan]),
)
SCALARS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): fractions,
    pa.float32(): fractions.filter(lambda number: not 3.4e38 < abs(number) < math.inf),
    pa.decimal128(12, 9): st.decimals(-999, 999, places=9),
    pa.decimal128(38, 0): st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    pa.string(): texts,
    pa.binary(): st.binary(max_size=5),
    pa.date32(): st.dates(date(1, 1, 1)),
    pa.timestamp("us", "UTC"): moments.map(lambda moment: moment.replace(tzinfo=timezone.utc)),
    pa.timestamp("us"): moments,
}
names = st.lists(st.sampled_from(["a", "Größe", "odd name", "b"]), min_size=1, max_size=3, unique=True)


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    keys = st.sampled_from([pa.string(), pa.int64(), pa.bool_()])
    return st.one_of(
        inner.map(pa.list_),
        st.builds(pa.map_, keys, inner),
        names.flatmap(lambda fields: st.tuples(*[st.tuples(st.just(name), inner) for name in fields])).map(
            lambda fields: pa.struct(list(fields))
        ),
    )


types = st.recursive(st.sampled_from(list(SCALARS)), nested, max_leaves=4)


def values_of(type_: pa.DataType) -> st.SearchStrategy[Any]:
    """Values as `pa.array` takes them, and null."""
    if pa.types.is_struct(type_):
        plain: Any = st.fixed_dictionaries({field.name: values_of(field.type) for field in type_})
    elif pa.types.is_map(type_):
        entries = st.tuples(SCALARS[type_.key_type], values_of(type_.item_type))
        plain = st.lists(entries, max_size=3, unique_by=lambda entry: entry[0])
    elif pa.types.is_list(type_):
        plain = st.lists(values_of(type_.value_type), max_size=3)
    else:
        plain = SCALARS[type_]
    return st.none() | plain


def one_by_one(values: pa.Array) -> list[str | None]:
    encode = encoder(values.type)
    return [None if value is None else encode(value) for value in values.to_pylist()]


columns = types.flatmap(
    lambda type_: st.lists(values_of(type_), max_size=6).map(lambda values: pa.array(values, type_))
)


@given(columns, st.integers(0, 6), st.integers(0, 6))
def test_column_texts_equal_the_texts_of_values(values: pa.Array, start: int, length: int) -> None:
    part = values.slice(min(start, len(values)), length)
    assert json_texts(part).to_pylist() == one_by_one(part)


@given(st.lists(st.none() | st.floats(1e-4, 1e8) | st.integers(1, 10**9).map(float), max_size=20))
def test_fractions_have_the_digits_that_they_have_alone(numbers: list[float | None]) -> None:
    for type_ in (pa.float64(), pa.float32()):
        values = pa.array(numbers, type_)
        assert json_texts(values).to_pylist() == one_by_one(values)


def test_what_stands_below_a_null_is_not_read() -> None:
    """Beside a null there can be anything, even a day that has no text."""
    days = pa.array([-(2**31), 0], pa.int32()).cast(pa.date32())
    rows = pa.StructArray.from_arrays([days], ["day"], mask=pa.array([True, False]))
    assert json_texts(rows).to_pylist() == [None, '{"day":"1970-01-01"}']


@pytest.mark.parametrize("type_", SCALARS, ids=str)
def test_no_values_have_no_texts(type_: pa.DataType) -> None:
    assert json_texts(pa.array([], type_)) == pa.array([], pa.string())


def test_empty_maps_without_offsets_of_keys_are_written() -> None:
    keys = pa.StringArray.from_buffers(0, pa.py_buffer(b""), pa.py_buffer(b""))
    maps = pa.MapArray.from_arrays([0, 0], keys, pa.array([], pa.int64()))
    assert json_texts(maps).to_pylist() == ["{}"]
