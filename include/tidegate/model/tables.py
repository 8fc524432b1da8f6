"""Tables that a pipeline names: the state of another pipeline's stage, or a Delta table."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator
from pydantic import ValidationInfo as Info

from tidegate.model.mistakes import mistake
from tidegate.model.scope import scope_of

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
