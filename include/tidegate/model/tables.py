"""Tables that a pipeline names, and the keys of tables that stages expect."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic import ValidationInfo as Info

from tidegate.model import names
from tidegate.model.mistakes import listed, mistake
from tidegate.model.scope import Model, distinct, require_filled, scope_of

if TYPE_CHECKING:
    from tidegate.model.lookup import Lookup
    from tidegate.model.stage import Stage

_STATE = re.compile(r"(?P<pipeline>[a-z][a-z0-9_]{0,99})/(?P<stage>[a-z][a-z0-9_]{0,99})")
_PATH = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://(?:[A-Za-z0-9_][A-Za-z0-9_.@-]*)?)?(?:/[A-Za-z0-9_][A-Za-z0-9_.=-]*)+"
)


def _check_table(table: str, info: Info) -> str:
    if (match := _STATE.fullmatch(table)) is not None:
        # A batch would read the state that it is about to change.
        if match["pipeline"] == scope_of(info).pipeline:
            fix = "Use a second stage: it reads what the first one emits."
            raise mistake(f"`{table}` is the state of this pipeline itself", fix)
        return table
    if not _PATH.fullmatch(table):
        fix = (
            "Write `pipeline/stage` for another pipeline's state; for a Delta table an absolute path, "
            "or a URL such as `s3://lake/stores`, without passwords and `..`."
        )
        raise mistake("that is not a table", fix)
    return table


Table = Annotated[str, AfterValidator(_check_table)]
"""`pipeline/stage`, or the absolute path or URL of a Delta table."""


def state_of(table: str) -> tuple[str, str] | None:
    """Return the pipeline and stage of a table that is a state; None for a Delta table.

    Example: `state_of("stores/current")` is `("stores", "current")`.
    """
    match = _STATE.fullmatch(table)
    return (match["pipeline"], match["stage"]) if match else None


def missing_column(table: Lookup | Expected, columns: Collection[str]) -> tuple[str, str] | None:
    """Return the message and the fix if a table lacks a column that is read of it; None if it has them all.

    `columns` are those of the table.
    """
    missing = next((name for name in table.reads if name not in columns), None)
    if missing is None:
        return None
    return f"the table {table.table} has no column `{missing}`", f"Its columns are {', '.join(columns)}."


class Expected(Model):
    """Let the keys of a table wait for their first record, from the batch on in which the table has them."""

    table: Table = Field(
        description="`pipeline/stage`, another pipeline's state, or path or URL of a Delta table."
    )
    key: Annotated[
        tuple[Annotated[str, AfterValidator(names.check_column)], ...],
        BeforeValidator(require_filled),
        AfterValidator(distinct),
    ] = Field(description="The columns of the table that make the stage's key, in the order of the key.")

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns of the table that are read."""
        return self.key

    @property
    def state(self) -> tuple[str, str] | None:
        """The pipeline and stage whose state has the keys; None for a Delta table."""
        return state_of(self.table)

    def state_mistake(self, stage: Stage) -> tuple[str, str] | None:
        """Return None: the keys of any state can be expected, of several rows of a key one."""
        return None


def check_expected(expected: Expected, stage: Stage, keys: tuple[str, ...] | None) -> None:
    """Check that a stage can wait for the keys of a table. Raises a mistake.

    Args:
        expected: What the stage expects.
        stage: The stage.
        keys: The columns of its key, empty for the record's own; None if they have mistakes.
    """
    if not stage.emit.restarts or not stage.reduce.newest_only:
        fix = "Write `emit: {on: quiet, after: 10m}` and `reduce: latest`; other stages can follow it."
        raise mistake("`expected` goes with `on: quiet` and `reduce: latest`", fix)
    if not stage.reads_source:
        fix = "Let it read the source: `from: source`."
        raise mistake("`expected` needs the times of the source, and this stage reads emissions", fix)
    if stage.ttl is not None:
        fix = "Leave `ttl` out: the state says which keys were reported."
        raise mistake("`ttl` would report a silent key again and again", fix)
    number = len(keys or ("key",))
    if keys is not None and len(expected.key) != number:
        what = f"`{listed(keys)}`" if keys else "the record's own key"
        fix = f"Name {number} column{'' if number == 1 else 's'} of the table, in the order of the key."
        raise mistake(f"the key is {what}, and `expected` names {len(expected.key)} columns for it", fix)
