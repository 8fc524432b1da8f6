"""The schema of a topic's messages: it follows from what is emitted, and a registry has it under an id."""

from __future__ import annotations

from tidegate.broker.registry import SchemaRegistry
from tidegate.errors import SchemaRefused, SchemaUnknown
from tidegate.formats.avro_write import avro_schema
from tidegate.formats.protobuf_write import numbers_of, protobuf_schema
from tidegate.formats.schemas import RecordSchema, Unwritable
from tidegate.spec import KafkaSink, Pipeline, SinkSchema, emitted_schema

_SHOWN = 4_000


def planned_schema(
    pipeline: Pipeline,
    sink: KafkaSink,
    before: KafkaSink | None,
    registry: SchemaRegistry,
    may_register: bool,
) -> SinkSchema | None:
    """The schema that a plan fixes. `before`: the sink as the plan before has it; what it has is taken where
    nothing has changed, and then the registry is not asked.

    None: it would be registered, and may not be yet, as in a dry run. Raises SchemaRefused, also for columns
    that the format does not have; SchemaUnknown, RegistryUnavailable, SettingsInvalid.
    """
    known = before._schema if before is not None and _is_same_subject(before, sink) else None
    text = _text(pipeline, sink, known, registry)
    if known is not None and known.text == text:
        return known
    schema = RecordSchema("AVRO" if sink.format == "avro" else "PROTOBUF", text)
    found = registry.lookup(sink.subject, schema)
    if found is not None:
        return SinkSchema(found, text)
    assert sink.registry is not None, "a sink with a schema has one"
    if not sink.registry.may_register:
        raise SchemaUnknown(
            f"Subject {sink.subject} of {registry.config.url} does not have the schema of what goes to "
            f"{sink.topic}",
            f"Register it, or write `register: true` at the sink: {text[:_SHOWN]}",
        )
    if may_register:
        return SinkSchema(registry.register(sink.subject, schema), text)
    _require_compatible(sink, schema, registry)
    return None


def _is_same_subject(before: KafkaSink, sink: KafkaSink) -> bool:
    return (before.format, before.registry, before.subject) == (sink.format, sink.registry, sink.subject)


def _text(pipeline: Pipeline, sink: KafkaSink, known: SinkSchema | None, registry: SchemaRegistry) -> str:
    columns = emitted_schema(pipeline, sink)
    name, namespace = pipeline.stage_of(sink).name, f"tidegate.{pipeline.pipeline}"
    try:
        if sink.format == "avro":
            return avro_schema(name, namespace, columns)
        earlier = known.text if known is not None else _latest(sink, registry)
        return protobuf_schema(name, namespace, columns, numbers_of(earlier))
    except Unwritable as error:
        raise SchemaRefused(
            f"What goes to {sink.topic} cannot be {sink.format}: {error}",
            "Select the column under another name or with another type, or use another format.",
        ) from None


def _latest(sink: KafkaSink, registry: SchemaRegistry) -> str:
    """The subject's newest text, whose numbers go on; empty: it has none."""
    try:
        return registry.version(sink.subject).schema.text
    except SchemaUnknown:
        return ""


def _require_compatible(sink: KafkaSink, schema: RecordSchema, registry: SchemaRegistry) -> None:
    if not registry.is_compatible(sink.subject, schema):
        raise SchemaRefused(
            f"The schema of what goes to {sink.topic} is not compatible with the versions of subject "
            f"{sink.subject} of {registry.config.url}",
            "Change the columns so that consumers of the versions before can read it, or use another "
            "subject.",
        )
