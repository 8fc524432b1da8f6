"""Emissions as Avro: the schema that follows from their columns, and the bytes of whole columns.

Every column, item and field may be null, and has null as its default: what is added later is read by who
knows it, and passed over by who does not.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.formats.binary_write import (
    entry_lists,
    fractions,
    integers,
    joined,
    lengths_of,
    list_sizes,
    per_list,
    texts,
    varints,
    zigzag,
)
from tidegate.formats.schemas import Unwritable

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NULL, _VALUE = b"\x00", b"\x02"
"""The branches of a union of null and a type, by their numbers."""
_END = b"\x00"
_SCALARS = {
    pa.bool_(): "boolean",
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32()), "int"),
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
}


def avro_schema(name: str, namespace: str, columns: pa.Schema) -> str:
    """The schema of records with these columns, as JSON text. Raises Unwritable for a name that Avro does not
    have.
    """
    record = _record(name, columns)
    return json.dumps({"type": "record", "name": name, "namespace": namespace, "fields": record["fields"]})


def avro_bytes(values: pa.StructArray) -> pa.BinaryArray:
    """The bytes of each value by the schema of its columns; null for null."""
    records = _fields(values)
    return pc.if_else(values.is_valid(), records, pa.scalar(None, pa.binary()))


def _record(name: str, columns: Any) -> dict[str, Any]:
    fields = []
    for column in columns:
        if not _NAME.fullmatch(column.name):
            raise Unwritable(
                f"`{column.name}` is no name that Avro has: letters, digits and _, no digit first"
            )
        type_ = ["null", _type(column.type, f"{name}_{column.name}")]
        fields.append({"name": column.name, "type": type_, "default": None})
    return {"type": "record", "name": name, "fields": fields}


def _type(type_: pa.DataType, name: str) -> Any:
    """`name`: of a record, if it is one; each has one of its own."""
    if pt.is_struct(type_):
        return _record(name, type_)
    if pt.is_map(type_):
        return {"type": "map", "values": ["null", _type(type_.item_type, f"{name}_item")]}
    if pt.is_list(type_):
        return {"type": "array", "items": ["null", _type(type_.value_type, f"{name}_item")]}
    if pt.is_decimal(type_):
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": type_.precision,
            "scale": type_.scale,
        }
    if pt.is_date(type_):
        return {"type": "int", "logicalType": "date"}
    if pt.is_timestamp(type_):
        kind = "timestamp-micros" if type_.tz else "local-timestamp-micros"
        return {"type": "long", "logicalType": kind}
    return _SCALARS[type_]


def _nullable(values: pa.Array) -> pa.BinaryArray:
    return pc.if_else(values.is_valid(), joined(_VALUE, _plain(values)), pa.scalar(_NULL, pa.binary()))


def _plain(values: pa.Array) -> pa.BinaryArray:
    type_ = values.type
    if pt.is_boolean(type_):
        return pc.if_else(values, pa.scalar(b"\x01", pa.binary()), pa.scalar(b"\x00", pa.binary()))
    if pt.is_struct(type_):
        return _fields(values)
    if pt.is_map(type_):
        lists = entry_lists(values)
        keys, items = lists.flatten().flatten()
        return _blocks(lists, joined(_with_length(texts(keys)), _nullable(items)))
    if pt.is_list(type_):
        return _blocks(values, _nullable(values.flatten()))
    if pt.is_floating(type_):
        return fractions(values)
    if pt.is_decimal(type_):
        return _with_length(pa.array([_unscaled(value, type_) for value in values.to_pylist()], pa.binary()))
    if pt.is_string(type_) or pt.is_binary(type_):
        return _with_length(texts(values))
    return varints(zigzag(integers(values)))


def _fields(values: pa.StructArray) -> pa.BinaryArray:
    return joined(*map(_nullable, values.flatten()), b"")


def _with_length(pieces: pa.BinaryArray) -> pa.BinaryArray:
    return joined(varints(zigzag(lengths_of(pieces))), pieces)


def _blocks(lists: pa.ListArray, items: pa.BinaryArray) -> pa.BinaryArray:
    """All items of a list are one block: how many, then each; a block of none is the end."""
    sizes = list_sizes(lists)
    block = joined(varints(zigzag(sizes)), per_list(lists, items), _END)
    return pc.if_else(pa.array(sizes > 0), block, pa.scalar(_END, pa.binary()))


def _unscaled(value: Any, type_: pa.DataType) -> bytes | None:
    """A decimal without its point, as two's complement in as few bytes as will do."""
    if value is None:
        return None
    number = int(value.scaleb(type_.scale))
    return number.to_bytes((8 + (number + (number < 0)).bit_length()) // 8, "big", signed=True)
