"""Which edits of a pipeline file the state of its generation survives (docs/edits.md has the table).

This module compares two pipeline files, before any state is read: the fields that state rows, timers and keys
were made with, and the columns of each stage, which may be added, removed, widened and renamed. Fields that
only decide what is emitted from now on, and where to, may change. An edit never rewrites files of state:
`storage.evolution` reads them as the present columns. Types that only Spark knows cannot be compared here:
for those, `SchemaChanged` halts the batch.

The earlier pipeline may have been planned by another grammar, so its texts are not parsed. A text that
today's grammar cannot split into words is compared as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

from tidegate import kernel
from tidegate.expressions.arrow import arrow_type
from tidegate.expressions.types import ANY, INTEGERS, ColumnTypes, Type
from tidegate.kernel import Aggregate
from tidegate.kernel.equality import fits, keeps_text
from tidegate.model import lexis
from tidegate.model.columns import BadType, parse_type
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.keys import DeduplicateColumns
from tidegate.model.names import SOURCE
from tidegate.model.nested import type_at, with_type_at
from tidegate.model.pipeline import Pipeline
from tidegate.model.planned import python_functions
from tidegate.model.source import Source
from tidegate.model.sources import Sources
from tidegate.model.stage import Stage


@dataclass(frozen=True)
class Change:
    """An edit that state does not survive: the field, its values before and after as text, and the reason."""

    field: str
    before: str
    after: str
    why: str

    def __str__(self) -> str:
        return f"`{self.field}` was {self.before} and is {self.after} ({self.why})"


Renamed = Mapping[str, str]
"""Older name, in lower case -> the column's present name."""


@dataclass(frozen=True)
class _Column:
    """A column that a stage has before and after an edit, under two names or one."""

    before: str
    after: str


