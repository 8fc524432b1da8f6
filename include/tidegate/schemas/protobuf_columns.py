"""Columns out of Protobuf's messages: what each field is in Arrow, as far as a pipeline can hold it."""

from __future__ import annotations

import pyarrow as pa

from tidegate.schemas.faults import SchemaFault
from tidegate.schemas.protobuf import ProtoField, ProtoSchema

_SCALARS = {
    "double": pa.float64(),
    "float": pa.float32(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), pa.int32()),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), pa.int64()),
    **dict.fromkeys(("uint64", "fixed64"), pa.decimal128(20, 0)),
}
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages of the one field `value`: a value that can be null."""


def proto_columns(schema: ProtoSchema, message: str) -> pa.Schema:
    """A column for each field of a message. Raises SchemaFault where one cannot be a column."""
    fields = schema.message(message).fields
    if not fields:
        raise SchemaFault(f"the message `{message}` has no fields")
    around = (message,)
    return pa.schema([(field.name, _of_field(schema, field, around, field.name)) for field in fields])


def _of_field(schema: ProtoSchema, field: ProtoField, around: tuple[str, ...], path: str) -> pa.DataType:
    if field.kind == "message" and schema.messages[field.type].is_entry:
        value = schema.messages[field.type].fields[1]
        return pa.map_(pa.string(), _of_value(schema, value, around, f"{path}[...]"))
    if field.is_repeated:
        return pa.list_(_of_value(schema, field, around, f"{path}[...]"))
    return _of_value(schema, field, around, path)


def _of_value(schema: ProtoSchema, field: ProtoField, around: tuple[str, ...], path: str) -> pa.DataType:
    if field.kind == "group":
        raise SchemaFault(f"`{path}` is a group")
    if field.kind != "message":
        return _SCALARS[field.kind]
    if field.type == TIMESTAMP:
        return pa.timestamp("us", "UTC")
    fields = schema.messages[field.type].fields
    if field.type in WRAPPERS:
        return _SCALARS[fields[0].kind]
    if field.type in around:
        raise SchemaFault(f"`{path}` has itself inside of it, without an end")
    if not fields:
        raise SchemaFault(f"`{path}` is a message without fields")
    inner = (*around, field.type)
    return pa.struct(
        [(field.name, _of_field(schema, field, inner, f"{path}.{field.name}")) for field in fields]
    )
