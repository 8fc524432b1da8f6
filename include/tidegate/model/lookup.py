"""`lookup`: columns that are added to each record from a table, or from the state of another pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic import ValidationInfo as Info

from tidegate.expressions.types import ColumnTypes, group
from tidegate.model import names
from tidegate.model.mistakes import mistake
from tidegate.model.scope import Model, distinct, require_filled, scope_of, suggest_column
from tidegate.model.stage import Stage
from tidegate.model.tables import Table, state_of
from tidegate.model.windows import WINDOW_COLUMNS

KEY = "key"
"""A name in `on`: the record's key as the outbox has it, as one text."""


def _check_on(name: str, info: Info) -> str:
    for source, scope in scope_of(info).sources.items():
        if scope.columns is not None:
            _check_on_records(name, source, scope.columns)
    return name


def _check_on_records(name: str, source: str, columns: ColumnTypes) -> None:
    """Raise a mistake if a column cannot be looked up by in the records of a source."""
    if name == KEY:
        if KEY in columns:
            fix = "Use another column of the record."
            raise mistake("`key` is a column of the source, but means the record's key here", fix)
        return
    if name not in columns:
        owner = "" if source == names.SOURCE else f" in `{source}`"
        fix = suggest_column(name, [KEY, *columns])
        raise mistake(f"the column `{name}` does not exist{owner}", fix)
    type_ = columns[name]
    if type_ is not None and group(type_) == "nested":
        raise mistake(f"`{name}` is {type_.text}, and not a single value", "Look up by single values.")


def _note_column(name: str, info: Info) -> str:
    scope = scope_of(info)
    # Spark does not distinguish column names by case.
    own = [column for source in scope.sources.values() for column in source.columns or ()]
    taken = {column.lower(): column for column in (*own, *scope.lookups)}
    if name.lower() in taken:
        taken_name = taken[name.lower()]
        owner = "another lookup's" if taken_name in scope.lookups else "the source's"
        raise mistake(f"`{name}` is {owner} column already", "Take it from one place only.")
    scope.lookups[name] = None
    return name


def _check_on_change(on_change: str, info: Info) -> str:
    if on_change == "emit" and len(scope_of(info).sources) > 1:
        fix = "Give each source a pipeline of its own, or leave `on_change` out."
        raise mistake("`on_change: emit` needs a single source: one record of a key is its last one", fix)
    return on_change


class Lookup(Model):
    """Add columns from the row of `table` whose columns `on` are equal to the record's; null without such a
    row.

    `table` is `pipeline/stage`, the state of another pipeline's stage, or a Delta table by an absolute path
    or a URL. A name with one slash is always a state, so a table in the lake needs its full path. The columns
    of a state are `key`, the stage's columns and, if it has windows, `window_start` and `window_end` in epoch
    milliseconds.
    """

    table: Table = Field(
        description="`pipeline/stage`, another pipeline's state, or path or URL of a Delta table."
    )
    on: Annotated[
        tuple[Annotated[str, AfterValidator(_check_on)], ...],
        BeforeValidator(require_filled),
        AfterValidator(distinct),
    ] = Field(description="Columns that are equal in the record and the row; `key` is the record's key.")
    columns: Annotated[
        tuple[Annotated[str, AfterValidator(names.check_column), AfterValidator(_note_column)], ...],
        BeforeValidator(require_filled),
    ] = Field(description="The columns that are added, under their names.")

    on_change: Annotated[Literal["nothing", "emit"], AfterValidator(_check_on_change)] = Field(
        default="nothing",
        description="Whether the last record of a key goes through the stages again when the row that it "
        "looks up has changed.",
    )

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns of the table that are read."""
        return (*self.on, *self.columns)

    @property
    def reacts(self) -> bool:
        """Whether a changed row makes emissions."""
        return self.on_change == "emit"

    @property
    def state(self) -> tuple[str, str] | None:
        """The pipeline and stage whose state is looked up; None for a Delta table."""
        return state_of(self.table)

    @property
    def finds_one_row(self) -> bool:
        """Whether no two rows of the table can fit a record.

        In a state, only entries are unique: keys can have equal values, and windows of a key can share their
        start or their end.
        """
        return self.state is not None and KEY in self.on and not WINDOW_COLUMNS.keys() & set(self.on)

    def state_mistake(self, stage: Stage) -> tuple[str, str] | None:
        """Return the message and the fix if the lookup does not fit a stage; None if it does.

        `on` must identify a single entry of the stage's state, and may name window columns only if the stage
        has a window.
        """
        if stage.emit.bound is not None:
            what = f"`{self.table}` has an entry for each partition of a key's records: its buffer is bounded"
            fix = (
                "Let a stage without a buffer follow in that pipeline (`reduce: latest`), and look that one "
                "up; or let the buffer have no bound (`when_full: spill`)."
            )
            return what, fix
        windowed = stage.window is not None
        if windowed and not WINDOW_COLUMNS.keys() & set(self.on):
            what = f"`{self.table}` has a row for each window of a key, and `on` does not say which"
            fix = (
                "Add `window_start` or `window_end` to `on`, as columns of the source; or let a stage "
                "without a window follow in that pipeline (`reduce: latest`), and look that one up."
            )
            return what, fix
        window_columns = [name for name in WINDOW_COLUMNS if name in (*self.on, *self.columns)]
        if window_columns and not windowed:
            return f"`{self.table}` has no windows, and so no `{window_columns[0]}`", "Leave it out."
        return None


def check_readers(lookups: Iterable[Lookup], stages: Sequence[Stage]) -> None:
    """Raise a mistake if a stage that reads records cannot take a key's last record a second time.

    Args:
        lookups: The lookups of the pipeline.
        stages: Its stages.
    """
    if not any(lookup.reacts for lookup in lookups):
        return
    for stage in stages:
        if stage.reads_source and (obstacle := _obstacle(stage)) is not None:
            fix = (
                "Let a stage with `reduce: latest` and `emit: {on: change}` come first, and this one follow."
            )
            raise mistake(
                f"{obstacle} of `{stage.name}` does not go with `on_change: emit`: a changed row brings the "
                "key's last record once more",
                fix,
            )


def _obstacle(stage: Stage) -> str | None:
    """Return the field because of which a record that comes again is not the key's newest value."""
    obstacles = {
        "`key`": stage.key is not None,
        "`window`": stage.window is not None,
        "`reduce`": not stage.reduce.newest_only,
        "`emit`": stage.emit.holds or stage.emit.sets_timers,
        "`ttl`": stage.ttl is not None,
        "`unchanged`": stage.unchanged is not None,
        "`on_error`": stage.on_error == "quarantine",
    }
    return next((field for field, stands in obstacles.items() if stands), None)
