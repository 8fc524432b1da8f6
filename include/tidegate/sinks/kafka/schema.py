"""The schemas of a topic's messages: of a file, or as it follows from what is emitted. A registry has them
under ids.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegate.broker.registry import SchemaRegistry
from tidegate.errors import SchemaRefused, SchemaUnknown
from tidegate.formats.avro_derived import avro_schema
from tidegate.formats.protobuf_derived import numbers_of, protobuf_schema
from tidegate.formats.schemas import RecordSchema, SchemaKind, Unwritable
from tidegate.spec import BY_REGISTRY, KafkaSink, Payload, Pipeline, SinkSchema, message_columns

_SHOWN = 4_000


@dataclass(frozen=True)
class SchemaOf:
    """What of a sink's messages has a schema: their values or their keys, and the subject that has it.

    `known`: what the plan before has of the same subject.
    """

    sink: KafkaSink
    payload: Payload
    subject: str
    known: SinkSchema | None

    def __str__(self) -> str:
        return f"{'the keys of ' if self.payload.is_key else ''}what goes to {self.sink.topic}"


def planned_sink(
    pipeline: Pipeline,
    sink: KafkaSink,
    before: KafkaSink | None,
    registry: SchemaRegistry,
    may_register: bool,
) -> KafkaSink:
    """The sink with the schemas that a plan fixes. `before`: the sink as the plan before has it; what it has
    is taken where nothing has changed, and then the registry is not asked.

    A schema that would be registered, and may not be yet, as in a dry run, is not in it. Raises
    SchemaRefused, also for columns that the format does not have; SchemaUnknown, RegistryUnavailable,
    SettingsInvalid.
    """
    planned: list[SinkSchema | None] = []
    for payload, subject in ((sink.payload, sink.subject), (sink.key, sink.key_subject)):
        if payload is None or payload.format not in BY_REGISTRY:
            planned.append(None)
            continue
        known = _known(before, sink, payload, subject)
        schema = _planned_schema(pipeline, SchemaOf(sink, payload, subject, known), registry, may_register)
        planned.append(schema)
    return sink.with_schemas(*planned)


def _known(before: KafkaSink | None, sink: KafkaSink, payload: Payload, subject: str) -> SinkSchema | None:
    if before is None or sink.registry is None or before.registry is None:
        return None
    old, name = (before.key, before.key_subject) if payload.is_key else (before.payload, before.subject)
    connection = (before.registry.connection, sink.registry.connection)
    if old is None or (old.format, name) != (payload.format, subject) or connection[0] != connection[1]:
        return None
    return old.schema


def _planned_schema(
    pipeline: Pipeline, of: SchemaOf, registry: SchemaRegistry, may_register: bool
) -> SinkSchema | None:
    assert of.sink.registry is not None, "a sink with a schema has one"
    schema, known = _schema(pipeline, of, registry), of.known
    if known is not None and (known.text, known.imports) == (schema.text, schema.imports):
        return replace(schema, id=known.id)
    kind: SchemaKind = "AVRO" if of.payload.format == "avro" else "PROTOBUF"
    record = RecordSchema(kind, schema.text, dict(schema.imports))
    found = registry.lookup(of.subject, record)
    if found is not None:
        return replace(schema, id=found)
    if not of.sink.registry.may_register:
        raise SchemaUnknown(
            f"Subject {of.subject} of {registry.config.url} does not have the schema of {of}",
            f"Register it, or write `register: true` at the sink: {schema.text[:_SHOWN]}",
        )
    if may_register:
        return replace(schema, id=registry.register(of.subject, record))
    _require_compatible(of, record, registry)
    return None


def _schema(pipeline: Pipeline, of: SchemaOf, registry: SchemaRegistry) -> SinkSchema:
    """That of the file, or the one that follows from the columns."""
    if of.sink.schema_file is not None and not of.payload.is_key:
        assert of.payload.schema is not None, "it was read with the file"
        return of.payload.schema
    columns = message_columns(pipeline, of.sink, of.payload)
    name, namespace = pipeline.stage_of(of.sink).name, f"tidegate.{pipeline.pipeline}"
    if of.payload.is_key:
        name += "_key"
    elif of.sink.enveloped:
        name += "_envelope"
    try:
        if of.payload.format == "avro":
            return SinkSchema(None, avro_schema(name, namespace, columns))
        earlier = of.known.text if of.known is not None else _latest(of.subject, registry)
        return SinkSchema(None, protobuf_schema(name, namespace, columns, numbers_of(earlier)))
    except Unwritable as error:
        raise SchemaRefused(
            f"What goes to {of.sink.topic} cannot be {of.payload.format}: {error}",
            "Select the column under another name or with another type, or use another format.",
        ) from None


def _latest(subject: str, registry: SchemaRegistry) -> str:
    """The subject's newest text, whose numbers go on; empty: it has none."""
    try:
        return registry.version(subject).schema.text
    except SchemaUnknown:
        return ""


def _require_compatible(of: SchemaOf, schema: RecordSchema, registry: SchemaRegistry) -> None:
    if not registry.is_compatible(of.subject, schema):
        raise SchemaRefused(
            f"The schema of {of} is not compatible with the versions of subject {of.subject} of "
            f"{registry.config.url}",
            "Change the columns so that consumers of the versions before can read it, or use another "
            "subject.",
        )
