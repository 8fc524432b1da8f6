"""Cover the interval of a run by several batches, each planned, committed and published by itself.

The first batch has the run's id in the ledger, the next ones `<run id>#2`, `<run id>#3` and so on. So a
process that continues the run finds in the ledger how far it is, wherever it was killed. The run's first own
plan fixes how far the interval goes, so records that come in meanwhile are left to later runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from tidegate.app.root import App
from tidegate.batch.offsets import Ends, offsets_at
from tidegate.batch.topics import source_topics
from tidegate.batch.trigger import Trigger
from tidegate.ledger import Head, LedgerReader, Plan, Run, Stream
from tidegate.ledger.planned import lacking_sinks
from tidegate.model.pipeline import Pipeline
from tidegate.numerals import batches_named

_SEPARATOR = "#"
"""Airflow's default `allowed_run_id_pattern` does not allow it, so no run's own id contains it."""


def batch_run_id(run_id: str, number: int) -> str:
    """Return the id in the ledger of the `number`th batch of a run, from 1 on.

    Example: `batch_run_id("manual", 1)` is "manual", and `batch_run_id("manual", 2)` is "manual#2".
    """
    return run_id if number == 1 else f"{run_id}{_SEPARATOR}{number}"


def run_of_batch(run_id: str) -> str:
    """Return the run whose batch has this id in the ledger: `run_of_batch("manual#2")` is "manual"."""
    return run_id.partition(_SEPARATOR)[0]


def noted_batches(ledger: LedgerReader, stream: Stream, run_id: str) -> list[Run]:
    """Return the batches of a run that the ledger has so far, in their order."""
    noted: list[Run] = []
    for number in count(1):
        run = ledger.run(stream, batch_run_id(run_id, number))
        if run is None:
            return noted
        noted.append(run)
    raise AssertionError("a run has an end")


def has_more_batches(app: App, stream: Stream, trigger: Trigger) -> bool:
    """Return whether a run has a batch after its first one, or needs one."""
    noted = noted_batches(app.ledger, stream, trigger.run_id)
    return len(noted) > 1 or (bool(noted) and _goes_on(app.ledger, stream, trigger, noted))


def is_done(ledger: LedgerReader, stream: Stream, trigger: Trigger) -> bool:
    """Return whether the batches of a run are published and cover its interval, or it had nothing to do."""
    noted = noted_batches(ledger, stream, run_of_batch(trigger.run_id))
    if not noted or _goes_on(ledger, stream, trigger, noted):
        return False
    newest, head = noted[-1].seq, ledger.head(stream).seq
    # A run without a seq had nothing to do; the plan of a later batch has published this one first.
    if newest is None or newest < head:
        return True
    plan = ledger.plan(stream, newest)
    return newest == head and (plan is None or not lacking_sinks(ledger, plan))


def batches_of_run(app: App, stream: Stream, trigger: Trigger, first: int = 1) -> Iterator[Trigger]:
    """Yield the triggers of a run's batches, from its `first`, or from the newest that the ledger has, on.

    The caller plans the batch of a trigger, or finds it planned, and takes it through all steps before it
    asks for the next one: only then does the ledger say whether there is one. The newest batch is yielded
    once more, however far it is, because only its steps know whether each of them is done. The batches before
    it are done.
    """
    while True:
        noted = noted_batches(app.ledger, stream, trigger.run_id)
        number = max(1, len(noted))
        if number < first:
            if not _goes_on(app.ledger, stream, trigger, noted):
                return
            number += 1
        yield _trigger_of_batch(app.ledger, stream, trigger, noted[: number - 1])
        first = number + 1


def _goes_on(ledger: LedgerReader, stream: Stream, trigger: Trigger, noted: list[Run]) -> bool:
    """Return whether a run has to read more of its interval after these batches."""
    if not noted or noted[-1].seq is None:
        return False  # it found nothing to read
    plan = ledger.plan(stream, noted[-1].seq)
    if plan is None:
        return False  # so long ago that the ledger has no plan of it: later runs have read on
    if not _is_own(plan, noted[-1]):
        return True  # it was another run's, which went first
    if plan.drain or not plan.span or _records_left(ledger, stream, trigger, noted) == 0:
        return False  # what nothing was read of, such as behind an open transaction, is left to later runs
    until = trigger.until_offsets
    return any(
        range_.is_cut and (until is None or range_.end < until.get(range_.place, 0)) for range_ in plan.ranges
    )


def _trigger_of_batch(ledger: LedgerReader, stream: Stream, trigger: Trigger, before: list[Run]) -> Trigger:
    """Return the trigger of the batch after these."""
    # Only the first own plan asks Kafka for the interval's end: a later answer would include newer records.
    own = next(_own_plans(ledger, stream, before), None)
    return replace(
        trigger,
        run_id=batch_run_id(trigger.run_id, len(before) + 1),
        interval_ends=own.interval_ends if own is not None else trigger.interval_ends,
        max_records=_records_left(ledger, stream, trigger, before),
    )


def _records_left(ledger: LedgerReader, stream: Stream, trigger: Trigger, noted: list[Run]) -> int | None:
    if trigger.max_records is None:
        return None
    return max(0, trigger.max_records - sum(plan.span for plan in _own_plans(ledger, stream, noted)))


def _own_plans(ledger: LedgerReader, stream: Stream, noted: list[Run]) -> Iterator[Plan]:
    """Yield the plans of the batches that the run has planned itself, as far as the ledger still has them."""
    for run in noted:
        plan = ledger.plan(stream, run.seq) if run.seq is not None else None
        if plan is not None and _is_own(plan, run):
            yield plan


def _is_own(plan: Plan, run: Run) -> bool:
    return plan.run_id == run.run_id


def describe_cover(app: App, pipeline: Pipeline, head: Head, trigger: Trigger) -> str:
    """Return why a run has nothing to read; for a backfill's run, with the batches that have read its
    interval.
    """
    if not trigger.backfill or trigger.interval_start_ms is None or trigger.interval_end_ms is None:
        return f"nothing new to read: batches up to {head.seq} cover all records before the interval's end"
    with app.log(pipeline.sources.connection) as log:
        views = [log.view(topic) for topic in source_topics(log, pipeline.sources, head)]
        starts = offsets_at(log, views, trigger.interval_start_ms)
        ends = offsets_at(log, views, trigger.interval_end_ms)
    batches = reading_batches(app.ledger, head, starts, ends)
    if batches is None:
        return f"nothing to read: the interval has no records, and batches up to {head.seq} have passed it"
    first, last = batches
    which = batches_named(first, last)
    return f"nothing new to read: {which} of {head.stream} read the interval's records already"


def reading_batches(ledger: LedgerReader, head: Head, starts: Ends, ends: Ends) -> tuple[int, int] | None:
    """Return the first and the last batch that have read the records between these offsets; None: there are
    none.

    It looks at few plans: it searches by halves.

    Args:
        ledger: the ledger.
        head: the stream's head.
        starts: where the records begin; a partition that is missing has no record there.
        ends: where they end; a partition that is missing has them up to the head, at most.
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
    """Return the first batch after which so much was read. A batch without its plan is too early."""

    def after(seq: int) -> bool:
        plan = ledger.plan(head.stream, seq)
        return plan is not None and is_past(plan.ends)

    # bisect needs a monotonic key: offsets only rise. An accepted gap can put the head beyond all plans.
    return min(bisect_left(range(1, head.seq + 1), True, key=after) + 1, head.seq)
