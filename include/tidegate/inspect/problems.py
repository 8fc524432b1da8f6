"""What keeps a stream's batches from going through, as far as the ledger knows it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

from tidegate import protocol
from tidegate.app.root import App
from tidegate.errors import LedgerUnavailable, TidegateError
from tidegate.ledger import Stream, StreamStatus

STALLED_AFTER = timedelta(minutes=10)
"""A planned batch that nobody is at work on for so long is told of: between two steps there are seconds."""


def open_problems(app: App, stream: Stream) -> list[protocol.Unfinished]:
    """Of the last committed batch and of the one that is planned, what is known of why they are not through.

    Where the ledger has lost what it would take to tell, that is the problem. Raises LedgerUnavailable.
    """
    statuses = app.ledger.stream_statuses([stream])
    if not statuses:
        return []
    try:
        problems = list(protocol.unfinished_batches(app, stream))
    except LedgerUnavailable:
        raise
    except TidegateError as error:
        return [protocol.Unfinished(f"{type(error).__name__}: {error}", True, type(error).__name__)]
    return [*problems, *stalled_batch(statuses[0], problems)]


def stalled_batch(
    status: StreamStatus, problems: list[protocol.Unfinished], now: float | None = None
) -> Iterator[protocol.Unfinished]:
    """The planned batch, if its run has died without a word: no step has failed, and nobody has the lease.

    `problems` are those that are known; `now` is epoch seconds, default the machine's time.
    """
    if status.open_seq is None or status.planned_at is None or status.holder is not None or problems:
        return
    waited = (time.time() if now is None else now) - status.planned_at
    if waited >= STALLED_AFTER.total_seconds():
        at = datetime.fromtimestamp(status.planned_at, timezone.utc).isoformat(sep=" ", timespec="seconds")
        yield protocol.Unfinished(
            f"batch {status.open_seq} was planned at {at}, and nobody is at work on it: its run has died, or "
            "waits. The next run goes on with it; see that the DAG is not paused, and clear what failed"
        )


def failing(app: App) -> set[Stream]:
    """The streams that have a batch which failed and is not through. However many streams there are, only
    those are looked at of which a failure was noted lately. Raises LedgerUnavailable.
    """
    return {stream for stream in app.ledger.failing_streams() if open_problems(app, stream)}
