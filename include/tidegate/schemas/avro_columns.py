"""Columns of Avro's types: the Arrow type of each type that a pipeline can store."""

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
"""`time-millis` and `time-micros` are missing: Spark has no type for a time of day, so their numbers stay
numbers.
"""

_MAX_DIGITS = 38  # of Spark's decimals, and of Arrow's decimal128


def avro_columns(schema: AvroType) -> pa.Schema:
    """Return a column for each field of a record. Raises SchemaFault if `schema` is not a record, or if a
    field cannot be a column: it is only null, a union of several types, an empty record, or contains itself.
    """
    if schema.kind != "record":
        raise SchemaFault(f"the schema is `{schema.text}`, and only a record has columns")
    return pa.schema(
        [pa.field(field.name, _arrow_type(field.type, (schema,), field.name)) for field in schema.fields]
    )


def arrow_type(type_: AvroType) -> pa.DataType:
    """Return the Arrow type of a type, which messages call "it". Raises SchemaFault if there is none."""
    return _arrow_type(type_, (), "it")


def _arrow_type(type_: AvroType, parents: tuple[AvroType, ...], path: str) -> pa.DataType:
    """Return the Arrow type. `parents` are the records around `type_`; `path` is its name in a message."""
    if type_ in parents:
        raise SchemaFault(f"`{path}` has itself inside of it, without an end")
    if type_.kind == "union":
        return _union(type_, parents, path)
    if type_.kind == "null":
        raise SchemaFault(f"`{path}` is null and nothing else")
    if type_.kind == "record":
        if not type_.fields:
            raise SchemaFault(f"`{path}` is a record without fields")
        inner = (*parents, type_)
        parts = [
            (field.name, _arrow_type(field.type, inner, f"{path}.{field.name}")) for field in type_.fields
        ]
        return pa.struct([pa.field(name, part) for name, part in parts])
    if type_.kind == "array":
        return pa.list_(_arrow_type(type_.items, parents, f"{path}[...]"))
    if type_.kind == "map":
        return pa.map_(pa.string(), _arrow_type(type_.items, parents, f"{path}[...]"))
    # A decimal with more digits than Spark has stays the bytes that it is in Avro.
    if type_.logical == "decimal" and type_.precision <= _MAX_DIGITS:
        return pa.decimal128(type_.precision, type_.scale)
    return _LOGICAL.get(type_.logical or "", _SCALARS[type_.kind])


def _union(type_: AvroType, parents: tuple[AvroType, ...], path: str) -> pa.DataType:
    parts = [_arrow_type(branch, parents, path) for branch in type_.types if branch.kind != "null"]
    if not parts or any(part != parts[0] for part in parts):
        raise SchemaFault(f"`{path}` is the union {type_.text}, which has no one type")
    return parts[0]
