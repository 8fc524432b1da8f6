"""Convert an outbox to the messages that are sent to Kafka, and plan the schemas of messages.

A schema is from a file, or derived from the columns. A registry stores it by id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import SchemaRefused, SchemaUnknown
from tidegate.formats.cloudevents import CONTENT_TYPE, STRUCTURED, event_headers, event_texts
from tidegate.formats.metadata import header_contents
from tidegate.formats.registry import formats
from tidegate.formats.schemas import Payload, RecordSchema, SinkSchema, Unwritable
from tidegate.kafka.messages import HEADER
from tidegate.kafka.registry import SchemaRegistry
from tidegate.kernel.keys import real_keys
from tidegate.kernel.rows import with_column
from tidegate.model.cloudevents import CloudEvents
from tidegate.model.kernel_stages import message_columns
from tidegate.model.pipeline import Pipeline
from tidegate.sinks.cloudevents import COLUMNS as EVENT_COLUMNS
from tidegate.sinks.cloudevents import event_attributes
from tidegate.sinks.kafka.model import BY_REGISTRY, KafkaSink
from tidegate.sinks.outbox import Outbox
from tidegate.storage.schema import (
    KEY,
    KEY_COLUMNS,
    REASON,
    SOURCE,
    TIMESTAMP,
    VALUE,
    WINDOW,
    emission_columns,
)


def topic_messages(
    sink: KafkaSink, outbox: Outbox, skip: int = 0, *, may_lack_keys: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the emissions from the `skip`-th message on, always in the same order.

    The columns are those of `kafka.messages`. If deletions are sent in an envelope, a tombstone follows each
    of them, as with Debezium: a compacted topic removes the key only by a tombstone.

    Args:
        sink: The sink.
        outbox: The emissions.
        skip: The number of messages that are left out.
        may_lack_keys: Whether some keys stand for none.

    Raises LakeDamaged, LakeUnavailable.
    """
    key = KEY if sink.key is None else sink.key.column
    columns = [key, sink.payload.column, sink.timestamp_column or TIMESTAMP, SOURCE, *WINDOW]
    columns += [REASON] if sink.headers is True else []
    columns += [VALUE, KEY_COLUMNS] if sink.header_columns else [VALUE] if sink.payload.enveloped else []
    of_batch = partial(_messages, sink, f"{outbox.plan.stream}/{outbox.plan.seq}")
    if key == KEY and may_lack_keys:
        of_batch = partial(_without_no_keys, of_batch)
    if sink.cloudevents is not None:
        columns += [name for name in EVENT_COLUMNS if name not in columns]
        of_batch = partial(_as_events, sink.cloudevents, outbox, of_batch)
    if not sink.payload.enveloped:
        # One emission is one message here, so the outbox itself skips, without reading row groups.
        messages: Iterator[pa.RecordBatch] = map(of_batch, outbox.batches(columns, skip))
    else:
        # messages, not emissions, are counted in the progress record, so all emissions are read to skip some
        messages = _from(map(partial(_with_tombstones, of_batch), outbox.batches(columns)), skip)
    return messages if sink.timestamp_column else map(partial(_at, outbox.plan.clock_ms), messages)


def _at(clock_ms: int, messages: pa.RecordBatch) -> pa.RecordBatch:
    """Return the messages with the batch's clock as their timestamp."""
    clocks = pa.repeat(pa.scalar(clock_ms, pa.int64()), messages.num_rows)
    return with_column(messages, "timestamp_ms", clocks)


def _messages(sink: KafkaSink, batch: str, emissions: pa.RecordBatch) -> pa.RecordBatch:
    """Return emissions as messages.

    Headers contain the source chain, the window, and, if the sink asks for them, the batch and the reason, or
    columns.
    """
    key, payload, timestamp, source, *window = emissions.columns[: 4 + len(WINDOW)]
    columns = {
        # `view` copies nothing: Arrow's text is UTF-8 bytes already.
        "key": key.view(pa.binary()),
        "value": payload.view(pa.binary()),
        "timestamp_ms": timestamp,
        "tidegate-source": source.view(pa.binary()),
        "tidegate-window": _windows(*window),
    }
    if sink.headers is True:
        columns["tidegate-batch"] = pa.repeat(pa.scalar(batch.encode(), pa.binary()), emissions.num_rows)
        columns["tidegate-reason"] = emissions.column(REASON).view(pa.binary())
    if sink.header_columns:
        parts = emission_columns(emissions)
        for name, column in sink.header_columns.items():
            columns[f"{HEADER}{name}"] = header_contents(parts[column])
    return pa.RecordBatch.from_pydict(columns)


