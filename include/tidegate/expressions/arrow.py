"""Conversion between Arrow's types and the types of expressions."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from tidegate.expressions.types import ANY, Type, decimal

_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "tinyint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_date32, "date"),
    # before the next row: a timestamp without a zone is Spark's `timestamp_ntz`
    (lambda type_: pa.types.is_timestamp(type_) and type_.tz is not None, "timestamp"),
    (pa.types.is_timestamp, "timestamp_ntz"),
)


def type_of(arrow: pa.DataType) -> Type:
    """Return the type in Spark's normal form; ANY for an Arrow type that no column can have.

    >>> type_of(pa.list_(pa.int64())).text
    'array<bigint>'
    """
    if pa.types.is_decimal(arrow):
        return decimal(arrow.precision, arrow.scale)
    if pa.types.is_struct(arrow):
        fields = tuple((field.name, type_of(field.type)) for field in arrow)
        return Type(f"struct<{','.join(f'{name}:{type_.text}' for name, type_ in fields)}>", "struct", fields)
    if pa.types.is_map(arrow):
        return _nested("map", type_of(arrow.key_type), type_of(arrow.item_type))
    if pa.types.is_list(arrow):
        return _nested("array", type_of(arrow.value_type))
    return next((Type(kind, kind) for is_kind, kind in _SCALARS if is_kind(arrow)), ANY)


_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    # Spark's timestamps are microseconds since 1970; a zone only changes how they are shown.
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_type(type_: Type) -> pa.DataType:
    """Return the Arrow type of a type: the inverse of `type_of`. Raises KeyError for ANY.

    >>> arrow_type(decimal(10, 2))
    Decimal128Type(decimal128(10, 2))
    """
    if type_.kind == "decimal":
        return pa.decimal128(*map(int, re.findall(r"[0-9]+", type_.text)))
    if type_.kind == "struct":
        return pa.struct([pa.field(name, arrow_type(part)) for name, part in type_.fields])
    if type_.kind == "map":
        return pa.map_(*map(arrow_type, type_.parts))
    if type_.kind == "array":
        return pa.list_(arrow_type(type_.parts[0]))
    return _ARROW[type_.kind]


def _nested(kind: str, *parts: Type) -> Type:
    return Type(f"{kind}<{','.join(part.text for part in parts)}>", kind, parts=parts)
