"""Which batches have read an interval that is read already."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from tidegate.app.root import App
from tidegate.batch.instants import offsets_at
from tidegate.batch.ranges import Ends
from tidegate.batch.trigger import Trigger
from tidegate.ledger import Head, LedgerReader
from tidegate.spec import Pipeline


def describe_cover(app: App, pipeline: Pipeline, head: Head, trigger: Trigger) -> str:
    """Return why a run has nothing to read; for a backfill's run, with the batches that have read its
    interval.
    """
    if not trigger.backfill or trigger.interval_start_ms is None or trigger.interval_end_ms is None:
        return f"nothing new to read: batches up to {head.seq} cover all records before the interval's end"
    with app.log(pipeline.source.connection) as log:
        views = [log.view(topic) for topic in pipeline.source.topics]
        starts = offsets_at(log, views, trigger.interval_start_ms)
        ends = offsets_at(log, views, trigger.interval_end_ms)
    batches = reading_batches(app.ledger, head, starts, ends)
    if batches is None:
        return f"nothing to read: the interval has no records, and batches up to {head.seq} have passed it"
    first, last = batches
    which = f"batch {last}" if first == last else f"batches {first} to {last}"
    return f"nothing new to read: {which} of {head.stream} read the interval's records already"


def reading_batches(ledger: LedgerReader, head: Head, starts: Ends, ends: Ends) -> tuple[int, int] | None:
    """The first and the last batch that have read what lies between these offsets; None: nothing does.

    A partition without a start has no record there; one without an end has them up to the head, at most.
    Of all batches it looks at as few plans as a search by halves has to.
    """
    read_spans = {at: (start, head.offsets[at]) for at, start in starts.items() if at in head.offsets}
    spans = {at: (start, min(ends.get(at, read), read)) for at, (start, read) in read_spans.items()}
    spans = {at: (start, end) for at, (start, end) in spans.items() if start < end}
    if not spans:
        return None

    def has_begun(read: Ends) -> bool:
        return any(read.get(at, 0) > start for at, (start, _) in spans.items())

    def has_ended(read: Ends) -> bool:
        return all(read.get(at, 0) >= end for at, (_, end) in spans.items())

    return _first_batch(ledger, head, has_begun), _first_batch(ledger, head, has_ended)


def _first_batch(ledger: LedgerReader, head: Head, is_past: Callable[[Ends], bool]) -> int:
    """The first batch after which so much was read. One whose plan is no longer kept counts as too early."""

    def after(seq: int) -> bool:
        plan = ledger.plan(head.stream, seq)
        return plan is not None and is_past(plan.ends)

    return min(bisect_left(range(1, head.seq + 1), True, key=after) + 1, head.seq)
