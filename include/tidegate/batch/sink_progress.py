"""Whether the sinks of a stream still know how far they are."""

from __future__ import annotations

from typing import Any

from tidegate.app.root import App
from tidegate.ledger import Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.sinks import OpenSink


def check_progress(app: App, stream: Stream) -> None:
    """Find out whether each sink still knows what was published to it. Sends nothing.

    Raises TopicMissing, TopicRecreated, ProgressLost, Fenced, and what keeps it from asking.
    """
    for sink in published_sinks(app, stream):
        sink.check_progress()


def published_sinks(app: App, stream: Stream) -> list[OpenSink[Any]]:
    """Return the sinks of the last committed batch; none before the first."""
    plan = app.ledger.plan(stream, app.ledger.head(stream).seq)
    return app.sinks(stream, planned_pipeline(plan)) if plan is not None else []
