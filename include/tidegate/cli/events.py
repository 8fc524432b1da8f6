"""Put the events of an explanation into rows for people, and into objects for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidegate.cli.output import iso_instant

if TYPE_CHECKING:
    from tidegate.spark.explain import TraceEvent


def event_object(event: TraceEvent) -> dict[str, Any]:
    """Return an event for programs."""
    from tidegate.inspect.words import meaning

    return {
        "stage": event.stage,
        "what": event.what,
        "source": "/".join(map(str, event.source)),
        "timestamp": event.timestamp,
        "at": event.at,
        "value": event.value,
        "known": list(event.previous),
        "window": event.window,
        "fate": event.fate,
        "why": meaning(event.fate),
    }


def event_rows(events: Sequence[TraceEvent]) -> list[dict[str, Any]]:
    """Return events as rows of a table for people."""
    from tidegate.inspect.words import HAPPENINGS, decision_text, state_texts

    def state_before(event: TraceEvent) -> str:
        """Return the state before a record, one entry per line."""
        shows_state = event.what == "record" and event.fate != "removed"
        return "\n".join(state_texts(event.previous, iso_instant)) if shows_state else ""

    stages = {event.stage for event in events}
    return [
        {
            **({"stage": event.stage} if len(stages) > 1 else {}),
            "": HAPPENINGS[event.what],
            "position": "/".join(map(str, event.source)),
            "timestamp": event.timestamp,
            "value": event.value,
            "was known": state_before(event),
            "decision": event.fate,
            "which means": decision_text(event.what, event.fate),
        }
        for event in events
    ]
