"""Columns of Protobuf's messages: the Arrow type of each field that a pipeline can store."""

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
    # Spark has no unsigned types: 32 bits fit into a bigint, 64 bits need 20 digits.
    **dict.fromkeys(("uint64", "fixed64"), pa.decimal128(20, 0)),
}
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Protobuf's wrapper messages, with the one field `value`: each becomes a nullable column of that field's
type.
"""


def proto_columns(schema: ProtoSchema, message: str) -> pa.Schema:
    """Return a column for each field of the message with the full name `message`.

    Raises SchemaFault if there is no such message, if it or a nested one has no fields, or if a field is a
    group or contains itself.
    """
    fields = schema.message(message).fields
    if not fields:
        raise SchemaFault(f"the message `{message}` has no fields")
    parents = (message,)
    return pa.schema([(field.name, _field_type(schema, field, parents, field.name)) for field in fields])


def _field_type(schema: ProtoSchema, field: ProtoField, parents: tuple[str, ...], path: str) -> pa.DataType:
    if field.kind == "message" and schema.messages[field.type].is_entry:
        value = schema.messages[field.type].fields[1]
        return pa.map_(pa.string(), _value_type(schema, value, parents, f"{path}[...]"))
    if field.is_repeated:
        return pa.list_(_value_type(schema, field, parents, f"{path}[...]"))
    return _value_type(schema, field, parents, path)


def _value_type(schema: ProtoSchema, field: ProtoField, parents: tuple[str, ...], path: str) -> pa.DataType:
    if field.kind == "group":
        raise SchemaFault(f"`{path}` is a group")
    if field.kind != "message":
        return _SCALARS[field.kind]
    if field.type == TIMESTAMP:
        return pa.timestamp("us", "UTC")
    fields = schema.messages[field.type].fields
    if field.type in WRAPPERS:
        return _SCALARS[fields[0].kind]
    if field.type in parents:
        raise SchemaFault(f"`{path}` has itself inside of it, without an end")
    if not fields:
        raise SchemaFault(f"`{path}` is a message without fields")
    # only the messages around this one: a message may be used in two places
    inner = (*parents, field.type)
    return pa.struct(
        [(field.name, _field_type(schema, field, inner, f"{path}.{field.name}")) for field in fields]
    )
