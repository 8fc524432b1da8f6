"""`tidegate history`: show the batches of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.options import of_stream, open_stream
from tidegate.cli.output import show

if TYPE_CHECKING:
    from tidegate.inspect import BatchReport, HistoryEntry
    from tidegate.ledger import LedgerReader, Stream

_PAGE = 500
"""The number of batches that are read from the ledger at once."""
_NUMBERS = (
    *("input", "used", "unusable", "late", "other"),
    *("emitted", "suppressed", "seconds"),
)
"""Columns of numbers. `input` is the sum of the next four; `unusable` is in quarantine."""


@click.command()
@of_stream
@click.option("--before", type=int, help="Only batches before this one.")
def history(before: int | None, pipeline: str, generation: int | None, limit: int, as_json: bool) -> None:
    """Show the batches of PIPELINE, the newest first: counts, seconds per step, and what failed."""
    from tidegate.ledger.report import STEPS

    app, stream = open_stream(pipeline, generation)
    entries = _entries(app.ledger, stream, before, limit)
    rows = [history_object(entry) if as_json else _row(entry) for entry in entries]
    show(
        rows,
        as_json,
        f"Batches of {stream}; seconds: {', '.join(STEPS)}",
        empty=f"No batch of {stream} was planned yet.",
    )


def _entries(ledger: LedgerReader, stream: Stream, before: int | None, limit: int) -> Iterator[HistoryEntry]:
    """Yield `limit` batches; 0 stands for all."""
    from tidegate.inspect import batch_history

    left = limit
    while entries := batch_history(ledger, stream, before, min(left, _PAGE) if limit else _PAGE):
        yield from entries
        left, before = left - len(entries), entries[-1].seq
        if limit and left <= 0:
            return


def history_object(entry: HistoryEntry) -> dict[str, Any]:
    """Return a batch for programs: instants in epoch ms, counts by metric name, seconds by step, records
    by sink.
    """
    report, failure = entry.report, entry.failure
    return {
        "batch": entry.seq,
        "run": entry.run_id,
        "clock_ms": report.plan.clock_ms if report else None,
        "planned_at_ms": entry.planned_at_ms,
        "committed_at_ms": entry.committed_at_ms,
        "offsets": report.plan.span if report else None,
        "came_in": report.came_in if report else None,
        "fates": report.fates if report else {},
        "quarantine_reasons": report.reasons if report else {},
        "counts": report.counts if report else {},
        "suppressed": report.suppressed if report else None,
        "stages": report.stages if report else {},
        "seconds": report.seconds if report else {},
        "passed_quality": report.passed_quality if report else None,
        "published": report.published if report else {},
        "failure": {
            "step": failure.step,
            "error": failure.error,
            "what": failure.what,
            "fix": failure.fix,
            "at_ms": failure.at_ms,
        }
        if failure
        else None,
    }


def _row(entry: HistoryEntry) -> dict[str, Any]:
    """Return a batch for people."""
    report = entry.report
    return {
        "batch": entry.seq,
        "run": entry.run_id,
        "clock": _instant(report.plan.clock_ms if report else None),
        "committed": _instant(entry.committed_at_ms),
        **(_numbers(report) if report else dict.fromkeys(_NUMBERS)),
        "failed": f"{entry.failure.step}: {entry.failure.error}" if entry.failure else "",
    }


def _numbers(report: BatchReport) -> dict[str, str]:
    from tidegate.ledger.report import STEPS

    seconds = (f"{report.seconds[step]:.1f}" if step in report.seconds else "-" for step in STEPS)
    fates = report.fates
    numbers = (
        *(report.came_in, fates["used"], fates["quarantined"], report.late, report.other),
        *(report.counts.get("emitted", 0), report.suppressed),
    )
    return dict(zip(_NUMBERS, [*(f"{number:.0f}" for number in numbers), " ".join(seconds)], strict=True))


def _instant(epoch_ms: int | None) -> str | None:
    """Return ISO 8601, to the second, in UTC."""
    if epoch_ms is None:
        return None
    return datetime.fromtimestamp(epoch_ms / 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
