"""`sinks`: where emissions go. Each kind is a model of its own in `AnySink`.

What others have to know of a sink, its model declares: nobody asks for its kind.
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


def _known_stage(name: str | None, info: Info) -> str | None:
    stages = [stage.name for stage in scope_of(info).stages if stage.name]
    if name is not None and stages and name not in stages:
        raise mistake(f"there is no stage `{name}`", did_you_mean(name, stages, f"Write {listed(stages)}."))
    return name


def _needs_key(with_key: bool, info: Info) -> bool:
    if with_key and stage_of(info).keys == {}:
        fix = "Name the key's columns in `source.key`, or leave `with_key` out."
        raise mistake("there are no key columns to put into the value", fix)
    return with_key


def not_a_source(topic: str, info: Info) -> str:
    """By names. Whether two connections are one cluster, the topics' ids tell when a batch is planned."""
    scope = scope_of(info)
    if topic in scope.topics and info.data.get("connection", scope.connection) == scope.connection:
        raise mistake(f"`{topic}` is also a source: the pipeline would read itself", "Use another topic.")
    return topic


def _upsertable(mode: str, info: Info) -> str:
    """Events are facts: a later batch of them does not replace an earlier one."""
    if mode == "upsert" and stage_of(info).collects:
        fix = "Use `mode: append`: each flush is a row of its own."
        raise mistake("`upsert` would overwrite the events that `reduce: collect` sent before", fix)
    if mode == "upsert" and stage_of(info).drops_window:
        fix = (
            "Give the stage the window, too; name its `key:`, if you want one row for each key; or write "
            "`mode: append`."
        )
        what = "the stage has no window and an earlier one has: rows of a key's windows overwrite each other"
        raise mistake(what, fix)
    return mode


def _no_name_twice(mode: str, info: Info) -> str:
    """Databases do not tell upper and lower case apart, so neither does this."""
    taken = names.SQL_COLUMNS | ({"deleted": "whether it is a deletion"} if mode == "append" else {})
    stage = stage_of(info)
    columns = {*(stage.emitted or {}), *((stage.keys or {}) if info.data.get("with_key") else {})}
    for name in sorted(columns):
        if (meaning := taken.get(name.lower())) is not None:
            what = f"the column `{name}` is emitted, and the SQL table has one of that name: {meaning}"
            raise mistake(what, f"`select` it under another name, such as `event_{name}`.")
        taken[name.lower()] = f"`{name}`"
    return mode


WithKey = Annotated[StrictBool, AfterValidator(_needs_key)]
OfStage = Annotated[str | None, AfterValidator(_known_stage)]


Treatment = Literal["halt", "quarantine"]
"""What becomes of an emission that a sink would refuse: the batch halts, or it is quarantined."""


@dataclass(frozen=True)
class MessageRules:
    """What is to be known before a batch is computed of a sink that sends emissions as messages.

    Their values, and keys that are no text (`key`), are written beside the columns; those that the sink would
    refuse are found then. `target`: by which a plan has the timestamps that it takes.
    """

    target: str
    payload: Payload
    key: Payload | None
    too_large: Treatment
    refused_timestamp: Treatment


class SinkModel(Model):
    """What every kind has: a stage, and whether the key's columns are wanted. The rest are its own fields."""

    stage: OfStage = Field(default=None, description="Whose emissions it gets. Null: the last stage's.")
    with_key: WithKey = Field(default=False, description="Whether the key's columns are in the value, too.")

    @property
    @abstractmethod
    def name(self) -> str:
        """Unique in the pipeline. Progress is kept by it: it begins with the kind, and never changes."""

    @property
    def messages(self) -> MessageRules | None:
        """None: it does not send messages, but columns."""
        return None

    @property
    def connections(self) -> tuple[Connection, ...]:
        """What has to be set for it."""
        return ()

    @property
    def is_per_generation(self) -> bool:
        """Whether each generation has another target by the same name."""
        return False

    @property
    def lake_folder(self) -> str | None:
        """The folder below the lake that it writes to by name. None: none, or the generation's own."""
        return None


