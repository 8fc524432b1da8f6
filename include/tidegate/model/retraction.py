"""`retract`: a later stage takes back what an emission of the stage before replaces."""

from __future__ import annotations

from pydantic import ValidationInfo as Info

from tidegate.kernel import Aggregates
from tidegate.model.mistakes import listed, mistake
from tidegate.model.scope import scope_of

_NO_STATE = "Leave `retract` out: then each emission counts as one more record."


def check_retract(retract: bool, info: Info) -> bool:
    """Check that a stage can retract: it aggregates a table, the last emissions of the stage before, and its
    aggregates can take values back. Raises a mistake otherwise.
    """
    if not retract:
        return retract
    before, data = scope_of(info).before, info.data
    if before is None:
        fix = "Put `retract` into a later stage."
        raise mistake("the first stage reads records, which replace nothing", fix)
    if before.forgets or not before.replaces:
        why = before.forgets or "each of them is an event of its own"
        raise mistake(f"the stage before does not say what its emissions replace: {why}", _NO_STATE)
    reduce = data.get("reduce")
    if reduce is not None and not isinstance(reduce, Aggregates):
        fix = 'Write for example `reduce: {stock: "sum(quantity)"}`.'
        raise mistake("only aggregates take values back", fix)
    _check_aggregates(reduce)
    for name, why in _EXCLUDED.items():
        if data.get(name) is not None:
            raise mistake(f"`{name}` does not go with `retract`: {why}", f"Leave `{name}` out.")
    _check_emit(data.get("emit"))
    return retract


_EXCLUDED = {
    "window": "a row of a table has no time of its own",
    "ttl": "the values of a group that has expired could not be taken back",
    "filter": "write `filter (where …)` behind each aggregate",
}


def _check_aggregates(reduce: Aggregates | None) -> None:
    fixed = [part.text for part in reduce or () if part.rule.takes_back == "never"]
    if fixed:
        what = f"{listed(fixed)} depends on the order of records, and cannot take a value back"
        raise mistake(what, "Use `max_by(x, y)` or `min_by(x, y)`.")


def _check_emit(emit: object) -> None:
    if emit is None:
        return
    if getattr(emit, "empties", False):
        fix = "Use `on: update`, `on: change`, `on: time_limit` or `on: interval`."
        raise mistake("what has gone out with a flush cannot be taken back", fix)
    if getattr(emit, "bound", None) is not None:
        fix = "Leave `buffer` out, or write `when_full: spill`."
        raise mistake("with a bounded buffer, a group has a state in each partition", fix)


def check_on_error(on_error: str, info: Info) -> str:
    """Check that a stage which retracts stops at a record that it cannot use."""
    if on_error == "quarantine" and info.data.get("retract"):
        fix = "Leave `on_error` out."
        what = "a row that was put aside would be taken back later, although it was never added"
        raise mistake(what, fix)
    return on_error
