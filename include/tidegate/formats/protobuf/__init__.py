"""`format: protobuf`: each value is one message, which is read into columns by a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.types as pt

from tidegate.formats import binary
from tidegate.formats.binary import Write
from tidegate.formats.confluent import Subdecoder, schemaful_decoder
from tidegate.formats.decoded import Decoded, Decoder, malformed
from tidegate.formats.protobuf.derived import DERIVED, derived_schema, numbers_of, protobuf_schema
from tidegate.formats.protobuf.fields import is_number
from tidegate.formats.protobuf.read import FieldPlan, MessagePlan, read_messages
from tidegate.formats.protobuf.schema import (
    TIMESTAMP,
    WRAPPERS,
    ProtoField,
    ProtoMessage,
    ProtoSchema,
    imported_texts,
    pin_protobuf,
    pinned_protobuf,
    proto_columns,
    proto_from_json,
    proto_schema,
    proto_to_json,
    read_protobuf,
)
from tidegate.formats.protobuf.write import message_indexes, protobuf_writer
from tidegate.formats.registry import Format, MessageSchemas, SchemaLanguage
from tidegate.formats.schemas import (
    PinnedSchema,
    SchemaFault,
    SinkSchema,
    SourceSchemas,
    id_prefix,
    schema_text,
)
from tidegate.formats.wire import Cursor, Wire

_TIME = pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])


class ProtobufDecoder:
    """Decodes messages to the columns of `schema`.

    Args:
        message: The full name of the message.
        lenient: A column that the message does not have is null; else it is an error.

    Raises SchemaFault if the message and the columns do not fit together.
    """

    def __init__(self, schema: pa.Schema, proto: ProtoSchema, message: str, lenient: bool = False) -> None:
        self.schema = schema
        self._type = pa.struct(list(schema))
        self._plan = plan_message(proto, message, self._type, lenient)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode the columns of each value. A value that is not such a message is unusable."""
        wire, cursor = Wire.from_values(values)
        columns = self.read(wire, cursor)
        reasons = {
            row: malformed(reason) for row, reason in sorted(wire.faults.items()) if values[row] is not None
        }
        return Decoded(binary.usable_structs(columns, self._type, values, reasons), reasons)

    def read(self, wire: Wire, cursor: Cursor) -> list[pa.Array]:
        """Return the columns of the messages at the cursor's positions. Faults are recorded in the wire."""
        return read_messages(wire, cursor, self._plan, "$")


def plan_message(schema: ProtoSchema, name: str, type_: pa.StructType, lenient: bool) -> MessagePlan:
    """Return the plan that reads a message into the columns of a struct.

    Args:
        name: The full name of the message.
        lenient: A column that the message does not have is null; else it is an error.

    Raises SchemaFault if a field cannot have the type of its column.
    """
    return _Planner(schema, lenient).struct(schema.message(name), type_, "$")


class _Planner:
    def __init__(self, schema: ProtoSchema, lenient: bool) -> None:
        self._schema = schema
        self._lenient = lenient

    def struct(self, message: ProtoMessage, type_: pa.StructType, path: str) -> MessagePlan:
        """Return a plan with a field per column, and those that are only read to affect others.

        Raises SchemaFault if a column is not in the schema, unless the plan is lenient.
        """
        by_name = {field.name: field for field in message.fields}
        places = {column.name: place for place, column in enumerate(type_)}
        unknown = [name for name in places if name not in by_name]
        if unknown and not self._lenient:
            raise SchemaFault(f"`{path}.{unknown[0]}` is not in the schema")
        oneofs = {field.oneof for field in message.fields if field.name in places} - {""}
        # also fields without a column: the last member of a oneof clears the others, and a missing required
        # field is a fault
        fields = [
            self.field(message, field, places.get(field.name), type_, path)
            for field in message.fields
            if field.name in places or field.oneof in oneofs or field.presence == "required"
        ]
        missing = tuple(places[name] for name in unknown)
        return MessagePlan(tuple(fields), type_, missing=missing)

    def field(
        self, message: ProtoMessage, field: ProtoField, place: int | None, type_: pa.StructType, path: str
    ) -> FieldPlan:
        path = f"{path}.{field.name}"
        rivals = tuple(
            other.number
            for other in message.fields
            if field.oneof == other.oneof != "" and other is not field
        )
        if place is None:
            return FieldPlan(field, None, pa.null(), path, closed=self.closed(field), rivals=rivals)
        column_type = type_.field(place).type
        return self.column(field, place, column_type, path, rivals)

    def column(
        self, field: ProtoField, place: int, type_: pa.DataType, path: str, rivals: tuple[int, ...] = ()
    ) -> FieldPlan:
        inner = None
        value = type_
        if field.kind == "message" and self._schema.messages[field.type].is_entry:
            if not pt.is_map(type_) or not pt.is_string(type_.key_type):
                raise _misfit(field, type_, path)
            return FieldPlan(field, place, type_, path, self.entry(field, type_, path))
        if field.is_repeated:
            if not pt.is_list(type_):
                raise _misfit(field, type_, path)
            value = type_.value_type
            path = f"{path}[...]"
        if field.kind == "message":
            inner = self.message(field, value, path)
        elif not _fits(field, value):
            raise _misfit(field, value, path)
        enum = self._schema.enums[field.type] if field.kind == "enum" else None
        named = enum if pt.is_string(value) else None
        return FieldPlan(field, place, type_, path, inner, named, self.closed(field), rivals)

    def closed(self, field: ProtoField) -> tuple[int, ...] | None:
        """Return the numbers of a closed enum (proto2), the default first; None for another field."""
        enum = self._schema.enums[field.type] if field.kind == "enum" else None
        return tuple(number for number, _ in enum.names) if enum is not None and enum.is_closed else None

    def entry(self, field: ProtoField, type_: pa.MapType, path: str) -> MessagePlan:
        """Return the plan of a map's entry. Key and value have defaults if they are not written."""
        key, value = (
            ProtoField(part.name, part.number, part.kind, part.type)
            for part in self._schema.messages[field.type].fields
        )
        path = f"{path}[...]"
        plans = (self.column(key, 0, pa.string(), path), self.column(value, 1, type_.item_type, path))
        return MessagePlan(plans, type_, "entry")

    def message(self, field: ProtoField, type_: pa.DataType, path: str) -> MessagePlan:
        message = self._schema.messages[field.type]
        if pt.is_struct(type_):
            return self.struct(message, type_, path)
        if field.type == TIMESTAMP and pt.is_timestamp(type_) and type_.tz is not None:
            return MessagePlan(self.struct(message, _TIME, path).fields, type_, "timestamp")
        if field.type in WRAPPERS:
            value = pa.struct([("value", type_)])
            return MessagePlan(self.struct(message, value, path).fields, type_, "wrapper")
        raise _misfit(field, type_, path)