class KafkaSink(SinkModel):
    """Emissions go to a topic."""

    kind: Literal["kafka"] = Field(description="A topic.")
    connection: Annotated[str, AfterValidator(names.check_kafka_connection)] | None = Field(
        default=None,
        description="The Kafka cluster, by its name. Null: TIDEGATE_KAFKA, whichever the source's is.",
    )
    topic: Annotated[Topic, AfterValidator(not_a_source)] = Field(description="The topic; not the source's.")
    format: Annotated[SinkFormat, AfterValidator(check_format)] = Field(
        default="json",
        description="What values are written as: `json`; `debezium`, an envelope with the value before; "
        "`avro` or `protobuf`, with a schema.",
    )
    enveloped: Annotated[StrictBool, AfterValidator(check_envelope)] = Field(
        alias="envelope",
        default=False,
        description="Of `avro` and `protobuf`: whether values are an envelope with the value before.",
    )
    schema_file: Annotated[str | None, AfterValidator(read_sink_schema)] = Field(
        alias="schema",
        default=None,
        description="Of `avro` (`.avsc`) and `protobuf` (`.proto`): the file of the schema, from here. Null: "
        "it follows from the columns.",
    )
    message: Annotated[str | None, AfterValidator(check_sink_message)] = Field(
        default=None, description="The message of a `.proto` file that values are, in full: `shop.Stock`."
    )
    key_format: Annotated[KeyFormat, AfterValidator(check_key_format)] = Field(
        default="text",
        description="What keys are written as: `text`; `json`, always an object of the key's columns; `avro` "
        "or `protobuf`, with a schema in a registry.",
    )
    registry: Annotated[SinkRegistry | None, AfterValidator(check_registry_of_sink)] = Field(
        default=None,
        description="Of `avro` and `protobuf`: the schema registry. A schema file does without: then values "
        "are bare.",
    )
    headers: StrictBool = Field(
        default=False,
        description="Whether messages tell their batch and their reason, in headers.",
    )
    too_large: Treatment = Field(
        default="halt",
        description="What an emission that Kafka would not take does: halt the batch, or go into quarantine.",
    )
    refused_timestamp: Treatment = Field(
        default="halt", description="The same, for one whose timestamp the topic would not take."
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
        """Unique in the pipeline."""
        return f"kafka:{self.target}"

    @property
    def target(self) -> str:
        """The topic, and which cluster's: no topic has a colon in its name."""
        return qualified(self.connection, self.topic)

    @property
    def messages(self) -> MessageRules:
        """It sends the value, in its format."""
        refused = self.refused_timestamp if self.timestamp == "event" else "halt"
        return MessageRules(self.target, self.payload, self.key, self.too_large, refused)

    @property
    def payload(self) -> Payload:
        """Of its messages."""
        owner = self.name if self.format in BY_REGISTRY else ""
        enveloped = self.enveloped or self.format == "debezium"
        return Payload(self.format, self.with_key, owner, self._schema, enveloped)

    @property
    def key(self) -> Payload | None:
        """Their keys; None: they are text."""
        if self.key_format == "text":
            return None
        owner = self.name if self.key_format in BY_REGISTRY else ""
        return Payload(self.key_format, owner=owner, schema=self._key_schema, is_key=True)

    @property
    def subject(self) -> str:
        """Of its schema; of no meaning without one."""
        return (self.registry and self.registry.subject) or f"{self.topic}-value"

    @property
    def key_subject(self) -> str:
        """Of the schema of its keys, likewise."""
        return (self.registry and self.registry.key_subject) or f"{self.topic}-key"

    def with_schemas(self, schema: SinkSchema | None, key_schema: SinkSchema | None) -> KafkaSink:
        """The sink as a plan fixes it."""
        planned = self.model_copy()
        planned._schema, planned._key_schema = schema, key_schema
        return planned

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The cluster, and the schema registry."""
        cluster = Connection("kafka", self.connection)
        if self.registry is None:
            return (cluster,)
        return (cluster, Connection("registry", self.registry.connection))


def _outside_of_streams(path: str, info: Info) -> str:
    """A vacuum of the sink's table would take the pipeline's state and manifests for rubbish."""
    if first_folder(path) == scope_of(info).pipeline:
        what = f"`{path}` lies in the lake's folder of this pipeline, or is that folder"
        raise mistake(what, f"Write another name, such as `out/{path}`, or leave `path` out.")
    return path


def first_folder(path: str | None) -> str | None:
    """Return the folder below the lake that a relative path is in; None for an absolute one."""
    return None if path is None or path.startswith("/") else path.partition("/")[0]


class TableSink(SinkModel):
    """Emissions go to a table: a name under the lake, an absolute path, or where the lake puts it."""

    kind: Literal["table"] = Field(description="A Delta table.")
    path: (
        Annotated[str, AfterValidator(names.check_table_path), AfterValidator(_outside_of_streams)] | None
    ) = Field(
        default=None,
        description="A name under the lake, or an absolute path. Null: the lake's place, per generation.",
    )

    @property
    def name(self) -> str:
        """Unique in the pipeline."""
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
    """Emissions go to a table of a SQL database, as new rows or in the place of the key's last one.

    The database's URL never stands in the file: it is in TIDEGATE_SQL, or TIDEGATE_SQL_<CONNECTION> in
    capitals for a `connection`.
    """

    kind: Literal["sql"] = Field(description="A table of a SQL database.")
    table: Annotated[str, AfterValidator(names.check_sql_table)] = Field(
        description="The table, with its schema if it has one; made if it is not there."
    )
    connection: Annotated[str, AfterValidator(names.check_connection)] | None = Field(
        default=None, description="The database, by its name. Null: TIDEGATE_SQL."
    )
    mode: Annotated[
        Literal["append", "upsert"], AfterValidator(_upsertable), AfterValidator(_no_name_twice)
    ] = Field(default="append", description="A row for each emission, or one for each key (and window).")

    @property
    def name(self) -> str:
        """Unique in the pipeline."""
        return f"sql:{qualified(self.connection, self.table)}"

    @property
    def connections(self) -> tuple[Connection, ...]:
        """One."""
        return (Connection("sql", self.connection),)


AnySink = KafkaSink | TableSink | SqlSink


def _unique(sink: AnySink, info: Info) -> AnySink:
    scope = scope_of(info)
    if sink.name in scope.sinks:
        raise mistake(f"there are two sinks `{sink.name}`", "Keep one, or send one elsewhere.")
    scope.sinks.append(sink.name)
    return sink


Sink = Annotated[Annotated[AnySink, Field(discriminator="kind")], AfterValidator(_unique)]
