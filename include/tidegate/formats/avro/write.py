"""Write emissions as Avro: the schema of columns, and the bytes of whole columns by any schema that has a
field for each of them.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.formats.avro.schema import NO_DEFAULT, AvroType, arrow_type
from tidegate.formats.binary import (
    Write,
    entry_lists,
    fractions,
    integer_values,
    joined,
    lengths_of,
    list_sizes,
    of_present,
    per_list,
    required,
    texts,
    unscaled,
    varint,
    varints,
    zigzag,
)
from tidegate.formats.schemas import SchemaFault, Unwritable
from tidegate.kernel.equality import widens

_END = b"\x00"
_MILLIS = ("timestamp-millis", "local-timestamp-millis")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SCALARS = {
    pa.bool_(): "boolean",
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32()), "int"),
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
}


def avro_writer(schema: AvroType, columns: pa.Schema) -> Write:
    """Return what writes structs of these columns as records of the schema; null (a deletion) stays null.

    Each column is written to the field of its name. A field without a column always gets its default.

    Raises SchemaFault if a column has no field, or one that does not hold all of its values, or if a field
    has neither a column nor a default. The function that is returned raises Unwritable for a value that the
    schema cannot express.
    """
    if schema.kind != "record":
        raise SchemaFault(f"the schema is `{schema.text}`, and only a record has fields for columns")
    return partial(of_present, write=_record_writer(schema, columns, "$"), absent=None)


def _value(type_: AvroType, column: pa.DataType, path: str) -> Write:
    if type_.kind == "union":
        return _union(type_, column, path)
    return required(_plain(type_, column, path), path)


def _union(type_: AvroType, column: pa.DataType, path: str) -> Write:
    """Write by the first branch that can hold the column; nulls by the branch `null`, if there is one."""
    branches = {number: branch for number, branch in enumerate(type_.types) if branch.kind != "null"}
    null = next((_long(number) for number in range(len(type_.types)) if number not in branches), None)
    for number, branch in branches.items():
        try:
            write = partial(_tagged, _long(number), _plain(branch, column, path))
        except SchemaFault:
            # the usual union of null and one type: its own fault says more than one about the union
            if len(branches) == 1:
                raise
            continue
        return required(write, path) if null is None else partial(of_present, write=write, absent=null)
    raise _misfit(type_, column, path)


def _plain(type_: AvroType, column: pa.DataType, path: str) -> Write:
    if type_.kind == "record" and pt.is_struct(column):
        return _record_writer(type_, column, path)
    if type_.kind == "array" and pt.is_list(column):
        return partial(_lists, _value(type_.items, column.value_type, f"{path}[...]"))
    if type_.kind == "map" and pt.is_map(column) and column.key_type == pa.string():
        return partial(_maps, _value(type_.items, column.item_type, f"{path}[...]"))
    is_scalar = type_.kind not in ("record", "array", "map", "union", "null")
    if not is_scalar or not widens(column, arrow_type(type_)):
        raise _misfit(type_, column, path)
    return _scalar(type_, arrow_type(type_), path)


def _misfit(type_: AvroType, column: pa.DataType, path: str) -> SchemaFault:
    return SchemaFault(f"`{path}` is a column of type `{column}`, which a field `{type_.text}` does not hold")


def _record_writer(type_: AvroType, columns: Iterable[pa.Field], path: str) -> Write:
    by_name = {column.name: (place, column.type) for place, column in enumerate(columns)}
    extra = next((name for name in by_name if name not in {field.name for field in type_.fields}), None)
    if extra is not None:
        raise SchemaFault(f"the column `{path}.{extra}` has no field in the record `{type_.name}`")
    parts: list[tuple[int, Write] | bytes] = []
    for field in type_.fields:
        inner = f"{path}.{field.name}"
        if field.name in by_name:
            place, column = by_name[field.name]
            parts.append((place, _value(field.type, column, inner)))
        # Avro has no optional fields: every field of the schema is in each record
        elif field.default is NO_DEFAULT:
            raise SchemaFault(f"the field `{inner}` has neither a column nor a default")
        else:
            parts.append(encoded_value(field.type, field.default, inner))

    def write(values: pa.StructArray) -> pa.BinaryArray:
        fields = values.flatten()
        pieces = (part if isinstance(part, bytes) else part[1](fields[part[0]]) for part in parts)
        return joined(*pieces, b"")

    return write


def _scalar(type_: AvroType, target: pa.DataType, path: str) -> Write:
    if type_.kind == "boolean":
        return _booleans
    if type_.kind == "enum":
        return partial(_symbols, type_, path)
    if pt.is_decimal(target):
        return partial(_decimals, type_, target, path)
    if pt.is_floating(target):
        return lambda values: fractions(values.cast(target))
    if type_.kind == "fixed":
        return partial(_fixed, type_.size, path)
    if pt.is_string(target) or pt.is_binary(target):
        return lambda values: _with_length(texts(values))
    return partial(_instants, path) if type_.logical in _MILLIS else _longs


def _longs(values: pa.Array) -> pa.BinaryArray:
    return varints(zigzag(integer_values(values)))


def _booleans(values: pa.BooleanArray) -> pa.BinaryArray:
    return pc.if_else(values, pa.scalar(b"\x01", pa.binary()), pa.scalar(b"\x00", pa.binary()))


def _instants(path: str, values: pa.TimestampArray) -> pa.BinaryArray:
    millis, rest = np.divmod(integer_values(values), 1_000)
    if rest.any():
        raise Unwritable(f"`{path}` has an instant between two milliseconds")
    return varints(zigzag(millis))


def _symbols(type_: AvroType, path: str, values: pa.StringArray) -> pa.BinaryArray:
    numbers = pc.index_in(values, value_set=pa.array(type_.symbols, pa.string()))
    if numbers.null_count:
        unknown = values.filter(numbers.is_null())[0].as_py()
        raise Unwritable(f"`{path}` is {unknown[:60]!r}, which the enum `{type_.name}` does not have")
    return _longs(numbers)


def _fixed(size: int, path: str, values: pa.BinaryArray) -> pa.BinaryArray:
    if (lengths_of(values) != size).any():
        raise Unwritable(f"`{path}` does not have the {size} bytes that the schema requires")
    return values


def _decimals(type_: AvroType, target: pa.DataType, path: str, values: pa.Array) -> pa.BinaryArray:
    """Encode unscaled decimals as two's complement: `fixed` in its size, `bytes` the shortest."""
    numbers = unscaled(values.cast(target))
    if type_.kind == "bytes":
        return _with_length(
            pa.array([number.to_bytes(_size(number), "big", signed=True) for number in numbers], pa.binary())
        )
    try:
        return pa.array([number.to_bytes(type_.size, "big", signed=True) for number in numbers], pa.binary())
    except OverflowError:
        raise Unwritable(f"`{path}` has a number that needs more than {type_.size} bytes") from None