def incompatible_changes(before: Pipeline, after: Pipeline) -> list[Change]:
    """Return the edits because of which batches of `after` cannot continue from the state of `before`.

    The list is empty if they can. Both pipelines are of the same generation.

    Example: `[Change("source.key", '["id"]', '["storeId", "id"]', "state is found by the key")]`
    """
    changes = [*_in_sources(before.sources, after.sources), *_in_lookups(before, after)]
    names = [stage.name for stage in before.stages], [stage.name for stage in after.stages]
    # Stages cannot be compared in pairs then.
    if names[0] != names[1]:
        return [
            *changes,
            _change("stages", *names, "each stage has its own state, made of all records so far"),
        ]
    # Stages that read the emissions of a stage, or records of a source, have its renamed columns.
    renamed = {
        name: _renamed_columns(source, after.sources[name])
        for name, source in before.sources.items()
        if name in after.sources
    }
    for old, new in zip(before.stages, after.stages, strict=True):
        why = "its state is made of other records"
        if not (old.emit.inputs and new.emit.inputs):  # the sides of a join are compared as its own
            changes += _if_changed(f"stages.{new.name}.from", old.inputs, new.inputs, why)
        of_inputs = {old: new for name in new.inputs for old, new in renamed.get(name, {}).items()}
        changes += [*_in_stage(old, new), *_column_changes(old, new, of_inputs)]
        if old.expected is not None and new.expected is None:
            why = "keys that wait for their first record would be reported without it"
            changes.append(_change(f"stages.{new.name}.expected", old.expected.table, None, why))
        renamed[new.name] = _renamed_columns(old, new)
        if (kernel_stage(before, old).bound is None) != (kernel_stage(after, new).bound is None):
            why = "a buffer with a bound keeps its state per partition"
            changes.append(_change(f"stages.{new.name}.emit.buffer", old.emit.buffer, new.emit.buffer, why))
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
    stages = {stage.name: stage for stage in before.stages}
    return [
        *_elsewhere(before.sources, after.sources),
        *(
            note
            for stage in after.stages
            if stage.name in stages
            for note in _column_notes(stages[stage.name], stage)
        ),
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


def _elsewhere(before: Sources, after: Sources) -> Iterator[str]:
    if before.connection != after.connection:
        yield (
            f"The source is read by the connection {after.connection or 'without a name'} from now on: "
            "tidegate compares the ids of its topics to see whether they are the same"
        )


def _in_lookups(before: Pipeline, after: Pipeline) -> Iterator[Change]:
    if after.reacting_lookups and not before.reacting_lookups:
        why = "the state does not have the last record of each key"
        yield _change("lookup.on_change", "nothing", "emit", why)
    if before.reacting_lookups and after.reacting_lookups:
        for name in before.sources.keys() & after.sources.keys():
            yield from _in_last_records(_place_of(name), before.sources[name], after.sources[name])


def _in_last_records(place: str, before: Source, after: Source) -> Iterator[Change]:
    """Yield aliases that are no longer declared although the column exists, and others than of a renamed
    column: the state has older records, maybe with both columns.
    """
    for name, older in after.aliases.items():
        origin = next((column for column in (name, *older) if column in _names(before)), name)
        allowed = (*before.aliases.get(origin, ()), *({origin} - {name}))
        if origin in _names(before) and (added := [old for old in older if old not in allowed]):
            why = f"last records have the column as {origin}, and {added[0]} would be another column"
            yield _change(f"{place}.aliases.{name}", before.aliases.get(origin), older, why)
    owners = {old: name for name, older in after.aliases.items() for old in older}
    for column, older in before.aliases.items():
        owner = column if column in _names(after) else owners.get(column)
        if owner is not None and (missing := [old for old in older if owners.get(old) != owner]):
            why = f"last records from before have the column as {missing[0]}"
            yield _change(f"{place}.aliases.{owner}", older, after.aliases.get(owner), why)


def _in_sources(before: Sources, after: Sources) -> Iterator[Change]:
    for name, source in before.items():
        if name in after:
            yield from _in_source(_place_of(name), source, after[name])
    if not before.keys() <= after.keys():
        why = "records of the source stay in the state, and its stream time would stand still"
        yield _change("sources", list(before), list(after), why)


def _place_of(source: str) -> str:
    """Return the field of a source."""
    return "source" if source == SOURCE else f"sources.{source}"


def _in_source(place: str, before: Source, after: Source) -> Iterator[Change]:
    if not all(map(after.reads, before.topics)):
        why = "records of the topic stay in the state, and its stream time would stand still"
        yield _change(f"{place}.topics", before.topics, after.selection, why)
    why = "records that are not read yet were written in the other one"
    yield from _if_changed(f"{place}.format", before.format, after.format, why)
    yield from _if_changed(f"{place}.key_format", before.key_format, after.key_format, why)
    # With another format the dialect is another one anyway, and one message is enough.
    if before.format == after.format:
        yield from _if_changed(f"{place}.csv", before.csv, after.csv, why)
    yield from _if_changed(f"{place}.key", before.key_paths, after.key_paths, "state is found by the key")
    yield from _if_changed(f"{place}.explode", before.explode, after.explode, "it makes other records")
    why = "windows, timers and lateness depend on it"
    yield from _if_changed(f"{place}.timestamp", before.timestamp, after.timestamp, why)
    why = "the records so far were remembered in another way"
    yield from _if_changed(f"{place}.deduplicate", before.deduplicate, after.deduplicate, why)
    yield from _if_changed(f"{place}.sequence", before.sequence, after.sequence, why)
    types = _column_types(before), _column_types(after)
    # Only columns of both: another key is reported already.
    for name in sorted({*_identities(before)} & {*_identities(after)}):
        old, new = (type_at(name, columns) or ANY for columns in types)
        # Integers of all widths have the same text, so a key stays the same if its column gets wider.
        if old.text != new.text and not {old.kind, new.kind} <= INTEGERS.keys():
            why = "keys would be written in another way"
            yield _change(f"{place}.columns.{name}", old.text, new.text, why)
        yield from _if_changed(
            f"{place}.columns.{name}", _origin(before, name), _origin(after, name), "it has another content"
        )


def _origin(source: Source, column: str) -> str:
    """Return where a column is read."""
    if column in source.metadata:
        return f"metadata {source.metadata[column]}"
    return f"header {source.headers[column].name}" if column in source.headers else "value or key"


def _identities(source: Source) -> tuple[str, ...]:
    """Return the columns that identify or order records: those of the key, `deduplicate` and `sequence`."""
    rule, sequence = source.deduplicate, source.sequence
    repeated = rule.columns if isinstance(rule, DeduplicateColumns) else ()
    return (*(source.key or ()), *repeated, *((sequence.columns or ()) if sequence else ()))


def _in_stage(before: Stage, after: Stage) -> Iterator[Change]:
    place = f"stages.{after.name}"
    yield from _if_changed(f"{place}.key", before.key_paths, after.key_paths, "state is found by the key")
    yield from _if_changed(f"{place}.window", before.window, after.window, "state is kept per window")
    why = "the groups so far were counted in the other way"
    yield from _if_changed(f"{place}.retract", before.retract, after.retract, why)
    yield from _in_reduce(f"{place}.reduce", before, after)
    yield from _in_emit(f"{place}.{'emit' if after.join is None else 'join'}", before.emit, after.emit)


def _in_reduce(place: str, before: Stage, after: Stage) -> Iterator[Change]:
    why = "the values so far were folded differently"
    # `_in_aggregates` compares two sets of aggregates one by one.
    if not (before.reduce.by_name and after.reduce.by_name):
        yield from _if_changed(place, before.reduce.description, after.reduce.description, why)


def _in_emit(place: str, before: kernel.Emit, after: kernel.Emit) -> Iterator[Change]:
    if before.on != after.on:
        yield _change(f"{place}.on", before.on, after.on, "the state of each key depends on it")
        return
    # The other direction is allowed: the run's clock only lets time rise, and no closed window opens again.
    if (before.clock, after.clock) == ("run", "stream"):
        yield _change(
            f"{place}.clock", before.clock, after.clock, "time would go back, and windows open again"
        )
    for name, was, now, why in before.state_changes(after):
        yield from _if_changed(f"{place}.{name}", was, now, why)


def _column_types(source: Source) -> ColumnTypes:
    """Return the type of each column as keys see it: an exploded array has the type of its elements."""
    types: ColumnTypes = {column.name: _column_type(column.type) for column in source.row_columns}
    exploded = type_at(source.explode, types) if source.explode is not None else None
    return (
        with_type_at(str(source.explode), types, exploded.parts[0]) if exploded and exploded.parts else types
    )


def _column_type(text: str) -> Type:
    """Parse a type. A type that today's grammar refuses is equal only to itself."""
    try:
        return parse_type(text)
    except BadType:
        return Type(text, ANY.kind)


def _if_changed(field: str, before: Any, after: Any, why: str) -> Iterator[Change]:
    if before != after:
        yield _change(field, before, after, why)


def _renamed_columns(before: Source | Stage, after: Source | Stage) -> Renamed:
    """Return the columns of a source, or of a stage's emissions, that expressions name differently now.

    Example: `{"qty": "quantity"}` if `quantity` replaces `qty`, and has it in its aliases.
    """
    declared = {old: name for name, older in after.aliases.items() for old in older}
    # A declared alias counts only for the edit that renames: earlier ones are renamed already.
    removed = _names(before) - _names(after)
    return {old.lower(): name for old, name in declared.items() if old in removed}


def _column_changes(before: Stage, after: Stage, renamed: Renamed) -> Iterator[Change]:
    """Yield the edits of a stage's columns that its state does not survive. `renamed` are the renamed columns
    of the stage's input.
    """
    columns = _common(before, after)
    yield from _in_case(before, after)
    yield from _in_aliases(before, after, columns)
    if before.reduce.by_name and after.reduce.by_name:
        yield from _in_aggregates(before, after, columns, renamed)
    for column in columns:
        yield from _in_type(before, after, column)
    yield from _in_formulas(before, after, columns)
    yield from _in_counted_bytes(before, after)


def _in_case(before: Stage, after: Stage) -> Iterator[Change]:
    """Yield the columns whose names differ from earlier ones in case only, also by an alias."""
    existing = {*before.named, *before.values}
    spelled = {name.lower(): name for name in existing}
    for name in dict.fromkeys((*after.named, *after.values)):
        if name not in existing and (was := spelled.get(name.lower())) is not None:
            why = "tables keep the columns of earlier batches, and most do not tell upper from lower case"
            yield _change(f"stages.{after.name}.{name}", was, name, why)


def _column_notes(before: Stage, after: Stage) -> Iterator[str]:
    """Yield sentences on columns that consumers will see newly, under another name, or no longer."""
    columns = _common(before, after)
    were, are = {column.before for column in columns}, {column.after for column in columns}
    for name in after.named:
        if name not in are:
            yield f"The stage {after.name} emits {name} from now on: in earlier emissions it is null"
    for name in before.named:
        if name not in were:
            yield f"The stage {after.name} no longer emits or compares {name}"
    for column in columns:
        if column.before != column.after:
            yield f"The stage {after.name} emits {column.before} as {column.after} from now on"


def _common(before: Stage, after: Stage) -> list[_Column]:
    """Return the columns that both stages have. A renamed column is recognized by its older names."""
    columns = []
    existing = {*before.named, *before.values}
    for name in dict.fromkeys((*after.named, *after.values)):
        # The present name first: if the column had it before the edit, nothing was renamed.
        candidates = (name, *after.aliases.get(name, ()))
        earlier = next((candidate for candidate in candidates if candidate in existing), None)
        if earlier is not None:
            columns.append(_Column(earlier, name))
    return columns


def _in_aliases(before: Stage, after: Stage, columns: list[_Column]) -> Iterator[Change]:
    """Yield wrong aliases: an older name must be declared with the edit that renames the column, and stay
    declared as long as the column exists, because older state files have the column under that name.
    """
    origins = {column.after: column.before for column in columns}
    for name in after.named:
        declared, origin = after.aliases.get(name, ()), origins.get(name)
        earlier = before.aliases.get(origin, ()) if origin is not None else ()
        place = f"stages.{after.name}.aliases.{name}"
        # Allowed are the aliases so far, and the name that this very edit replaces.
        unknown = [old for old in declared if old not in (*earlier, *({origin} - {name}))]
        if unknown and origin == name:
            why = f"the state has {name} by its own name, and {unknown[0]} would be another column"
            yield _change(place, earlier or None, declared, why)
        elif unknown:
            why = f"no column of the state is called {unknown[0]}, or two of them became one"
            yield _change(place, earlier or None, declared, why)
        elif missing := [old for old in earlier if old not in declared]:
            yield _change(place, earlier, declared or None, f"older rows have the column as {missing[0]}")


def _in_aggregates(before: Stage, after: Stage, columns: list[_Column], renamed: Renamed) -> Iterator[Change]:
    """Yield aggregates that are new or computed differently.

    A removed aggregate is no problem: state drops it.
    """
    old, new = before.reduce.by_name, after.reduce.by_name
    origins = {column.after: column.before for column in columns}
    # State has only the results: an aggregate that is new or different cannot be computed from them.
    for name, aggregate in new.items():
        origin = old.get(origins.get(name, ""))
        if origin is None or _words(origin, renamed) != _words(aggregate, {}):
            why = "the values so far were folded differently"
            was = origin.text if origin is not None else None
            yield _change(_in_file(after, "reduce", name), was, aggregate.text, why)


def _in_file(stage: Stage, *path: str) -> str:
    """Return the field of a column: its own, or that of all aggregates if it is only a part of formulas."""
    return ".".join(
        ("stages", stage.name, *(part for part in path if part == "reduce" or part in stage.named))
    )


def _in_type(before: Stage, after: Stage, column: _Column) -> Iterator[Change]:
    """Yield a changed type, unless it is wide enough for the values so far. If the state has only hashes of
    the values, which are hashes of texts, the values must also keep their texts.
    """
    was, now = before.types.get(column.before), after.types.get(column.after)
    if was is None or now is None or was == now:
        return
    place = _in_file(after, *(() if column.after in after.named else ("reduce",)), column.after)
    stored, requested = _state_types(before, column.before, was), _state_types(after, column.after, now)
    if stored is None or requested is None:
        yield _change(place, was, now, "the values so far are of the other type")
        return
    # Both the accumulator and the result are stored, and each must fit.
    if _keeps_values(after) and not all(map(fits, stored, requested)):
        yield _change(place, was, now, "the values so far are of the other type, and may not fit")
    # A hash is of the value's text: `1` and `1.0` are equal numbers with different hashes.
    elif column.after in _hashed(after) and not keeps_text(stored[-1], requested[-1]):
        yield _change(place, was, now, "all values would have another hash, and be emitted again")


def _in_formulas(before: Stage, after: Stage, columns: list[_Column]) -> Iterator[Change]:
    """Yield formulas whose emissions so far are of a type that the present one does not include."""
    types = _formula_types(before), _formula_types(after)
    for column in columns:
        was, now = types[0].get(column.before), types[1].get(column.after)
        if was is None or now is None or was == now or pa.null() in (was, now):
            continue
        place = f"stages.{after.name}.reduce.{column.after}"
        if column.after in _hashed(after) and not keeps_text(was, now):
            yield _change(place, was, now, "all values would have another hash, and be emitted again")
        elif not fits(was, now):
            yield _change(place, was, now, "the emissions so far are of the other type, and may not fit")


def _formula_types(stage: Stage) -> Mapping[str, pa.DataType]:
    """Return the types of a stage's emissions if they have formulas; null for an unknown type."""
    if not stage.reduce.formulas:
        return {}
    arguments = pa.struct([(name, _arrow(stage.types.get(name))) for name in stage.values])
    return {field.name: field.type for field in stage.reduce.output_type(arguments)}


def _arrow(text: str | None) -> pa.DataType:
    try:
        return pa.null() if text is None else arrow_type(parse_type(text))
    except (BadType, KeyError):
        return pa.null()


def _in_counted_bytes(before: Stage, after: Stage) -> Iterator[Change]:
    """Yield a changed list of fields if the stage counts bytes, which were counted with the old fields."""
    counted = [stage.emit.max_text_bytes for stage in (before, after)]
    if all(counted) and _event_types(before) != _event_types(after):
        why = "the bytes of the buffered events were counted with other fields"
        yield _change(f"stages.{after.name}.select", [*before.values], [*after.values], why)


def _event_types(stage: Stage) -> list[tuple[str, str | None]]:
    return [(name, stage.types.get(name)) for name in stage.values]


def _state_types(stage: Stage, name: str, type_: str) -> tuple[pa.DataType, ...] | None:
    """Return the types in which a stage stores a column, the type of its emissions last.

    None if today's grammar no longer accepts the type, or if the type is not completely known.
    """
    try:
        argument = pa.field(name, arrow_type(parse_type(type_)))
    except (BadType, KeyError):
        return None
    return stage.reduce.column_types(argument)


def _keeps_values(stage: Stage) -> bool:
    """Return whether the state has the stage's values, and not only hashes of them."""
    return not (stage.emit.marks and stage.reduce.newest_only)


def _hashed(stage: Stage) -> tuple[str, ...]:
    return stage.emit.compared if stage.emit.marks else ()


def _words(aggregate: Aggregate, renamed: Renamed) -> list[str]:
    """Return the words of an aggregate's text, with the present names of its columns. Blanks make no
    difference.

    A text that today's grammar cannot split is a single word, so it is equal only to itself.
    """
    text = aggregate.text
    words, faults = lexis.split(text)
    if faults:
        return [text]
    # A name behind a dot is a field of a struct, which no alias renames.
    parts = ["", *(word.text for word in words)]
    return [
        renamed.get(word.text.strip("`").lower(), word.text)
        if word.kind != "string" and before != "."
        else word.text
        for before, word in zip(parts, words, strict=False)
    ]


def _names(columns: Source | Stage) -> set[str]:
    if isinstance(columns, Source):
        return {column.name for column in columns.columns}
    return set(columns.named)


def _change(field: str, before: Any, after: Any, why: str) -> Change:
    """Return the change of a field between two values of the grammar; None is a field that does not exist."""
    return Change(field, _as_text(before), _as_text(after), why)


def _as_text(value: Any) -> str:
    if value is None:
        return "not there"
    if isinstance(value, str):
        return value
    return json.dumps(_plain(value), ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        # Fields that are null were not written, and would only hide the difference.
        return {name: part for name, part in asdict(value).items() if part is not None}
    return value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value
