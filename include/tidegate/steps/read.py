"""What only reads: state, emissions and quarantine of committed batches, as Arrow, without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from tidegate.lake import newest_per_key, read_attempts
from tidegate.ledger import Head, Ledger, Offsets, Plan, Stream
from tidegate.steps.app import App, planned_pipeline


@dataclass(frozen=True)
class BatchReport:
    """A batch as it went: its plan, counts, seconds per step, and the sinks that have it."""

    plan: Plan
    counts: dict[str, int]
    seconds: dict[str, float]
    published: dict[str, int]


def read_state(app: App, stream: Stream, as_of: int | None = None) -> pa.Table:
    """One row per key that is not deleted: key, the value's columns, and where it comes from.

    `as_of` is a batch's seq; default the head.
    """
    stage = _stage(app, stream)
    rows = _committed_rows(app, stream, app.lake(stream).state(stage), as_of)
    return pa.table({}) if rows is None else newest_per_key(rows.drop_columns(["attempt"]))


def read_emissions(app: App, stream: Stream, seq: int | None = None) -> pa.Table:
    """What went out, of one batch or of all, by batch, key and order."""
    stage = _stage(app, stream)
    rows = _committed_rows(app, stream, app.lake(stream).outbox(stage), seq, only=seq is not None)
    if rows is None:
        return pa.table({})
    order = [("seq", "ascending"), ("key", "ascending"), ("ordinal", "ascending")]
    return rows.drop_columns(["attempt"]).sort_by(order)


def read_quarantine(app: App, stream: Stream, seq: int | None = None) -> pa.Table:
    """Input that could not be used, whole, by position."""
    rows = _committed_rows(app, stream, app.lake(stream).quarantine, seq, only=seq is not None)
    if rows is None:
        return pa.table({})
    return rows.drop_columns(["attempt"]).sort_by(
        [(name, "ascending") for name in ("topic", "partition", "offset")]
    )


def batch_report(ledger: Ledger, stream: Stream, seq: int) -> BatchReport | None:
    """How a batch went, or None when it was never planned."""
    plan = ledger.plan(stream, seq)
    if plan is None:
        return None
    attempt = ledger.attempt(stream, seq)
    seconds = {
        name.removeprefix("seconds."): value
        for (_, name), value in ledger.metrics(stream, seq).items()
        if name.startswith("seconds.")
    }
    counts = dict(attempt.counts) if attempt else {}
    return BatchReport(plan, counts, seconds, ledger.publications(stream, seq))


def lag(head: Head, stable_ends: Offsets) -> int:
    """Offsets that are there to be read and are not read yet."""
    return sum(max(0, end - head.offsets.get(at, 0)) for at, end in stable_ends.items())


def _stage(app: App, stream: Stream) -> str:
    plan = app.ledger.plan(stream, max(app.ledger.head(stream).seq, 1))
    return planned_pipeline(plan).stages[-1].name if plan else ""


def _committed_rows(
    app: App, stream: Stream, path: str, seq: int | None, only: bool = False
) -> pa.Table | None:
    chosen: Callable[[int], bool] = (lambda each: each == seq) if only else (lambda _: True)
    attempts = [name for each, name in app.ledger.committed(stream, seq) if chosen(each)]
    return read_attempts(path, attempts)
