"""Columns out of Avro's types: what each is in Arrow, as far as a pipeline can hold it."""

from __future__ import annotations

import pyarrow as pa

from tidegate.schemas.avro import AvroType
from tidegate.schemas.faults import SchemaFault

_SCALARS = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL = {
    "uuid": pa.string(),
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
"""Without the times of day: Spark has no type for them, so they are the numbers that they are."""

_MOST_DIGITS = 38


def avro_columns(schema: AvroType) -> pa.Schema:
    """A column for each field of a record. Raises SchemaFault where one cannot be a column."""
    if schema.kind != "record":
        raise SchemaFault(f"the schema is `{schema.text}`, and only a record has columns")
    return pa.schema(
        [pa.field(field.name, _arrow_type(field.type, (schema,), field.name)) for field in schema.fields]
    )


def arrow_type(type_: AvroType) -> pa.DataType:
    """What it is in Arrow. Raises SchemaFault."""
    return _arrow_type(type_, (), "it")


def _arrow_type(type_: AvroType, around: tuple[AvroType, ...], path: str) -> pa.DataType:
    """`around`: the records that it stands in; `path` is what a fault calls it."""
    if type_ in around:
        raise SchemaFault(f"`{path}` has itself inside of it, without an end")
    if type_.kind == "union":
        return _union(type_, around, path)
    if type_.kind == "null":
        raise SchemaFault(f"`{path}` is null and nothing else")
    if type_.kind == "record":
        if not type_.fields:
            raise SchemaFault(f"`{path}` is a record without fields")
        inner = (*around, type_)
        parts = [
            (field.name, _arrow_type(field.type, inner, f"{path}.{field.name}")) for field in type_.fields
        ]
        return pa.struct([pa.field(name, part) for name, part in parts])
    if type_.kind == "array":
        return pa.list_(_arrow_type(type_.items, around, f"{path}[...]"))
    if type_.kind == "map":
        return pa.map_(pa.string(), _arrow_type(type_.items, around, f"{path}[...]"))
    if type_.logical == "decimal" and type_.precision <= _MOST_DIGITS:
        return pa.decimal128(type_.precision, type_.scale)
    return _LOGICAL.get(type_.logical or "", _SCALARS[type_.kind])


def _union(type_: AvroType, around: tuple[AvroType, ...], path: str) -> pa.DataType:
    parts = [_arrow_type(branch, around, path) for branch in type_.types if branch.kind != "null"]
    if not parts or any(part != parts[0] for part in parts):
        raise SchemaFault(f"`{path}` is the union {type_.text}, which has no one type")
    return parts[0]
