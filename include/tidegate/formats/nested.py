"""Fields of structs, which a path such as `device.id` names."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc


def array_at(columns: Mapping[str, pa.Array] | pa.RecordBatch, path: str) -> pa.Array:
    """Return the column, or the field of a column's struct; null where the struct is null.

    Example: `array_at({"device": structs}, "device.id")`
    """
    name, *fields = path.split(".")
    return pc.struct_field(columns[name], fields) if fields else columns[name]


def type_at(schema: pa.Schema | pa.StructType, path: str) -> pa.DataType:
    """Return the type of the column or field. Raises KeyError if it does not exist."""
    name, *fields = path.split(".")
    type_ = schema.field(name).type
    for field in fields:
        type_ = type_.field(field).type
    return type_


def with_array_at(columns: Mapping[str, pa.Array], path: str, array: pa.Array) -> dict[str, pa.Array]:
    """Return the columns with another array in place of a column or of a field of its struct."""
    name, *fields = path.split(".")
    return {**columns, name: _replaced(columns[name], fields, array)}


def _replaced(column: pa.Array, fields: list[str], array: pa.Array) -> pa.Array:
    if not fields:
        return array
    names = [field.name for field in column.type]
    parts = {name: pc.struct_field(column, name) for name in names}
    parts[fields[0]] = _replaced(parts[fields[0]], fields[1:], array)
    return pa.StructArray.from_arrays(list(parts.values()), names, mask=column.is_null())


def type_with(type_: pa.DataType, fields: list[str], inner: pa.DataType) -> pa.DataType:
    """Return the type with another one in place of the field that the path `fields` names."""
    if not fields:
        return inner
    return pa.struct(
        [
            part.with_type(type_with(part.type, fields[1:], inner)) if part.name == fields[0] else part
            for part in type_
        ]
    )
