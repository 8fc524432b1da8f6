"""`window` of a stage: its columns, what does not go with it, and the records that are late for it."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationInfo as Info

from tidegate.expressions.types import BIGINT, ColumnTypes, Type
from tidegate.kernel.options import options_of
from tidegate.kernel.unusable import LATENESS
from tidegate.model.keys import check_identity, check_key
from tidegate.model.mistakes import mistake
from tidegate.model.scope import StageScope, scope_of
from tidegate.stage_names import late_name

WINDOW_COLUMNS: ColumnTypes = {"window_start": BIGINT, "window_end": BIGINT}
"""Start and end of a stage's window in epoch milliseconds, as its `where` and its sinks have them."""
WINDOW_TIMES: ColumnTypes = dict.fromkeys(WINDOW_COLUMNS, Type("timestamp", "timestamp"))
"""Start and end of the window of the stage before."""


def check_key_column(name: str, info: Info) -> str:
    """Check a key column: it must be a column of the source, or be emitted by the stage that the present one
    reads, or be in its key or its window. Raises a mistake otherwise.
    """
    scope = scope_of(info)
    if len(scope.stages) == 1:
        return name
    # the outbox of a stage without a window has no other start and end than these
    before = scope.before
    is_window = (
        name in WINDOW_COLUMNS and before is not None and (before.windowed or name in (before.keys or ()))
    )
    return (check_identity if is_window else check_key)(name, scope.stage.columns)


def note_window(window: Any, info: Info) -> Any:
    """Note in the scope whether the stage has a window. Raises a mistake if its key has another one."""
    scope = scope_of(info)
    stage, before = scope.stage, scope.before
    stage.windowed = window is not None
    if window is not None and (name := next(iter(WINDOW_COLUMNS.keys() & (stage.keys or {}).keys()), None)):
        fix = f"Select it in a stage between, `select: {{opened: {name}}}`, and write `opened` in its `key`."
        raise mistake(f"the key has `{name}` of another window than this one", fix)
    if window is None and before is not None and info.data.get("key") is None:
        stage.drops_window = bool(before.windowed) or before.drops_window
    return window


def check_reduce(reduce: Any, info: Info) -> Any:
    """Check that a `reduce` goes with the stage's window. Raises a mistake otherwise."""
    window = info.data.get("window")
    if window is not None and window.only_aggregates and not reduce.by_name:
        kind = options_of(type(window))[0].written
        fix = 'Write aggregates, such as `reduce: {n: "count(*)", x: "last(x)"}`.'
        raise mistake(f"windows of the kind `{kind}` overlap: only aggregates fold into them", fix)
    return reduce


def check_strategy(emit: Any, info: Info) -> None:
    """Check that a strategy leaves in windows what others begin with. Raises a mistake otherwise."""
    window = info.data.get("window")
    if window is not None and window.slides and emit.empties:
        fix = "Use `update`, `change`, `time_limit`, `interval` or `window_close`."
        raise mistake(f"`on: {emit.on}` empties windows, but sliding windows begin with others", fix)


def check_late(on_late: str, info: Info) -> str:
    """Check that the stage can have late records, and emit them. Raises a mistake otherwise."""
    stage = scope_of(info).stage
    if on_late != "drop" and stage.never_late:
        fix = "Give the stage a `window:`, or leave `on_late` out."
        raise mistake("without a window no record is late", fix)
    if on_late == "emit":
        _check_emitted(info)
    return on_late


def _check_emitted(info: Info) -> None:
    if scope_of(info).stage.joins:
        fix = "Write `on_late: quarantine`."
        raise mistake("late records of a join have no window of their own, and are not emitted", fix)
    # An `emit` with mistakes is reported already.
    if "emit" in info.data and info.data["emit"].bound is not None:
        fix = "Leave the bound out, or write `on_late: quarantine`."
        raise mistake("a bounded buffer does not order late records of a key in several partitions", fix)
    if LATENESS in (scope_of(info).stage.columns or ()):
        fix = "Give the column another name, or write `on_late: quarantine`."
        raise mistake(f"late records have a column `{LATENESS}`, and so do the stage's records", fix)


def note_late(stage: StageScope) -> dict[str, str | None]:
    """Note the late records of a stage as one that sinks can read; return the types of their columns.

    The window is the one for which a record is late, and no column of an earlier one.
    """
    columns = {name: type_ for name, type_ in (stage.columns or {}).items() if name not in WINDOW_TIMES}
    stage.late = StageScope(
        name=None if stage.name is None else late_name(stage.name),
        keys=stage.keys,
        windowed=True,
        collects=True,
        emitted={**columns, LATENESS: BIGINT},
        replaces=False,
        forgets="nothing replaces a late record",
    )
    typed = {name: type_ for name, type_ in columns.items() if type_ is not None and type_.is_known}
    return {name: typed[name].text if name in typed else None for name in columns}
