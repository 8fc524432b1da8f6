"""Derive the conditions of streams from the ledger, the pipeline files and, if it was asked, Kafka."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidegate.app.root import App
from tidegate.errors import TidegateError
from tidegate.inspect.catalog import catalog_entries
from tidegate.ledger import Failure, Stream
from tidegate.ledger.condition_facts import read_facts
from tidegate.ledger.stream_condition import (
    CLOCK_AHEAD_MS,
    STALLED_AFTER,
    StreamCondition,
    StreamFacts,
    derive_condition,
)


@dataclass(frozen=True)
class Tried:
    """The result of a dry run of `plan` just now: its error, or None. It is newer than the failure in the
    ledger.
    """

    error: TidegateError | None = None


def stream_condition(
    app: App, stream: Stream, lag: int | None = None, tried: Tried | None = None
) -> StreamCondition:
    """Return the condition of a stream now.

    Args:
        lag: In offsets; None if it is unknown.
        tried: The result of a dry run, which replaces the recorded failure of `plan`.

    Raises LedgerUnavailable.
    """
    facts = replace(_with_file(app, read_facts(app.ledger, stream)), lag=lag)
    now_ms = _now_ms()
    return derive_condition(_with_try(facts, tried, now_ms) if tried is not None else facts, now_ms)


def troubled_streams(app: App) -> set[Stream]:
    """Return the streams whose condition requires a person, without asking Kafka.

    Only streams with a recorded failure, a clock that is ahead or an old open plan are examined, so the cost
    does not depend on the number of streams. Raises LedgerUnavailable.
    """
    # a few queries over all streams; `stream_condition` below needs several per stream
    candidates, now_ms = set(app.ledger.failing_streams()), _now_ms()
    stalled_before = now_ms / 1000 - STALLED_AFTER.total_seconds()
    for status in app.ledger.stream_statuses(app.ledger.streams()):
        # Until a clock in the future has passed, windows and time limits end too early.
        is_ahead = max(status.head.clocks.values(), default=-1) > now_ms + CLOCK_AHEAD_MS
        if is_ahead or (status.planned_at is not None and status.planned_at <= stalled_before):
            candidates.add(status.stream)
    return {stream for stream in candidates if stream_condition(app, stream).is_troubled}


def _with_file(app: App, facts: StreamFacts) -> StreamFacts:
    files = [entry for entry in catalog_entries(app) if entry.is_file_of(facts.stream)]
    # Two files of one generation are both refused, with the same cause.
    mistakes = [str(problem) for entry in files[:1] for problem in entry.problems]
    return replace(facts, has_file=bool(files), file_mistake="; ".join(mistakes))


def _with_try(facts: StreamFacts, tried: Tried, now_ms: int) -> StreamFacts:
    # The dry run has just repeated these steps, so their older failures no longer count.
    noted = [failure for failure in facts.failures if failure.step not in ("start", "plan")]
    error, seq = tried.error, facts.status.head.seq + 1 if facts.status is not None else 1
    # A later step may have failed for the same reason; one cause is shown once.
    if error is not None and type(error).__name__ not in {failure.error for failure in noted}:
        names = type(error).__name__, error.what, error.fix
        noted.append(Failure(facts.stream, seq, "plan", *names, now_ms))
    return replace(facts, failures=tuple(noted))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


__all__: Sequence[str] = ("Tried", "stream_condition", "troubled_streams")