def _size(number: int) -> int:
    return (8 + (number + (number < 0)).bit_length()) // 8


def _tagged(branch: bytes, write: Write, values: pa.Array) -> pa.BinaryArray:
    return joined(branch, write(values))


def _with_length(pieces: pa.BinaryArray) -> pa.BinaryArray:
    return joined(varints(zigzag(lengths_of(pieces))), pieces)


def _maps(write: Write, values: pa.MapArray) -> pa.BinaryArray:
    lists = entry_lists(values)
    keys, items = lists.flatten().flatten()
    # keys have no branch and no null: the specification makes them strings
    return _blocks(lists, joined(_with_length(texts(keys)), write(items)))


def _lists(write: Write, values: pa.ListArray) -> pa.BinaryArray:
    return _blocks(values, write(values.flatten()))


def _blocks(lists: pa.ListArray, items: pa.BinaryArray) -> pa.BinaryArray:
    """Write all items of a list as one block: their number, then the items. An empty block ends the list."""
    sizes = list_sizes(lists)
    block = joined(varints(zigzag(sizes)), per_list(lists, items), _END)
    return pc.if_else(pa.array(sizes > 0), block, pa.scalar(_END, pa.binary()))


def avro_schema(name: str, namespace: str, columns: pa.Schema) -> str:
    """Return the schema of records with these columns, as JSON text.

    Raises Unwritable if a column's name is not a valid name in Avro.
    """
    record = _derived_record(name, columns)
    return json.dumps({"type": "record", "name": name, "namespace": namespace, "fields": record["fields"]})


