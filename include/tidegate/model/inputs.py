"""`from` and `key` of a stage: what it reads, and by which columns it groups that.

A stage reads the emissions of a stage above it, or the records of one source, or of several as their union.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationInfo as Info
from pydantic_core import PydanticCustomError

from tidegate.expressions.types import ColumnTypes
from tidegate.model import names
from tidegate.model.mistakes import did_you_mean, listed, mistake, shown
from tidegate.model.nested import named_columns, type_at
from tidegate.model.scope import Scope, SourceScope, StageScope, distinct, require_filled, scope_of
from tidegate.model.sources import union_columns, union_key
from tidegate.model.windows import WINDOW_TIMES

_NAMES = {"type": "array", "items": {"type": "string"}, "minItems": 1}
INPUTS = {"anyOf": [{"type": "string"}, _NAMES, {"type": "null"}]}
"""The JSON Schema of `from`."""


def open_stage(scope: Scope) -> None:
    """Add the next stage to the scope. Until `from` is read, its input is unknown."""
    # Before the fields: each notes its facts in the newest entry.
    scope.stages.append(StageScope(input=StageScope()))


def read_input(written: Any, info: Info) -> Any:
    """Return the names of what the stage reads: by default the stage before it, or all sources; of a
    join, both sides.
    """
    scope = scope_of(info)
    if scope.stage.joins:
        return list(scope.stage.reads) or [""]
    if written is None:
        earlier = scope.stages[:-1]
        # without a name, that stage has a mistake, which is reported already
        return [earlier[-1].name or ""] if earlier else list(scope.sources) or [names.SOURCE]
    if not isinstance(written, (str, list, tuple)):
        fix = "Write a name, or for the union of sources a list of names."
        raise mistake(f"{shown(written)} is no input of a stage", fix)
    return require_filled([written] if isinstance(written, str) else written)


def note_input(inputs: tuple[str, ...], info: Info) -> tuple[str, ...]:
    """Note the columns that the stage may name: those of sources, or the key and emissions of the stage that
    it reads. Returns the names.
    """
    scope = scope_of(info)
    if scope.stage.joins:  # its inputs are noted already
        return inputs
    stages = {stage.name or "": stage for stage in scope.stages[:-1]}
    if len(inputs) == 1 and inputs[0] in stages:
        _note_emissions(scope.stage, stages[inputs[0]])
        scope.stage.reads = inputs
        return inputs
    for name in inputs:
        if name not in scope.sources and scope.sources:
            raise _unknown(name, inputs, stages, scope)
    distinct(inputs)
    scope.stage.input, scope.stage.sources, scope.stage.reads = None, inputs, inputs
    sources = {name: scope.sources[name] for name in inputs if name in scope.sources}
    if sources:
        _note_records(scope, sources)
    return inputs


def _unknown(
    name: str, inputs: tuple[str, ...], stages: Mapping[str, StageScope], scope: Scope
) -> PydanticCustomError:
    """Return the mistake of a name that is no source, and not the one stage that the stage reads."""
    sources = listed(scope.sources)
    if name == scope.stage.name:
        return mistake("a stage cannot read its own emissions", f"Name a stage above it, or {sources}.")
    if name in stages:
        fix = "Name one stage, or several sources."
        return mistake(f"`{name}` is a stage, and a union is of sources", fix)
    if name == names.SOURCE:
        fix = f"Write {listed(scope.sources)}, or a list of them."
        return mistake("the sources of this pipeline have names", fix)
    if len(inputs) > 1:
        fix = did_you_mean(name, scope.sources, f"Write {sources}.")
        return mistake(f"there is no source `{name}`", fix)
    records = sources if scope.named else "the source"
    choices = [*scope.sources, *filter(None, stages)]
    fix = f"Write {listed(choices)}. A stage reads {records} or a stage above it in the file."
    return mistake(f"there is no stage `{name}` above this one", did_you_mean(name, choices, fix))


def named_stage(name: str, info: Info) -> StageScope:
    """Return the stage above that a side of a join names. Raises a mistake if there is none."""
    scope = scope_of(info)
    by_name = {stage.name: stage for stage in scope.stages[:-1] if stage.name is not None}
    if name not in by_name:
        fix = f"Write {listed(by_name)}." if by_name else "Put the stages that it joins above it."
        raise mistake(f"there is no stage `{name}` above this one", did_you_mean(name, by_name, fix))
    return by_name[name]


def input_columns(before: StageScope) -> ColumnTypes | None:
    """Return the columns of a stage's emissions, its key and its window; None if they are unknown."""
    # With one of them unknown, a missing column cannot be told from a mistake.
    if before.keys is None or before.emitted is None or before.windowed is None:
        return None
    return {**before.keys, **before.emitted, **(WINDOW_TIMES if before.windowed else {})}


def _note_emissions(stage: StageScope, before: StageScope) -> None:
    stage.input, stage.keys, stage.columns = before, before.keys, input_columns(before)


def _note_records(scope: Scope, sources: Mapping[str, SourceScope]) -> None:
    stage = scope.stage
    columns, key = union_columns(sources), union_key(sources)
    if columns is None:
        return
    stage.columns = {**columns, **scope.lookups}
    if key is not None:
        stage.keys = {name: columns.get(name) for name in key}
    # a field of a key is a column beside its struct; in the union it may be a column of its own elsewhere
    fields = [{*source.nested} for source in sources.values()]
    stage.fields = set.intersection(*fields)


def note_key(key: tuple[str, ...] | None, info: Info) -> tuple[str, ...] | None:
    """Note the columns of the stage's key. Raises a mistake if the stage cannot have a key of its own."""
    scope = scope_of(info)
    stage = scope.stage
    if key is not None:
        if len(scope.stages) == 1:
            fix = "Use `key` of its sources." if scope.named else "Use `source.key`."
            raise mistake("the first stage has the source's key", fix)
        _check_key_of_records(key, scope)
        columns = stage.columns or {}
        named = named_columns(key, stage.columns)
        stage.nested = {name: path for name, path in named.items() if name != path}
        if stage.columns is not None:
            fields = {name: type_at(path, columns) for name, path in stage.nested.items()}
            stage.columns = {**stage.columns, **fields}
        stage.keys = {name: (stage.columns or {}).get(name) for name in named}
        return tuple(named)
    return key


def _check_key_of_records(key: tuple[str, ...], scope: Scope) -> None:
    """Raise a mistake if a stage that reads records cannot have the key; other stages pass."""
    sources = {name: scope.sources[name] for name in scope.stage.sources if name in scope.sources}
    for name, source in sources.items():
        if source.key is not None and set(key) == set(source.key):
            raise mistake("these columns are the source's key", "Leave `key` out: the stage has it anyway.")
        if source.drops:
            fix = "Read a stage with `emit: {on: update}`, whose emissions can have another key."
            raise mistake(f"behind `{source.drops}`, a stage that reads the source has the source's key", fix)
        columns = source.columns
        lacking = [column for column in key if columns and column.partition(".")[0] not in columns]
        if lacking and len(sources) > 1:
            fix = "Use columns that all of them have: records without a key cannot be counted to one."
            raise mistake(f"`{name}` has no column `{lacking[0]}`", fix)


def unkeyed(written: Any, info: Info) -> Any:
    """Mark the key as unknown until it is read without mistakes."""
    if written is not None:
        scope_of(info).stage.keys = None
    return require_filled(written)
