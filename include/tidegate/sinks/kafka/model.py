"""The `kafka` sink in a pipeline file: a topic, the format of its messages, and their schemas.

A schema file is beside the pipeline file. It is read with it, and checked against the sink's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias

import pyarrow as pa
from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    StrictBool,
    model_validator,
)
from pydantic import ValidationInfo as Info

from tidegate.expressions.arrow import arrow_type
from tidegate.expressions.types import Type
from tidegate.formats.protobuf.schema import ProtoSchema
from tidegate.formats.registry import formats, names_of_formats
from tidegate.formats.schemas import Payload, SchemaFault, SinkSchema
from tidegate.kernel.rows import RECORDED
from tidegate.model import names
from tidegate.model.cloudevents import EXAMPLES, CloudEvents, check_cloudevents
from tidegate.model.columns import Column, check_fields, require_single
from tidegate.model.connection import Connection, qualified
from tidegate.model.message_headers import Headers
from tidegate.model.mistakes import listed, mistake
from tidegate.model.schemas import (
    message_of,
    require_schema_file,
    schema_path,
)
from tidegate.model.scope import Model, Topic, scope_of
from tidegate.model.windows import WINDOW_COLUMNS
from tidegate.sinks.model import MessageRules, SinkModel, Treatment, not_a_source, stage_of

BY_REGISTRY = names_of_formats(lambda format_: format_.messages)
"""The formats whose messages begin with the id of a schema in a registry."""

_KEY_FORMATS = ("text", *names_of_formats(lambda format_: format_.is_sent and format_.key_decoder))
if TYPE_CHECKING:
    SinkFormat: TypeAlias = str
    KeyFormat: TypeAlias = str
else:  # a Literal of the registry's names, so that mistakes and the JSON Schema list them
    SinkFormat = Literal[names_of_formats(lambda format_: format_.is_sent)]
    KeyFormat = Literal[_KEY_FORMATS]
_FIX = "Select the columns as the schema has them, in the types of the table in docs/messages.md."


class SinkRegistry(Model):
    """The schema registry of a sink's messages, the subjects, and whether tidegate registers
    schemas there.
    """

    connection: Annotated[str, AfterValidator(names.check_registry_connection)] | None = Field(
        default=None, description="The schema registry, by its name. Null: TIDEGATE_REGISTRY."
    )
    subject: Annotated[str, AfterValidator(names.check_subject)] | None = Field(
        default=None, description="The subject that has the schema's versions. Null: the topic, and `-value`."
    )
    key_subject: Annotated[str, AfterValidator(names.check_subject)] | None = Field(
        default=None, description="The same for keys. Null: the topic, and `-key`."
    )
    may_register: StrictBool = Field(
        alias="register",
        default=True,
        description="Whether a missing schema is registered. `false`: it must exist.",
    )


def _check_format(format_: SinkFormat, info: Info) -> SinkFormat:
    """Check that the stage fits a format: an envelope needs the last emitted value, a schema needs
    all types.
    """
    if formats()[format_].has_envelope:
        _require_memory(info, "Use `format: json`, or a stage that keeps what it emitted.")
    if format_ in BY_REGISTRY or formats()[format_].is_flat:
        stage = stage_of(info)
        columns = {**((info.data.get("with_key") and stage.keys) or {}), **(stage.emitted or {})}
        _require_types(columns)
        if formats()[format_].is_flat:
            _require_fields(format_, columns)
    return format_


def _require_fields(format_: str, columns: Mapping[str, Type | None]) -> None:
    """Raise a mistake for columns that the format has no fields for."""
    if not columns:
        return  # the stage has mistakes
    fields = [Column(name=name, type=type_.text) for name, type_ in columns.items() if type_ is not None]
    check_fields(fields)
    require_single(format_, fields)


def _check_envelope(enveloped: bool, info: Info) -> bool:
    """Allow `envelope` for formats that have a schema only: JSON's envelope is the format `debezium`."""
    format_ = info.data.get("format")
    if enveloped and format_ is not None:
        if format_ not in BY_REGISTRY:
            fix = "Write `format: debezium` for an envelope as JSON, and leave it out."
            raise mistake(f"`envelope` does not go with `format: {format_}`", fix)
        _require_memory(info, "Leave it out, or use a stage that keeps what it emitted.")
    return enveloped


def _require_memory(info: Info, fix: str) -> None:
    stage = stage_of(info)
    if stage.forgets:
        raise mistake(f"the value before is unknown: {stage.forgets}", fix)


def _check_key_format(format_: KeyFormat, info: Info) -> KeyFormat:
    """Check that the key has columns of known types, which every format but `text` needs."""
    if format_ != "text":
        keys = stage_of(info).keys
        if keys == {}:
            fix = "Name the key's columns in `source.key`, or leave `key_format` out."
            raise mistake("the key has no columns: it is the record's own, as text", fix)
        _require_types(keys or {})
        _require_fields(format_, keys or {})
    return format_


def _require_types(columns: Mapping[str, Type | None]) -> None:
    untold = [name for name, type_ in columns.items() if type_ is None or not type_.is_known]
    if untold:
        fix = f"Select it with a type, such as `{untold[0]}: cast({untold[0]} as bigint)`."
        raise mistake(f"the type of {listed(untold)} cannot be told from this file", fix)


def _check_registry(registry: SinkRegistry | None, info: Info) -> SinkRegistry | None:
    """Check that messages whose schema follows from columns have a registry: readers cannot get it elsewhere.

    Returns the registry, which is the one without a name if none is given. A schema file needs none.
    """
    format_, key_format, file = (info.data.get(name, "") for name in ("format", "key_format", "schema_file"))
    # `file` may be None, which is a value; "" stands for a field with mistakes.
    if "" in (format_, key_format, file):
        return registry  # the mistake is reported already
    if registry is not None and format_ not in BY_REGISTRY and key_format not in BY_REGISTRY:
        fix = "Leave it out, or write `format: avro` or `format: protobuf`."
        raise mistake(f"messages in `{format_}` have no schema in a registry", fix)
    if registry is None and file is not None and key_format in BY_REGISTRY:
        fix = "Write `registry: {}`: values then begin with the id of their schema, too."
        raise mistake(f"keys in `{key_format}` need a registry: their schema follows from the columns", fix)
    if registry is None and file is None and (format_ in BY_REGISTRY or key_format in BY_REGISTRY):
        return SinkRegistry()
    return registry


def _read_schema(name: str | None, info: Info) -> str | None:
    """Read the schema file of a sink, check it against the sink's columns, and note it in the scope.

    Returns the name. Raises a mistake if the file is missing, not a schema, or does not fit the columns.
    """
    scope, format_ = scope_of(info), info.data.get("format")
    # Sinks share the scope: the schema of the sink before must not stay.
    scope.sink_schema = None
    if name is None or format_ is None:
        return name
    messages = formats()[format_].messages
    if messages is None:
        fix = "Leave it out, or write `format: avro` or `format: protobuf`."
        raise mistake(f"`format: {format_}` has no schema file", fix)
    if info.data.get("enveloped"):
        fix = "Leave it out: the schema of an envelope follows from the columns."
        raise mistake("an envelope has no schema file", fix)
    path = schema_path(name, format_, messages.endings, scope.folder)
    require_schema_file(name, path)
    try:
        scope.sink_schema = messages.read(path)
        # a schema of several messages is checked when the message is known
        if _messages_of(format_) is None and (columns := _columns(info)) is not None:
            messages.writer(scope.sink_schema, columns)
    except SchemaFault as fault:
        raise mistake(f"{name}: {fault}", _FIX) from None
    return name


def _messages_of(format_: str | None) -> Callable[[str], ProtoSchema] | None:
    """Return what reads the messages of a compiled schema; None if a schema has one record only."""
    language = formats()[format_].language if format_ is not None else None
    return language.messages if language is not None else None


def _check_message(name: str | None, info: Info) -> str | None:
    """Return the message of the `.proto` file for values: the named one, or the only one.

    Raises a mistake if there is none, or if it does not fit the sink's columns.
    """
    schema, format_ = scope_of(info).sink_schema, info.data.get("format")
    messages_of = _messages_of(format_)
    if name is not None and format_ is not None and "schema_file" in info.data:
        if messages_of is None:
            raise mistake(f"`format: {format_}` has no messages", "Leave `message` out.")
        if info.data["schema_file"] is None:
            raise mistake("there is no file with that message", "Write `schema:` beside it.")
    messages = formats()[format_].messages if format_ is not None else None
    if schema is None or messages is None or messages_of is None:
        return name
    message = message_of(messages_of(schema.compiled), name)
    columns = _columns(info)
    try:
        if columns is not None:
            messages.writer(replace(schema, message=message), columns)
    except SchemaFault as fault:
        raise mistake(f"{info.data['schema_file']}: {fault}", _FIX) from None
    return message


def _columns(info: Info) -> pa.Schema | None:
    """Return the columns of the sink's values; None if they are unknown because of other mistakes."""
    stage, with_key = stage_of(info), info.data.get("with_key")
    if stage.emitted is None or with_key is None or (with_key and stage.keys is None):
        return None
    types = {name: _arrow(type_) for name, type_ in stage.emitted.items()}
    if with_key:
        types = {name: _arrow(type_) for name, type_ in (stage.keys or {}).items()} | types
        types |= dict.fromkeys(set(WINDOW_COLUMNS if stage.windowed else ()) - set(types), pa.int64())
    return pa.schema(list(types.items()))


def _arrow(type_: Type | None) -> pa.DataType:
    assert type_ is not None, "`_check_format` has asked for it"
    return arrow_type(type_)


class KafkaSink(SinkModel):
    """A sink that sends emissions to a Kafka topic."""

    examples: ClassVar[Mapping[str, str]] = {
        "topic": "topic: availability",
        "connection": "connection: reports",
        "format": "format: cloudevents",
        "envelope": "envelope: true",
        "schema": "schema: schemas/availability.avsc",
        "message": "message: shop.Availability",
        "key_format": "key_format: avro",
        **EXAMPLES,
        "registry": "registry: {connection: shop, subject: availability-value, register: true}",
        "registry.connection": "connection: shop",
        "registry.subject": "subject: availability-value",
        "registry.key_subject": "key_subject: availability-key",
        "registry.register": "register: false",
        "headers": "headers: {trace-id: traceId}",
        "headers.*": "trace-id: traceId",
        "too_large": "too_large: quarantine",
        "refused_timestamp": "refused_timestamp: quarantine",
        "timestamp": "timestamp: clock",
    }
    publisher = "tidegate.sinks.kafka.sink"
    takes_null_keys = True
    target_field = "topic"

    kind: Literal["kafka"] = Field(description="A topic.")
    connection: Annotated[str, AfterValidator(names.check_kafka_connection)] | None = Field(
        default=None,
        description="The Kafka cluster, by its name. Null: TIDEGATE_KAFKA, also if the source has a "
        "connection.",
    )
    topic: Annotated[Topic, AfterValidator(not_a_source)] = Field(description="The topic; not the source's.")
    format: Annotated[SinkFormat, AfterValidator(_check_format)] = Field(
        default="json",
        description="The format of values: `json`; `csv`, a row of RFC 4180; `kafka`, one column as Kafka's "
        "serializers write it; `debezium`, an envelope with the value before; `cloudevents`, an event; "
        "`avro` or `protobuf`, with a schema.",
    )
    cloudevents: Annotated[CloudEvents | None, AfterValidator(check_cloudevents)] = Field(
        default=None, description="With `cloudevents`: the mode and the attributes of events."
    )
    enveloped: Annotated[StrictBool, AfterValidator(_check_envelope)] = Field(
        alias="envelope",
        default=False,
        description="With `avro` and `protobuf`: whether values are an envelope with the value before.",
    )
    schema_file: Annotated[str | None, AfterValidator(_read_schema)] = Field(
        alias="schema",
        default=None,
        description="The schema file of `avro` (`.avsc`) or `protobuf` (`.proto`), by its path from here. "
        "Null: "
        "the schema follows from the columns.",
    )
    message: Annotated[str | None, AfterValidator(_check_message)] = Field(
        default=None, description="The message of a `.proto` file that values are, in full: `shop.Stock`."
    )
    key_format: Annotated[KeyFormat, AfterValidator(_check_key_format)] = Field(
        default="text",
        description="The format of keys: `text`; `json`, always an object of the key's columns; `kafka`, the "
        "one column as Kafka's serializers write it; `avro` or `protobuf`, with a schema in a registry.",
    )
    registry: Annotated[SinkRegistry | None, AfterValidator(_check_registry)] = Field(
        default=None,
        description="With `avro` and `protobuf`: the schema registry. It is optional with a schema file: "
        "without "
        "it, values have no schema id.",
    )
    headers: Headers = Field(
        default=False,
        description="Whether messages have their batch and their reason in headers; or header: column.",
    )
    too_large: Treatment = Field(
        default="halt",
        description="What an emission does that is too large for Kafka: halt the batch, or go into "
        "quarantine.",
    )
    refused_timestamp: Treatment = Field(
        default="halt", description="The same for an emission whose timestamp the topic would refuse."
    )
    timestamp: Literal["event", "record", "clock"] = Field(
        default="event",
        description="The timestamp of messages: that of the emission; Kafka's, of the record that triggers "
        "it; or the clock of its batch.",
    )
    _schema: SinkSchema | None = PrivateAttr(default=None)
    _key_schema: SinkSchema | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _keep_schema(self, info: Info) -> KafkaSink:
        schema = scope_of(info).sink_schema if self.schema_file is not None else None
        self._schema = schema and replace(schema, message=self.message or "")
        return self

    @classmethod
    def new_target(cls, pipeline: str) -> str:
        """Return a topic that is not the pipeline's source, which often has the pipeline's name."""
        return f"{pipeline}-out"

    @property
    def name(self) -> str:
        """The sink's name, which is unique in the pipeline."""
        return f"kafka:{self.target}"

    @property
    def target(self) -> str:
        """The topic with its connection, if it has one."""
        return qualified(self.connection, self.topic)

    @property
    def messages(self) -> MessageRules:
        """The rules of its messages. With the clock as timestamp, no topic refuses one."""
        refused = self.refused_timestamp if self.timestamp_column else "halt"
        rules = self.target, self.payload, self.key, self.too_large, refused
        return MessageRules(*rules, self.header_columns, self.timestamp_column)

    @property
    def timestamp_column(self) -> str | None:
        """The column of the outbox with the timestamps of messages; None: they have the clock."""
        return {"event": "timestamp", "record": RECORDED}.get(self.timestamp)

    @property
    def header_columns(self) -> Mapping[str, str]:
        """Name of a header -> the column of the emission, its key or its window that it has."""
        return self.headers if isinstance(self.headers, dict) else {}

    @property
    def payload(self) -> Payload:
        """The encoding of its values."""
        owner = self.name if self.format in BY_REGISTRY else ""
        enveloped = self.enveloped or formats()[self.format].has_envelope
        format_ = formats()[self.format].data or self.format
        return Payload(format_, self.with_key, owner, self._schema, enveloped)

    @property
    def key(self) -> Payload | None:
        """The encoding of its keys; None if they are text."""
        if self.key_format == "text":
            return None
        owner = self.name if self.key_format in BY_REGISTRY else ""
        return Payload(self.key_format, owner=owner, schema=self._key_schema, is_key=True)

    @property
    def subject(self) -> str:
        """The subject of its values' schema; it is meaningless without a registry."""
        return (self.registry and self.registry.subject) or f"{self.topic}-value"

    @property
    def key_subject(self) -> str:
        """The subject of its keys' schema; it is meaningless without a registry."""
        return (self.registry and self.registry.key_subject) or f"{self.topic}-key"

    def with_schemas(self, schema: SinkSchema | None, key_schema: SinkSchema | None) -> KafkaSink:
        """Return the sink with the schemas of values and keys that a plan fixes."""
        planned = self.model_copy()
        planned._schema, planned._key_schema = schema, key_schema
        return planned

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections of its cluster and, if it has one, of its schema registry."""
        cluster = Connection("kafka", self.connection)
        if self.registry is None:
            return (cluster,)
        return (cluster, Connection("registry", self.registry.connection))


MODEL = KafkaSink
