"""A run that reads its interval in several batches, each planned, committed and published by itself.

The first batch has the run's id in the ledger, the next ones `<run id>#2`, `<run id>#3` …: whoever comes to
the run again finds there how far it is, wherever it was killed. How far the interval goes is fixed by the
run's first own plan, so what comes in meanwhile is left to later runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from tidegate.app.root import App
from tidegate.batch.trigger import Trigger
from tidegate.ledger import LedgerReader, Plan, Run, Stream

_SEPARATOR = "#"
"""In no id of a run of Airflow's, by its default `allowed_run_id_pattern`."""


def batch_run_id(run_id: str, number: int) -> str:
    """Under which id the ledger has the `number`th batch of a run, from 1 on."""
    return run_id if number == 1 else f"{run_id}{_SEPARATOR}{number}"


def run_of_batch(run_id: str) -> str:
    """The run whose batch has this id in the ledger."""
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
    """Whether a run has a batch after its first one, or needs one."""
    noted = noted_batches(app.ledger, stream, trigger.run_id)
    return len(noted) > 1 or (bool(noted) and _goes_on(app.ledger, stream, trigger, noted))


def batches_of_run(app: App, stream: Stream, trigger: Trigger, first: int = 1) -> Iterator[Trigger]:
    """The triggers of a run's batches, from its `first`, or from the newest that the ledger has, on.

    Whoever takes one plans its batch, or finds it planned, and brings it through all steps before it asks for
    the next: then the ledger says whether there is one. The newest is given once more however far it is, for
    only its steps know whether each of them is done; those before it are done, or it would not be there.
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
    """Whether a run, of which these batches are through, has to read more of its interval."""
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
        range_.is_cut and (until is None or range_.end < until.get((range_.topic, range_.partition), 0))
        for range_ in plan.ranges
    )


def _trigger_of_batch(ledger: LedgerReader, stream: Stream, trigger: Trigger, before: list[Run]) -> Trigger:
    """The trigger of the batch after these."""
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
    """The plans of the batches that the run has planned itself, as far as the ledger still has them."""
    for run in noted:
        plan = ledger.plan(stream, run.seq) if run.seq is not None else None
        if plan is not None and _is_own(plan, run):
            yield plan


def _is_own(plan: Plan, run: Run) -> bool:
    return plan.run_id == run.run_id
