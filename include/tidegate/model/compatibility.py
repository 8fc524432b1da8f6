"""Which edits of a pipeline file the state of its generation survives (docs/edits.md has the table).

This module compares the fields that state rows, timers and keys were made with. Fields that only decide what
is emitted from now on, and where to, may change. It cannot compare types that only Spark knows: for those,
`SchemaChanged` halts the batch.

The earlier pipeline may have been planned by another grammar, so its texts are not parsed. A text that
today's grammar cannot split into words is compared as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegate import kernel
from tidegate.expressions.types import ANY, INTEGERS, Type
from tidegate.model.column_changes import Change, change_of, column_changes, column_notes, renamed_columns
from tidegate.model.columns import BadType, parse_type
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.keys import DeduplicateColumns
from tidegate.model.pipeline import Pipeline
from tidegate.model.planned import python_functions
from tidegate.model.source import Source
from tidegate.model.stage import Stage


def incompatible_changes(before: Pipeline, after: Pipeline) -> list[Change]:
    """Return the edits because of which batches of `after` cannot continue from the state of `before`.

    The list is empty if they can. Both pipelines are of the same generation.

    Example: `[Change("source.key", '["id"]', '["storeId", "id"]', "state is found by the key")]`
    """
    changes = [*_in_source(before.source, after.source)]
    names = [stage.name for stage in before.stages], [stage.name for stage in after.stages]
    # Stages cannot be compared in pairs then.
    if names[0] != names[1]:
        return [
            *changes,
            change_of("stages", *names, "each stage has its own state, made of all records so far"),
        ]
    renamed = renamed_columns(before.source, after.source)
    for old, new in zip(before.stages, after.stages, strict=True):
        changes += [*_in_stage(old, new), *column_changes(old, new, renamed)]
        # The next stage reads the emissions of this one, so these are its renamed columns.
        renamed = renamed_columns(old, new)
        if _is_bounded(before, old) != _is_bounded(after, new):
            why = "a buffer with a bound keeps its state per partition"
            changes.append(change_of(f"stages.{new.name}.emit.buffer", _buffer(old), _buffer(new), why))
    return changes


def notable_changes(before: Pipeline, after: Pipeline) -> list[str]:
    """Return sentences on edits that state survives and that consumers should know about.

    Args:
        before: The pipeline of the head.
        after: The edited one, of the same generation.
    """
    old = {sink.name: before.stage_of(sink).name for sink in before.outputs}
    new = {sink.name: after.stage_of(sink).name for sink in after.outputs}
    functions = python_functions(before), python_functions(after)
    return [
        *_elsewhere(before.source, after.source),
        *(note for stages in _pairs(before, after) for note in column_notes(*stages)),
        *(
            f"The function {name} has changed: it decides with each key's next record"
            for name in functions[0].keys() & functions[1].keys()
            if functions[0][name] != functions[1][name]
        ),
        *(f"The sink {name} is new: it gets emissions from now on" for name in new.keys() - old.keys()),
        *(f"The sink {name} was removed: it gets nothing more" for name in old.keys() - new.keys()),
        *(
            f"The sink {name} gets the emissions of {new[name]} from now on, no longer those of {old[name]}"
            for name in old.keys() & new.keys()
            if old[name] != new[name]
        ),
    ]


def _pairs(before: Pipeline, after: Pipeline) -> Iterator[tuple[Stage, Stage]]:
    """Yield the stages that both pipelines have, matched by name."""
    old = {stage.name: stage for stage in before.stages}
    yield from ((old[stage.name], stage) for stage in after.stages if stage.name in old)


def _elsewhere(before: Source, after: Source) -> Iterator[str]:
    if before.connection != after.connection:
        yield (
            f"The source is read by the connection {after.connection or 'without a name'} from now on: "
            "tidegate compares the ids of its topics to see whether they are the same"
        )


def _in_source(before: Source, after: Source) -> Iterator[Change]:
    removed = sorted(set(before.topics) - set(after.topics))
    if removed:
        why = "records of the topic stay in the state, and its stream time would stand still"
        yield change_of("source.topics", before.topics, after.topics, why)
    why = "records that are not read yet were written in the other one"
    yield from _if_changed("source.format", before.format, after.format, why)
    yield from _if_changed("source.key_format", before.key_format, after.key_format, why)
    # With another format the dialect is another one anyway, and one message is enough.
    if before.format == after.format:
        yield from _if_changed("source.csv", before.csv, after.csv, why)
    yield from _if_changed("source.key", before.key, after.key, "state is found by the key")
    yield from _if_changed("source.explode", before.explode, after.explode, "it makes other records")
    why = "windows, timers and lateness depend on it"
    yield from _if_changed("source.timestamp", before.timestamp, after.timestamp, why)
    why = "the records so far were remembered in another way"
    yield from _if_changed("source.deduplicate", before.deduplicate, after.deduplicate, why)
    yield from _if_changed("source.sequence", before.sequence, after.sequence, why)
    types = _column_types(before), _column_types(after)
    # Only columns of both: another key is reported already.
    for name in sorted({*_identities(before)} & {*_identities(after)}):
        old, new = (columns[name] for columns in types)
        # Integers of all widths have the same text, so a key stays the same if its column gets wider.
        if old.text != new.text and not {old.kind, new.kind} <= INTEGERS.keys():
            why = "keys would be written in another way"
            yield change_of(f"source.columns.{name}", old.text, new.text, why)


def _identities(source: Source) -> tuple[str, ...]:
    """Return the columns that identify or order records: those of the key, `deduplicate` and `sequence`."""
    rule, sequence = source.deduplicate, source.sequence
    repeated = rule.columns if isinstance(rule, DeduplicateColumns) else ()
    return (*(source.key or ()), *repeated, *((sequence.columns or ()) if sequence else ()))


def _in_stage(before: Stage, after: Stage) -> Iterator[Change]:
    place = f"stages.{after.name}"
    yield from _if_changed(f"{place}.key", before.key, after.key, "state is found by the key")
    yield from _if_changed(f"{place}.window", before.window, after.window, "state is kept per window")
    yield from _in_reduce(f"{place}.reduce", before, after)
    yield from _in_emit(f"{place}.emit", before.emit, after.emit)


def _in_reduce(place: str, before: Stage, after: Stage) -> Iterator[Change]:
    why = "the values so far were folded differently"
    # `column_changes` compares two sets of aggregates one by one.
    if not (before.reduce.by_name and after.reduce.by_name):
        yield from _if_changed(place, before.reduce.description, after.reduce.description, why)


def _in_emit(place: str, before: kernel.Emit, after: kernel.Emit) -> Iterator[Change]:
    if before.on != after.on:
        yield change_of(f"{place}.on", before.on, after.on, "the state of each key depends on it")
        return
    # The other direction is allowed: the run's clock only lets time rise, and no closed window opens again.
    if (before.clock, after.clock) == ("run", "stream"):
        yield change_of(
            f"{place}.clock", before.clock, after.clock, "time would go back, and windows open again"
        )
    for name, was, now, why in before.state_changes(after):
        yield from _if_changed(f"{place}.{name}", was, now, why)


def _column_types(source: Source) -> dict[str, Type]:
    """Return the type of each column as keys see it: an exploded array has the type of its elements."""
    types = {column.name: _column_type(column.type) for column in source.row_columns}
    exploded = types.get(source.explode or "")
    return {**types, str(source.explode): exploded.parts[0]} if exploded and exploded.parts else types


def _column_type(text: str) -> Type:
    """Parse a type. A type that today's grammar refuses is equal only to itself."""
    try:
        return parse_type(text)
    except BadType:
        return Type(text, ANY.kind)


def _is_bounded(pipeline: Pipeline, stage: Stage) -> bool:
    return kernel_stage(pipeline, stage).bound is not None


def _buffer(stage: Stage) -> Any:
    return stage.emit.buffer


def _if_changed(field: str, before: Any, after: Any, why: str) -> Iterator[Change]:
    if before != after:
        yield change_of(field, before, after, why)
