"""`from`, `key` and `join` of a stage: what it reads, and by which columns it groups or pairs that.

A stage reads the emissions of a stage above it, or the records of one source, or of several as their union.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator
from pydantic import ValidationInfo as Info
from pydantic_core import PydanticCustomError

from tidegate import kernel
from tidegate.expressions.types import ANY, ColumnTypes, Type
from tidegate.model import names
from tidegate.model.columns import struct_type
from tidegate.model.mistakes import did_you_mean, listed, mistake, shown
from tidegate.model.names import quote
from tidegate.model.nested import named_columns, type_at
from tidegate.model.options import READERS, Reader, read_as
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
    """Return the names of its inputs: by default the stage before or all sources; both sides of a join.

    Raises a mistake if it is neither a name nor a list.
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
    it reads. Returns the names. Raises a mistake for a name that is neither.
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


SIDES = ("left", "right")
"""The columns of a join: the record of each side as a struct, null where there is no match."""
_PATH = re.compile(r"[^\s.`()'\",;]+(?:\.[^\s.`()'\",;]+)*")
EXCLUDED = {
    "inputs": "`left` and `right` are its inputs",
    "key": "records match by the key of both sides",
    "filter": "the stages that it joins can filter",
    "window": "`within` says which records match",
    "reduce": "each emission is made of a pair of records",
    "aliases": "its state has the records of a short time only",
    "emit": "a pair is emitted at once, and a record without a match when its time is over",
    "expected": "a join waits for records, and not for silence",
    "ttl": "`within` and `grace` say how long its state lives",
    "retract": "each pair is an event of its own",
    "unchanged": "no record replaces another one",
}
"""Field of a stage -> why it does not go with `join`."""


def _note_side(name: str, info: Info) -> str:
    named_stage(name, info)
    return name


def note_join(join: kernel.Join | None, info: Info) -> kernel.Join | None:
    """Note the columns of both sides. Raises a mistake if they have different keys or different inputs."""
    if join is None:
        return join
    scope = scope_of(info)
    by_name = {stage.name: stage for stage in scope.stages[:-1]}
    left, right = by_name.get(join.left), by_name.get(join.right)
    if left is None or right is None:
        return join  # created without a file
    _require_same_keys(join, left, right)
    # each topic-partition has a time of its own, whichever source it belongs to
    read_sources = left.sources and right.sources
    if left.reads and right.reads and left.reads != right.reads and not read_sources:
        what = f"`{join.left}` reads {listed(left.reads)}, and `{join.right}` reads {listed(right.reads)}"
        fix = "Let both read sources, or the same stage."
        raise mistake(f"{what}: both sides need one input, whose time orders their records", fix)
    stage = scope.stage
    stage.input, stage.keys, stage.reads = left, left.keys, join.inputs
    sides = [_side_type(side) for side in (left, right)]
    if None not in sides:
        stage.columns = dict(zip(SIDES, sides, strict=True))
    return join


def _require_same_keys(join: kernel.Join, left: StageScope, right: StageScope) -> None:
    if left.keys is None or right.keys is None:
        return
    if list(left.keys) != list(right.keys):
        described = [listed(side.keys or ()) or "the records' own key" for side in (left, right)]
        fix = "Give both stages the same `key`, with its columns in the same order and of the same names."
        what = f"`{join.left}` has the key {described[0]}, and `{join.right}` {described[1]}"
        raise mistake(f"{what}: their records cannot match", fix)
    for name, type_ in left.keys.items():
        other = right.keys[name]
        if type_ and other and type_.is_known and other.is_known and type_.text != other.text:
            fix = f"Select it with one type in both stages, such as `{name}: cast({name} AS string)`."
            raise mistake(
                f"the key column `{name}` is {type_.text} on the left and {other.text} on the right", fix
            )


def _side_type(side: StageScope) -> Type | None:
    columns = input_columns(side)
    return None if columns is None else struct_type((name, type_ or ANY) for name, type_ in columns.items())


def all_sides() -> dict[str, str]:
    """Return `select` of a join that has none: the records of both sides."""
    return dict(zip(SIDES, SIDES, strict=True))


def side_path(written: str, info: Info) -> str:
    """Return the SQL of a column of one side. Raises a mistake if it is anything else.

    A value of a record that has no match is null. An expression such as `coalesce(right.paid, 0)` needs the
    record of the other side, which comes later: it belongs into the next stage.
    """
    path = written.replace("`", "").strip()
    if not _PATH.fullmatch(path) or path.split(".")[0] not in SIDES:
        fix = "Select the columns, such as `paid: right.paid`, and compute with them in a stage after it."
        raise mistake(f"{written!r} is not a column of `left` or `right`", fix)
    columns = scope_of(info).stage.columns
    if columns is not None:
        type_at(path, columns)
    return ".".join(map(quote, path.split(".")))


def check_fields(written: Any, info: Info) -> Any:
    """Return a field of a stage. Raises a mistake if it does not go with `join`."""
    stage = scope_of(info).stage
    name = info.field_name or ""
    if stage.joins and (name in stage.given or (name == "inputs" and "from" in stage.given)):
        shown = "from" if name == "inputs" else name
        raise mistake(f"`{shown}` does not go with `join`: {EXCLUDED[name]}", f"Leave `{shown}` out.")
    return written


if TYPE_CHECKING:
    Join = kernel.Join | None
else:
    _READERS = {**READERS, "side": Reader(Annotated[str, AfterValidator(_note_side)])}
    Join = Annotated[read_as(kernel.Join, _READERS) | None, AfterValidator(note_join)]
