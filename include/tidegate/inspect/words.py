"""The words of explanations, which `tidegate explain` and the console share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# The fates and reasons that do not come from a strategy, in words.
_MEANINGS = {
    "removed": "dropped: `filter` does not let it reach the state",
    "filtered": "not emitted: `where` does not let it through",
    "refused": "not emitted: it breaks an expectation (`tidegate quarantine list` has the value)",
    "held": "not emitted yet: held back",
    "repeated": "dropped: was applied before",
    "late": "too late: its window is over, or what it may repeat or undo is forgotten",
    "quarantined": "put aside: the stage cannot use it (`tidegate quarantine list` has the reason)",
    "retracted": "taken back: the group has it as it is now",
    "ignored": "dropped: it has no value to add",
    "emit_early": "the buffer was full",
    "drained": "drained by hand",
    "merged": "taken back: its session is part of a longer one now",
}
HAPPENINGS = {
    "record": "came in",
    "emission": "went out",
    "refused": "was refused",
    "unsent": "did not go out",
    "quarantined": "quarantined",
}
"""`TraceEvent.what` -> what happened, in words."""
_WITHOUT_MEANING = {"quarantined": "not usable", "refused": "in quarantine: it breaks these expectations"}


def meaning(fate: str) -> str | None:
    """Return the meaning of the fate of a record, or of the reason of an emission; None if it has none.

    Example: `meaning("suppressed")` is `not emitted: the same as what last went out`.
    """
    # imported here: `tidegate explain --help` needs no kernel
    from tidegate.kernel.strategies import REASONS
    from tidegate.kernel.tables import kind_of

    # the reason of a lookup names its table
    kind = kind_of(fate)
    return REASONS.get(kind, _MEANINGS.get(kind))


def json_text(value: Any) -> str:
    """Return the value of an event as JSON text; a text, which is no JSON, as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def decision_text(what: str, fate: str) -> str:
    """Return the meaning of the decision that an event of a trace reports; empty if it has none.

    Args:
        what: As `TraceEvent.what`.
        fate: As `TraceEvent.fate`.
    """
    return meaning(fate) or _WITHOUT_MEANING.get(what, "")


def state_texts(entries: Sequence[Mapping[str, Any]], instant: Callable[[int], str]) -> list[str]:
    """Return the state of a key in words, a text per entry; `nothing` if there is no entry.

    Args:
        entries: As `TraceEvent.previous`; `emitted` can also be a text, which is shown as it is.
        instant: Writes epoch ms as an instant.
    """
    return [_entry_text(entry, instant) for entry in entries] or ["nothing"]


def _entry_text(entry: Mapping[str, Any], instant: Callable[[int], str]) -> str:
    parts = []
    if entry.get("window"):
        first, end = entry["window"]
        parts.append(f"window {instant(first)} to {instant(end)}")
    if "side" in entry:
        parts.append(f"a record of the {entry['side']} side at {instant(entry['timestamp'])}")
    if "emitted" in entry:
        parts.append(f"emitted {json_text(entry['emitted'])}")
    if "held" in entry:
        parts.append(f"{entry['held']} held back")
    if "due" in entry:
        parts.append(f"due {instant(entry['due'])}")
    if "expires" in entry:
        parts.append(f"expires {instant(entry['expires'])}")
    return ", ".join(parts) or "a value that never went out"
