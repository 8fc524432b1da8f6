"""After a sink or its progress was lost: what the sink itself holds stays, the rest is sent again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidegate.app.root import App
from tidegate.errors import SettingsInvalid
from tidegate.ledger import LeasedLedger, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.sinks import KINDS, OpenSink


def reconcile(app: App, lease: LeasedLedger, stated: Mapping[str, int] | None = None) -> Iterator[str]:
    """Set each sink's progress to what the sink holds, and send again what comes after it.

    `stated` is sink -> the newest batch that it has as a whole, by the user's word: for those that do not
    tell. Yields a sentence for each sink. Raises SettingsInvalid for one in `stated` that there is not, and
    what `OpenSink.reconcile` raises.
    """
    stated = stated or {}
    sinks = [sink for sink in _published_sinks(app, lease.stream) if sink.is_reconcilable]
    statable = [sink.name for sink in sinks if sink.takes_statement]
    unknown = sorted(set(stated) - set(statable))
    if unknown:
        kinds = _titles(kind for kind in KINDS.values() if kind.takes_statement)
        raise SettingsInvalid(
            f"{lease.stream} has no {kinds} sink {', '.join(unknown)}",
            f"It has: {', '.join(statable) or 'none'}.",
        )
    if not sinks:
        kinds = _titles(kind for kind in KINDS.values() if kind.is_reconcilable)
        yield f"{lease.stream} has published nothing to a {kinds} sink."
    for sink in sinks:
        yield sink.reconcile(lease, stated.get(sink.name))


def check_progress(app: App, stream: Stream) -> None:
    """Find out whether each sink still knows what was published to it. Sends nothing.

    Raises TopicMissing, TopicRecreated, ProgressLost, and what keeps it from asking.
    """
    for sink in _published_sinks(app, stream):
        sink.check_progress()


def _published_sinks(app: App, stream: Stream) -> list[OpenSink[Any]]:
    """Those of the head's batch."""
    plan = app.ledger.plan(stream, app.ledger.head(stream).seq)
    return app.sinks(stream, planned_pipeline(plan)) if plan is not None else []


def _titles(kinds: Iterable[type[OpenSink[Any]]]) -> str:
    return " or ".join(kind.title for kind in kinds)