def _fits(field: ProtoField, type_: pa.DataType) -> bool:
    kind = field.kind
    if pt.is_string(type_):  # a map's keys can be numbers, and are text in the columns
        return kind in ("string", "enum") or (field.name == "key" and is_number(kind))
    if kind == "bool" or pt.is_boolean(type_):
        return kind == "bool" and pt.is_boolean(type_)
    if kind in ("float", "double"):
        return pt.is_float64(type_) or (kind == "float" and pt.is_float32(type_))
    if pt.is_decimal(type_):
        return kind in ("uint64", "fixed64")
    if pt.is_binary(type_):
        return kind == "bytes"
    return pt.is_integer(type_) and is_number(kind)


def _misfit(field: ProtoField, type_: pa.DataType, path: str) -> SchemaFault:
    what = f"{'repeated ' if field.is_repeated else ''}{field.type or field.kind}"
    return SchemaFault(f"`{path}` is `{what}`, which cannot be a column of type `{type_}`")


def _decoder(columns: pa.Schema, schemas: SourceSchemas, message: str | None = None) -> Decoder:
    reader = pinned_protobuf(schemas.reader) if schemas.reader else None
    return schemaful_decoder(
        columns,
        schemas,
        lambda schema: _file_decoder(columns, schema, message),
        partial(_writer_decoder, columns, reader, message),
        has_indexes=True,
    )


def _file_decoder(columns: pa.Schema, schema: PinnedSchema, message: str | None) -> ProtobufDecoder:
    return ProtobufDecoder(columns, pinned_protobuf(schema), message or "")


def _writer_decoder(
    columns: pa.Schema,
    reader: ProtoSchema | None,
    message: str | None,
    schema: PinnedSchema,
    indexes: tuple[int, ...],
) -> Subdecoder:
    """Return a decoder by the field numbers of the file, or else by those of the writer's message."""
    writer = pinned_protobuf(schema)
    name = writer.at(indexes)
    if name is None:
        raise SchemaFault(f"it has no message at {list(indexes)}")
    if message is not None and name != message:
        raise SchemaFault(f"it is a `{name}`, and not a `{message}`")
    # without a file, older writers lack columns that were added later: these are null
    return ProtobufDecoder(columns, reader or writer, name, lenient=reader is None)


def _message_schema(path: Path) -> SinkSchema:
    text = schema_text(path)
    imports = dict(imported_texts(path.parent, text))
    return SinkSchema(None, text, tuple(imports.items()), proto_to_json(proto_schema(text, imports)))


def _derived(name: str, namespace: str, columns: pa.Schema, previous: Callable[[], str]) -> SinkSchema:
    # Protobuf identifies fields by number: a field must keep the one that consumers know
    return SinkSchema(None, protobuf_schema(name, namespace, columns, numbers_of(previous())))


def _writer(schema: SinkSchema, columns: pa.Schema) -> tuple[bytes, Write]:
    if schema.compiled:
        compiled, message = proto_from_json(schema.compiled), schema.message
    else:
        compiled, message = derived_schema(columns, numbers_of(schema.text)), DERIVED
    indexes = b"" if schema.id is None else message_indexes(compiled, message)
    return id_prefix(schema) + indexes, protobuf_writer(compiled, message, columns)


_LANGUAGE = SchemaLanguage(
    "PROTOBUF",
    (".proto", ".desc"),
    pin=pin_protobuf,
    read=read_protobuf,
    columns=lambda schema, message: proto_columns(pinned_protobuf(schema), message),
    check=_file_decoder,
    messages=proto_from_json,
)
FORMATS = (
    Format(
        "protobuf",
        lambda layout: _decoder(layout.columns, layout.schemas, layout.message),
        key_decoder=_decoder,
        language=_LANGUAGE,
        needs_schema=True,
        renaming="Rename it in the message: its fields are known by their numbers.",
        is_sent=True,
        messages=MessageSchemas((".proto",), read=_message_schema, derive=_derived, writer=_writer),
    ),
)
