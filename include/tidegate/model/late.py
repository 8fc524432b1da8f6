"""`on_late` of a stage, and its late records as a stage that sinks can read."""

from __future__ import annotations

from pydantic import ValidationInfo as Info

from tidegate.expressions.types import BIGINT
from tidegate.kernel.late import LATENESS
from tidegate.model.mistakes import mistake
from tidegate.model.scope import StageScope, scope_of
from tidegate.model.windows import WINDOW_TIMES
from tidegate.stage_names import late_name


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
