"""`from` and `key` of a stage: what it reads, and by which columns it groups that."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationInfo as Info

from tidegate.expressions.types import ColumnTypes
from tidegate.model import names
from tidegate.model.mistakes import did_you_mean, listed, mistake
from tidegate.model.nested import named_columns, type_at
from tidegate.model.scope import Scope, StageScope, require_filled, scope_of
from tidegate.model.windows import WINDOW_TIMES


def open_stage(scope: Scope) -> None:
    """Add the next stage to the scope. Until `from` is read, its input is unknown."""
    # Before the fields: each notes its facts in the newest entry.
    scope.stages.append(StageScope(input=StageScope()))


def note_input(name: str | None, info: Info) -> str:
    """Note the columns that the stage may name: the source's, or the key and emissions of the stage that it
    reads. Returns the name of that stage, or `source`. The inputs of a join are noted already.
    """
    scope = scope_of(info)
    if scope.stage.joins:
        return names.JOINED
    earlier = scope.stages[:-1]
    if name is None:
        input_ = earlier[-1] if earlier else None
    else:
        input_ = None if name == names.SOURCE else _named(name, earlier, scope)
    _note_columns(scope, input_)
    read = names.SOURCE if input_ is None else input_.name or ""
    scope.stage.reads = (read,)
    return read


def _named(name: str, earlier: list[StageScope], scope: Scope) -> StageScope:
    """Return the earlier stage of a name. Raises a mistake if there is none."""
    by_name = {stage.name: stage for stage in earlier if stage.name is not None}
    if name in by_name:
        return by_name[name]
    if name == scope.stage.name:
        raise mistake("a stage cannot read its own emissions", "Name a stage above it, or `source`.")
    choices = [names.SOURCE, *by_name]
    fix = f"Write {listed(choices)}. A stage reads the source or a stage above it in the file."
    raise mistake(f"there is no stage `{name}` above this one", did_you_mean(name, choices, fix))


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


def _note_columns(scope: Scope, before: StageScope | None) -> None:
    stage = scope.stage
    stage.input = before
    if before is not None:
        stage.keys, stage.columns = before.keys, input_columns(before)
    elif scope.columns is not None:
        stage.columns = {**scope.columns, **scope.lookups}
        if scope.key is not None:
            stage.keys = {name: scope.columns.get(name) for name in scope.key}


def note_key(key: tuple[str, ...] | None, info: Info) -> tuple[str, ...] | None:
    """Note the columns of the stage's key. Raises a mistake if the stage cannot have a key of its own."""
    scope = scope_of(info)
    stage = scope.stage
    if key is not None:
        if len(scope.stages) == 1:
            raise mistake("the first stage has the source's key", "Use `source.key`.")
        if scope.before is None and scope.key is not None and set(key) == set(scope.key):
            raise mistake("these columns are the source's key", "Leave `key` out: the stage has it anyway.")
        if scope.before is None and scope.drops:
            fix = "Read a stage with `emit: {on: update}`, whose emissions can have another key."
            raise mistake(f"behind `{scope.drops}`, a stage that reads the source has the source's key", fix)
        columns = stage.columns or {}
        named = named_columns(key, stage.columns)
        stage.nested = {name: path for name, path in named.items() if name != path}
        if stage.columns is not None:
            fields = {name: type_at(path, columns) for name, path in stage.nested.items()}
            stage.columns = {**stage.columns, **fields}
        stage.keys = {name: (stage.columns or {}).get(name) for name in named}
        return tuple(named)
    return key


def unkeyed(written: Any, info: Info) -> Any:
    """Mark the key as unknown until it is read without mistakes."""
    if written is not None:
        scope_of(info).stage.keys = None
    return require_filled(written)