def _without_no_keys(
    of_batch: Callable[[pa.RecordBatch], pa.RecordBatch], emissions: pa.RecordBatch
) -> pa.RecordBatch:
    """Return emissions as messages, without the texts that stand for no key."""
    keys = real_keys(emissions.column(KEY))
    return with_column(of_batch(emissions), "key", keys.view(pa.binary()))


def _as_events(
    declared: CloudEvents,
    outbox: Outbox,
    of_batch: Callable[[pa.RecordBatch], pa.RecordBatch],
    emissions: pa.RecordBatch,
) -> pa.RecordBatch:
    """Return emissions as messages that are events.

    A deletion is always in binary mode: its value is null, so that a compacted topic removes the key.
    """
    messages = of_batch(emissions)
    data = messages.column("value").view(pa.string())
    attributes = event_attributes(declared, outbox, emissions, data.is_valid())
    if declared.mode == "binary":
        return with_headers(messages, event_headers(attributes))
    is_deletion = data.is_null()
    events = pc.if_else(is_deletion, None, event_texts(attributes, data))
    messages = with_column(messages, "value", events.view(pa.binary()))
    headers = {
        name: pc.if_else(is_deletion, column, None) for name, column in event_headers(attributes).items()
    }
    headers[CONTENT_TYPE] = pc.if_else(is_deletion, pa.scalar(None, pa.binary()), STRUCTURED.encode())
    return with_headers(messages, headers)


def _windows(start: pa.Array, end: pa.Array) -> pa.Array:
    """Return `start/end`; null if there is no window."""
    # A stage without windows has none at all, so the text is not built for each row.
    if start.null_count == len(start):
        return pa.nulls(len(start), pa.binary())
    return pc.binary_join_element_wise(start.cast(pa.string()), end.cast(pa.string()), "/").view(pa.binary())


def _with_tombstones(
    of_batch: Callable[[pa.RecordBatch], pa.RecordBatch], emissions: pa.RecordBatch
) -> pa.RecordBatch:
    """Return emissions as messages, each deletion twice: in an envelope, and then as a tombstone."""
    deletes = emissions.column(VALUE).is_null().to_numpy(zero_copy_only=False)
    messages = of_batch(emissions)
    if not deletes.any():
        return messages
    rows = np.repeat(np.arange(len(deletes)), np.where(deletes, 2, 1))
    # The second of two equal row numbers is the tombstone.
    follows = np.concatenate([[False], rows[1:] == rows[:-1]])
    doubled = messages.take(pa.array(rows))
    values = pc.if_else(pa.array(follows), pa.scalar(None, pa.binary()), doubled.column("value"))
    return with_column(doubled, "value", values)


def _from(batches: Iterable[pa.RecordBatch], skip: int) -> Iterator[pa.RecordBatch]:
    """Yield the messages without the first `skip`."""
    for batch in batches:
        if skip < batch.num_rows:
            yield batch.slice(skip)
        skip = max(0, skip - batch.num_rows)


def with_headers(messages: pa.RecordBatch, headers: Mapping[str, pa.BinaryArray]) -> pa.RecordBatch:
    """Return messages with more headers, by their names."""
    for name, contents in headers.items():
        messages = messages.append_column(f"{HEADER}{name}", contents)
    return messages


_SHOWN = 4_000


@dataclass(frozen=True)
class MessagePart:
    """The part of a sink's messages that has a schema, its values or its keys, and the subject of the
    schema.

    Args:
        previous: The schema that the previous plan has for the same subject; None if it has none.
    """

    sink: KafkaSink
    payload: Payload
    subject: str
    previous: SinkSchema | None

    def __str__(self) -> str:
        return f"{'the keys of ' if self.payload.is_key else ''}what goes to {self.sink.topic}"