def _derived_record(name: str, columns: Any) -> dict[str, Any]:
    fields = []
    for column in columns:
        if not _NAME.fullmatch(column.name):
            raise Unwritable(
                f"`{column.name}` is not a valid name in Avro: use letters, digits and _, and no digit first"
            )
        type_ = ["null", _derived_type(column.type, f"{name}_{column.name}")]
        fields.append({"name": column.name, "type": type_, "default": None})
    return {"type": "record", "name": name, "fields": fields}


def _derived_type(type_: pa.DataType, name: str) -> Any:
    """Return a column's Avro type; `name` is for a record, whose name Avro requires to be unique."""
    if pt.is_struct(type_):
        return _derived_record(name, type_)
    if pt.is_map(type_):
        return {"type": "map", "values": ["null", _derived_type(type_.item_type, f"{name}_item")]}
    if pt.is_list(type_):
        return {"type": "array", "items": ["null", _derived_type(type_.value_type, f"{name}_item")]}
    if pt.is_decimal(type_):
        return {"type": "bytes", "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    if pt.is_date(type_):
        return {"type": "int", "logicalType": "date"}
    if pt.is_timestamp(type_):
        kind = "timestamp-micros" if type_.tz else "local-timestamp-micros"
        return {"type": "long", "logicalType": kind}
    return _SCALARS[type_]


def encoded_value(type_: AvroType, value: Any, path: str) -> bytes:
    r"""Return the value in Avro's binary encoding. `path` names the value in errors.

    Raises SchemaFault if the value does not have the type.

    Example::

        encoded_value(AvroType("int"), 3, "$.n")  # b"\x06"
    """
    try:
        return _encoded(type_, value)
    except (TypeError, ValueError, KeyError, AttributeError, struct.error, OverflowError, RecursionError):
        raise SchemaFault(f"`{path}` is {json.dumps(value)[:60]}, and no `{type_.text}`") from None


def _encoded(type_: AvroType, value: Any) -> bytes:
    """Return the encoded value. Raises one of Python's own errors if the value does not have the type."""
    if type_.kind == "union":
        return _of_union(type_, value)
    if type_.kind == "record":
        return b"".join(_encoded(field.type, _of_field(value, field)) for field in type_.fields)
    if type_.kind in ("array", "map"):
        return _of_items(type_, value)
    if type_.kind == "enum":
        return _long(type_.symbols.index(value))
    if type_.kind == "null":
        _require(value is None)
        return b""
    if type_.kind == "boolean":
        _require(isinstance(value, bool))
        return bytes([value])
    if type_.kind in ("int", "long"):
        bits = 31 if type_.kind == "int" else 63
        _require(type(value) is int and -(2**bits) <= value < 2**bits)
        return _long(value)
    if type_.kind in ("float", "double"):
        _require(
            (isinstance(value, (int, float)) and not isinstance(value, bool))
            or value in ("NaN", "Infinity", "-Infinity")
        )
        return struct.pack("<f" if type_.kind == "float" else "<d", float(value))
    # in a default, bytes are a text with one character from U+0000 to U+00FF per byte (Avro, "Complex Types")
    data: bytes = value.encode("utf-8" if type_.kind == "string" else "latin-1")
    _require(type_.kind != "fixed" or len(data) == type_.size)
    return data if type_.kind == "fixed" else _long(len(data)) + data


def _of_union(type_: AvroType, value: Any) -> bytes:
    """Return the value as the first branch of the union that it fits."""
    for number, branch in enumerate(type_.types):
        try:
            return _long(number) + _encoded(branch, value)
        except (TypeError, ValueError, KeyError, AttributeError, struct.error, OverflowError):
            continue
    raise ValueError(value)


def _of_field(value: Any, field: Any) -> Any:
    value_or_default = value.get(field.name, field.default)
    _require(value_or_default is not NO_DEFAULT)
    return value_or_default


def _of_items(type_: AvroType, value: Any) -> bytes:
    if type_.kind == "array":
        _require(isinstance(value, list))
        items = [_encoded(type_.items, item) for item in value]
    else:
        items = [
            _encoded(AvroType("string"), name) + _encoded(type_.items, item) for name, item in value.items()
        ]
    # one block with all items; the count 0 ends an array or map
    return (_long(len(items)) + b"".join(items) if items else b"") + _long(0)


def _long(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))  # zigzag


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError
