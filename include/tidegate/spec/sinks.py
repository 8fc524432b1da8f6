"""`sinks`: where emissions go. Each kind of sink is a model in `AnySink`.

A model declares the facts that other code needs, so that no other code asks for the kind of a sink.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr, StrictBool, model_validator
from pydantic import ValidationInfo as Info

from tidegate.formats.payload import KeyFormat, Payload, SinkFormat, SinkSchema
from tidegate.spec import names
from tidegate.spec.connection import Connection, qualified
from tidegate.spec.mistakes import did_you_mean, listed, mistake
from tidegate.spec.payload import BY_REGISTRY, SinkRegistry
from tidegate.spec.scope import Model, Topic, scope_of
from tidegate.spec.sink_schemas import (
    check_envelope,
    check_format,
    check_key_format,
    check_registry_of_sink,
    check_sink_message,
    read_sink_schema,
    stage_of,
)


def _check_stage(name: str | None, info: Info) -> str | None:
    stages = [stage.name for stage in scope_of(info).stages if stage.name]
    if name is not None and stages and name not in stages:
        raise mistake(f"there is no stage `{name}`", did_you_mean(name, stages, f"Write {listed(stages)}."))
    return name


def _check_with_key(with_key: bool, info: Info) -> bool:
    if with_key and stage_of(info).keys == {}:
        fix = "Name the key's columns in `source.key`, or leave `with_key` out."
        raise mistake("there are no key columns to put into the value", fix)
    return with_key


def not_a_source(topic: str, info: Info) -> str:
    """Raise a mistake if a topic is also a source by its name and connection.

    Two connections can be the same cluster. The ids of the topics show that when a batch is planned.
    """
    scope = scope_of(info)
    if topic in scope.topics and info.data.get("connection", scope.connection) == scope.connection:
        raise mistake(f"`{topic}` is also a source: the pipeline would read itself", "Use another topic.")
    return topic


def _check_mode(mode: str, info: Info) -> str:
    """Refuse `upsert` where rows would overwrite each other: for collected events, or windows that
    share a key.
    """
    if mode == "upsert" and stage_of(info).collects:
        fix = "Use `mode: append`: each flush is a row of its own."
        raise mistake("`upsert` would overwrite the events that `reduce: collect` sent before", fix)
    if mode == "upsert" and stage_of(info).drops_window:
        fix = (
            "Give the stage the window, too; name its `key:`, if you want one row for each key; or write "
            "`mode: append`."
        )
        what = "the stage has no window, but an earlier one has: rows of a key's windows overwrite each other"
        raise mistake(what, fix)
    return mode


def _check_sql_columns(mode: str, info: Info) -> str:
    """Refuse emitted columns that the SQL table has already. Case does not count, as in most databases."""
    # With `upsert` a deletion deletes the row, so that no column marks it.
    taken = names.SQL_COLUMNS | ({"deleted": "whether it is a deletion"} if mode == "append" else {})
    stage = stage_of(info)
    columns = {*(stage.emitted or {}), *((stage.keys or {}) if info.data.get("with_key") else {})}
    for name in sorted(columns):
        if (meaning := taken.get(name.lower())) is not None:
            what = f"the column `{name}` is emitted, but the SQL table has a column of that name: {meaning}"
            raise mistake(what, f"`select` it under another name, such as `event_{name}`.")
        # Also against each other: most databases ignore case in column names.
        taken[name.lower()] = f"`{name}`"
    return mode


WithKey = Annotated[StrictBool, AfterValidator(_check_with_key)]
StageName = Annotated[str | None, AfterValidator(_check_stage)]


Treatment = Literal["halt", "quarantine"]
"""The treatment of an emission that a sink would refuse: the batch halts, or the emission goes into
quarantine.
"""


@dataclass(frozen=True)
class MessageRules:
    """The facts about a sink of messages that computing a batch needs.

    Values, and keys that are not text, are encoded while the batch is computed. Messages that the sink would
    refuse are found then.

    Args:
        target: The name by which a plan stores the timestamps that the sink accepts.
        payload: The encoding of values.
        key: The encoding of keys; None if they are text.
        too_large: The treatment of messages that are too large.
        refused_timestamp: The treatment of messages with a timestamp that the topic does not accept.
    """

    target: str
    payload: Payload
    key: Payload | None
    too_large: Treatment
    refused_timestamp: Treatment


class SinkModel(Model):
    """The fields and properties of every kind of sink."""

    stage: StageName = Field(
        default=None, description="The stage whose emissions it gets. Null: the last one."
    )
    with_key: WithKey = Field(default=False, description="Whether the key's columns are in the value, too.")

    @property
    @abstractmethod
    def name(self) -> str:
        """A name that is unique in the pipeline, such as `kafka:stock`.

        It must never change: progress has it as key.
        """

    @property
    def messages(self) -> MessageRules | None:
        """The rules of its messages; None if it writes columns and not messages."""
        return None

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections that must be set to use it."""
        return ()

    @property
    def is_per_generation(self) -> bool:
        """Whether each generation has a target of its own, though the sink's name is the same."""
        return False

    @property
    def lake_folder(self) -> str | None:
        """The folder below the lake that its path names; None if there is none, or if it is the
        generation's own.
        """
        return None


class KafkaSink(SinkModel):
    """A sink that sends emissions to a Kafka topic."""

    kind: Literal["kafka"] = Field(description="A topic.")
    connection: Annotated[str, AfterValidator(names.check_kafka_connection)] | None = Field(
        default=None,
        description="The Kafka cluster, by its name. Null: TIDEGATE_KAFKA, also if the source has a "
        "connection.",
    )
    topic: Annotated[Topic, AfterValidator(not_a_source)] = Field(description="The topic; not the source's.")
    format: Annotated[SinkFormat, AfterValidator(check_format)] = Field(
        default="json",
        description="The format of values: `json`; `debezium`, an envelope with the value before; "
        "`avro` or `protobuf`, with a schema.",
    )
    enveloped: Annotated[StrictBool, AfterValidator(check_envelope)] = Field(
        alias="envelope",
        default=False,
        description="With `avro` and `protobuf`: whether values are an envelope with the value before.",
    )
    schema_file: Annotated[str | None, AfterValidator(read_sink_schema)] = Field(
        alias="schema",
        default=None,
        description="The schema file of `avro` (`.avsc`) or `protobuf` (`.proto`), by its path from here. "
        "Null: "
        "the schema follows from the columns.",
    )
    message: Annotated[str | None, AfterValidator(check_sink_message)] = Field(
        default=None, description="The message of a `.proto` file that values are, in full: `shop.Stock`."
    )
    key_format: Annotated[KeyFormat, AfterValidator(check_key_format)] = Field(
        default="text",
        description="The format of keys: `text`; `json`, always an object of the key's columns; `avro` "
        "or `protobuf`, with a schema in a registry.",
    )
    registry: Annotated[SinkRegistry | None, AfterValidator(check_registry_of_sink)] = Field(
        default=None,
        description="With `avro` and `protobuf`: the schema registry. It is optional with a schema file: "
        "without "
        "it, values have no schema id.",
    )
    headers: StrictBool = Field(
        default=False,
        description="Whether messages have their batch and their reason in headers.",
    )
    too_large: Treatment = Field(
        default="halt",
        description="What an emission does that is too large for Kafka: halt the batch, or go into "
        "quarantine.",
    )
    refused_timestamp: Treatment = Field(
        default="halt", description="The same for an emission whose timestamp the topic would refuse."
    )
    timestamp: Literal["event", "clock"] = Field(
        default="event",
        description="The timestamp of messages: that of the emission, or the clock of its batch.",
    )
    _schema: SinkSchema | None = PrivateAttr(default=None)
    _key_schema: SinkSchema | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _keep_schema(self, info: Info) -> KafkaSink:
        schema = scope_of(info).sink_schema if self.schema_file is not None else None
        self._schema = schema and replace(schema, message=self.message or "")
        return self

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
        refused = self.refused_timestamp if self.timestamp == "event" else "halt"
        return MessageRules(self.target, self.payload, self.key, self.too_large, refused)

    @property
    def payload(self) -> Payload:
        """The encoding of its values."""
        owner = self.name if self.format in BY_REGISTRY else ""
        enveloped = self.enveloped or self.format == "debezium"
        return Payload(self.format, self.with_key, owner, self._schema, enveloped)

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


def _check_path(path: str, info: Info) -> str:
    """Refuse a path in the pipeline's own folder: a vacuum of the table would delete its state and
    manifests.
    """
    if first_folder(path) == scope_of(info).pipeline:
        what = f"`{path}` is in the lake's folder of this pipeline, or is that folder"
        raise mistake(what, f"Write another name, such as `out/{path}`, or leave `path` out.")
    return path


def first_folder(path: str | None) -> str | None:
    """Return the folder below the lake that a relative path is in; None for an absolute one.

    Example: `first_folder("out/stock")` is `out`, `first_folder("/mnt/stock")` is None.
    """
    return None if path is None or path.startswith("/") else path.partition("/")[0]


class TableSink(SinkModel):
    """A sink that appends emissions to a Delta table: a name in the lake, an absolute path, or the
    default place.
    """

    kind: Literal["table"] = Field(description="A Delta table.")
    path: Annotated[str, AfterValidator(names.check_table_path), AfterValidator(_check_path)] | None = Field(
        default=None,
        description="A name under the lake, or an absolute path. Null: the lake's place, per generation.",
    )

    @property
    def name(self) -> str:
        """The sink's name, which is unique in the pipeline."""
        return f"table:{self.path}" if self.path else "table"

    @property
    def is_per_generation(self) -> bool:
        """A table without a path is in the generation's own folder."""
        return self.path is None

    @property
    def lake_folder(self) -> str | None:
        """The folder below the lake that its path is in."""
        return first_folder(self.path)


class SqlSink(SinkModel):
    """A sink that writes emissions to a table of a SQL database, as new rows or instead of the key's last
    row.

    The URL of the database is never in the file: set TIDEGATE_SQL, or TIDEGATE_SQL_<CONNECTION> in capitals
    for a `connection`.
    """

    kind: Literal["sql"] = Field(description="A table of a SQL database.")
    table: Annotated[str, AfterValidator(names.check_sql_table)] = Field(
        description="The table, with its schema if it has one; it is created if it does not exist."
    )
    connection: Annotated[str, AfterValidator(names.check_connection)] | None = Field(
        default=None, description="The database, by its name. Null: TIDEGATE_SQL."
    )
    mode: Annotated[
        Literal["append", "upsert"], AfterValidator(_check_mode), AfterValidator(_check_sql_columns)
    ] = Field(default="append", description="A row for each emission, or one for each key (and window).")

    @property
    def name(self) -> str:
        """The sink's name, which is unique in the pipeline."""
        return f"sql:{qualified(self.connection, self.table)}"

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connection of its database."""
        return (Connection("sql", self.connection),)


AnySink = KafkaSink | TableSink | SqlSink


def _unique(sink: AnySink, info: Info) -> AnySink:
    scope = scope_of(info)
    if sink.name in scope.sinks:
        raise mistake(f"there are two sinks `{sink.name}`", "Keep one, or send one elsewhere.")
    scope.sinks.append(sink.name)
    return sink


Sink = Annotated[Annotated[AnySink, Field(discriminator="kind")], AfterValidator(_unique)]
