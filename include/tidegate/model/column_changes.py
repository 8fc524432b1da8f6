"""Which edits of a stage's columns its state survives: added, removed, widened and renamed columns (see
docs/edits.md).

An edit never rewrites files of state: readers convert them to the present columns (`storage.evolution`).
This module compares the two pipeline files only, before any state is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

from tidegate.kernel import Aggregate
from tidegate.kernel.equality import fits, keeps_text
from tidegate.model import lexis
from tidegate.model.arrow import arrow_type
from tidegate.model.columns import BadType, parse_type
from tidegate.model.source import Source
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


def change_of(field: str, before: Any, after: Any, why: str) -> Change:
    """Return the change of a field between two values of the grammar; None is a field that does not exist.

    Example: `change_of("source.format", "json", "csv", "records would be read otherwise")`
    """
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


Renamed = Mapping[str, str]
"""Older name, in lower case -> the column's present name."""


@dataclass(frozen=True)
class _Column:
    """A column that a stage has before and after an edit, under two names or one."""

    before: str
    after: str


def renamed_columns(before: Source | Stage, after: Source | Stage) -> Renamed:
    """Return the columns of a source, or of a stage's emissions, that expressions name differently
    after the edit.

    Example: `{"qty": "quantity"}` if `quantity` replaces `qty`, and has it in its aliases.
    """
    declared = {old: name for name, older in after.aliases.items() for old in older}
    # A declared alias counts only for the edit that renames: earlier ones are renamed already.
    removed = _names(before) - _names(after)
    return {old.lower(): name for old, name in declared.items() if old in removed}


def column_changes(before: Stage, after: Stage, renamed: Renamed) -> Iterator[Change]:
    """Yield the edits of a stage's columns that its state does not survive.

    Args:
        before: The stage of the state.
        after: The edited stage, with the same name.
        renamed: The renamed columns of the stage's input.
    """
    columns = _common(before, after)
    yield from _in_aliases(before, after, columns)
    if before.reduce.by_name and after.reduce.by_name:
        yield from _in_aggregates(before, after, columns, renamed)
    for column in columns:
        yield from _in_type(before, after, column)
    yield from _in_counted_bytes(before, after)


def column_notes(before: Stage, after: Stage) -> Iterator[str]:
    """Yield sentences on columns that consumers will see newly, under another name, or no longer.

    Args:
        before: The stage as the head's batch was planned.
        after: The edited stage, with the same name.
    """
    columns = _common(before, after)
    were, are = {column.before for column in columns}, {column.after for column in columns}
    for name in after.values:
        if name not in are:
            yield f"The stage {after.name} emits {name} from now on: in earlier emissions it is null"
    for name in before.values:
        if name not in were:
            yield f"The stage {after.name} no longer emits or compares {name}"
    for column in columns:
        if column.before != column.after:
            yield f"The stage {after.name} emits {column.before} as {column.after} from now on"


def _common(before: Stage, after: Stage) -> list[_Column]:
    """Return the columns that both stages have. A renamed column is recognized by its older names."""
    columns = []
    for name in after.values:
        # The present name first: if the column had it before the edit, nothing was renamed.
        candidates = (name, *after.aliases.get(name, ()))
        earlier = next((candidate for candidate in candidates if candidate in before.values), None)
        if earlier is not None:
            columns.append(_Column(earlier, name))
    return columns


def _in_aliases(before: Stage, after: Stage, columns: list[_Column]) -> Iterator[Change]:
    """Yield wrong aliases: an older name must be declared with the edit that renames the column, and stay
    declared as long as the column exists, because older state files have the column under that name.
    """
    origins = {column.after: column.before for column in columns}
    for name in after.values:
        declared, origin = after.aliases.get(name, ()), origins.get(name)
        earlier = before.aliases.get(origin, ()) if origin is not None else ()
        place = f"stages.{after.name}.aliases.{name}"
        # Allowed are the aliases so far, and the name that this very edit replaces.
        unknown = [old for old in declared if old not in (*earlier, *({origin} - {name}))]
        if unknown and origin == name:
            why = f"the state has {name} by its own name, and {unknown[0]} would be another column"
            yield change_of(place, earlier or None, declared, why)
        elif unknown:
            why = f"no column of the state is called {unknown[0]}, or two of them became one"
            yield change_of(place, earlier or None, declared, why)
        elif missing := [old for old in earlier if old not in declared]:
            yield change_of(place, earlier, declared or None, f"older rows have the column as {missing[0]}")


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
            yield change_of(f"stages.{after.name}.reduce.{name}", was, aggregate.text, why)


def _in_type(before: Stage, after: Stage, column: _Column) -> Iterator[Change]:
    """Yield a changed type, unless it is wide enough for the values so far. If the state has only hashes of
    the values, which are hashes of texts, the values must also keep their texts.
    """
    was, now = before.types.get(column.before), after.types.get(column.after)
    if was is None or now is None or was == now:
        return
    place = f"stages.{after.name}.{column.after}"
    stored, requested = _state_types(before, column.before, was), _state_types(after, column.after, now)
    if stored is None or requested is None:
        yield change_of(place, was, now, "the values so far are of the other type")
        return
    # Both the accumulator and the result are stored, and each must fit.
    if _keeps_values(after) and not all(map(fits, stored, requested)):
        yield change_of(place, was, now, "the values so far are of the other type, and may not fit")
    # A hash is of the value's text: `1` and `1.0` are equal numbers with different hashes.
    elif _is_hashed(after, column.after) and not keeps_text(stored[-1], requested[-1]):
        yield change_of(place, was, now, "all values would have another hash, and be emitted again")


def _in_counted_bytes(before: Stage, after: Stage) -> Iterator[Change]:
    """Yield a changed list of fields, if the stage counts bytes: buffered events were counted with
    the old fields.
    """
    counted = [stage.emit.max_text_bytes for stage in (before, after)]
    if all(counted) and _event_types(before) != _event_types(after):
        why = "the bytes of the buffered events were counted with other fields"
        yield change_of(f"stages.{after.name}.select", [*before.values], [*after.values], why)


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


def _is_hashed(stage: Stage, name: str) -> bool:
    return stage.emit.marks and name in stage.emit.compared


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
    return set(columns.values)