def planned_sink(
    pipeline: Pipeline,
    sink: KafkaSink,
    before: KafkaSink | None,
    registry: SchemaRegistry,
    may_register: bool,
) -> KafkaSink:
    """Return the sink with the schemas that a plan fixes.

    A schema that has not changed since the previous plan is taken from that plan, without asking the
    registry. A schema that would have to be registered, but may not be yet, as in a dry run, is left out.

    Args:
        before: The sink in the previous plan; None if that plan does not have it.
        may_register: Whether new schemas may be registered.

    Raises SchemaRefused if the format cannot express a column or the registry refuses the schema;
    SchemaUnknown, RegistryUnavailable, SettingsInvalid.
    """
    planned: list[SinkSchema | None] = []
    for payload, subject in ((sink.payload, sink.subject), (sink.key, sink.key_subject)):
        if payload is None or payload.format not in BY_REGISTRY:
            planned.append(None)
            continue
        previous = _previous_schema(before, payload, subject, registry.config.url)
        schema = _planned_schema(
            pipeline, MessagePart(sink, payload, subject, previous), registry, may_register
        )
        planned.append(schema)
    return sink.with_schemas(*planned)


def _previous_schema(
    before: KafkaSink | None, payload: Payload, subject: str, registry: str
) -> SinkSchema | None:
    if before is None:
        return None
    old, name = (before.key, before.key_subject) if payload.is_key else (before.payload, before.subject)
    if old is None or old.schema is None:
        return None
    # The id of one registry, or of one subject, says nothing in another.
    planned = (old.format, name, old.schema.registry)
    return old.schema if planned == (payload.format, subject, registry) else None


def _planned_schema(
    pipeline: Pipeline, part: MessagePart, registry: SchemaRegistry, may_register: bool
) -> SinkSchema | None:
    assert part.sink.registry is not None, "a sink with a schema has one"
    schema, previous = _schema(pipeline, part, registry), part.previous
    schema = replace(schema, registry=registry.config.url)
    if previous is not None and (previous.text, previous.imports) == (schema.text, schema.imports):
        # An id never changes its meaning, so an unchanged schema needs no registry that is up.
        return replace(schema, id=previous.id)
    language = formats()[part.payload.format].language
    assert language is not None, "its schemas have a language"
    record = RecordSchema(language.kind, schema.text, dict(schema.imports))
    schema_id = registry.lookup(part.subject, record)
    if schema_id is not None:
        return replace(schema, id=schema_id)
    if not part.sink.registry.may_register:
        raise SchemaUnknown(
            f"Subject {part.subject} of {registry.config.url} does not have the schema of {part}",
            f"Register it, or write `register: true` at the sink: {schema.text[:_SHOWN]}",
        )
    # A dry run changes nothing that others see; it only asks whether the registry would accept the schema.
    if may_register:
        return replace(schema, id=registry.register(part.subject, record))
    _require_compatible(part, record, registry)
    return None


def _schema(pipeline: Pipeline, part: MessagePart, registry: SchemaRegistry) -> SinkSchema:
    """Return the schema of the file, or the one that is derived from the columns."""
    if part.sink.schema_file is not None and not part.payload.is_key:
        assert part.payload.schema is not None, "it was read with the file"
        return part.payload.schema
    columns = message_columns(pipeline, part.sink, part.payload)
    name, namespace = pipeline.stage_of(part.sink).name, f"tidegate.{pipeline.pipeline}"
    if part.payload.is_key:
        name += "_key"
    elif part.sink.enveloped:
        name += "_envelope"
    try:
        messages = formats()[part.payload.format].messages
        assert messages is not None, "its messages have a schema"
        return messages.derive(name, namespace, columns, partial(_previous_text, part, registry))
    except Unwritable as error:
        raise SchemaRefused(
            f"What goes to {part.sink.topic} cannot be {part.payload.format}: {error}",
            "Select the column under another name or with another type, or use another format.",
        ) from None


def _previous_text(part: MessagePart, registry: SchemaRegistry) -> str:
    """Return the text of the subject's previous schema; empty if there is none."""
    if part.previous is not None:
        return part.previous.text
    try:
        return registry.version(part.subject).schema.text
    except SchemaUnknown:
        return ""


def _require_compatible(part: MessagePart, schema: RecordSchema, registry: SchemaRegistry) -> None:
    if not registry.is_compatible(part.subject, schema):
        raise SchemaRefused(
            f"The schema of {part} is not compatible with the versions of subject {part.subject} of "
            f"{registry.config.url}",
            "Change the columns so that consumers of the versions before can read it, or use another "
            "subject.",
        )
