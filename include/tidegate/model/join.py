"""`join` of a stage: its two inputs, and the columns that it can select of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator
from pydantic import ValidationInfo as Info

from tidegate import kernel
from tidegate.expressions.types import ANY, Type
from tidegate.model.columns import struct_type
from tidegate.model.inputs import input_columns, named_stage
from tidegate.model.mistakes import listed, mistake
from tidegate.model.names import quote
from tidegate.model.nested import type_at
from tidegate.model.options import READERS, Reader, read_as
from tidegate.model.scope import StageScope, scope_of

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
