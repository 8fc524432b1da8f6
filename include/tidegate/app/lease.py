"""Hold the lease while a step works, record its failure, and time it; and check that the folder of a stream
belongs to this ledger, by marks in the folder.

Each committed batch leaves a mark in the folder before any of it is sent, and before the next batch is
planned. Each promotion leaves one in the pipeline's folder before anything is sent under it. If the ledger
lacks the batch of the newest mark, it is another ledger, or was restored from a backup: the process halts
before it reads, removes or sends anything.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidegate.app.root import App, batch_named
from tidegate.errors import (
    Fenced,
    LakeDamaged,
    LedgerMismatch,
    LedgerUnavailable,
    Permanent,
    TidegateError,
    Transient,
)
from tidegate.ledger import LEASE_SECONDS, Charge, LeasedLedger, LedgerReader, Plan, Stream, lease_held
from tidegate.storage import LedgerMark

_BEFORE_COMMIT = ("compute", "validate")
"""Steps of a batch that is planned and not decided: its plan can be dropped."""
DROPPED = "dropped"
"""The name in the last mark of a dropped stream; no attempt has this name."""


def check_lease(ledger: LedgerReader, stream: Stream, run_id: str) -> None:
    """Raise LeaseHeld if another run is at work.

    Use it to wait before something that takes long to start, such as Spark. It guarantees nothing: only
    `leased` takes the lease.
    """
    holder = ledger.lease_holder(stream)
    # The run's own lease from an earlier step is not in its way.
    if holder not in (None, run_id):
        raise lease_held(stream, holder)


@contextmanager
def leased(app: App, stream: Stream, run_id: str) -> Iterator[LeasedLedger]:
    """Take the lease for one step of a run, and renew it while the block runs. Yields a ledger that can
    write.

    After the block the run keeps the lease, since its next step follows. An error releases it, so that nobody
    waits for a run that may never be tried again; only the lease of a killed process has to run out.

    Raises LeaseHeld if another run has the lease, and what `claim_folder` raises. If the block fails after
    another process has taken the lease, the error becomes Fenced: files that only the old lease needed may be
    removed by then, so the error itself means nothing.

    Example:
        with leased(app, stream, run_id) as lease:
            lease.add_plan(plan)
    """
    lease = app.ledger.acquire(stream, run_id)
    stop = threading.Event()
    # A step can outlast the lease, and calls of Spark and Kafka block this thread: another one renews it.
    keeper = threading.Thread(target=_keep, args=(lease, stop), daemon=True)
    keeper.start()
    try:
        with failures_noted(lease, lease.head(stream).seq + 1, "start"):
            claim_folder(app, stream)
        yield lease
    except BaseException as error:
        if (lost := _give_back(lease, error)) is not None:
            raise lost from error
        raise
    finally:
        stop.set()
        keeper.join()


def _give_back(lease: LeasedLedger, error: BaseException) -> Fenced | None:
    """Release the lease after an error. Returns Fenced if another process has the lease, which can be the
    cause.
    """
    try:
        if isinstance(error, Permanent):
            lease.renew()  # unlike `release`, it raises Fenced if the lease is lost
        lease.release()
    except Fenced as lost:
        return lost
    except Transient:
        pass  # the first error is the one to report
    return None


@contextmanager
def leased_for(app: App, plan: Plan, run_id: str, step: str) -> Iterator[LeasedLedger]:
    """Take the lease for one step on a planned batch, and record the error if the step fails.

    Raises Fenced if the plan is no longer in the ledger, and what `leased` raises.

    A step reads its plan before it has the lease. If a person drops the plan in between, and the batch is
    planned anew, the step's work on the old plan must not count for the new one.
    """
    with leased(app, plan.stream, run_id) as lease:
        if lease.plan(plan.stream, plan.seq) != plan:
            raise Fenced(
                f"The plan of batch {plan.seq} of {plan.stream} was dropped meanwhile",
                "Nothing was written; trigger a new run.",
            )
        with failures_noted(lease, plan.seq, step):
            yield lease


def _keep(lease: LeasedLedger, stop: threading.Event) -> None:
    # Several times per lease, so that a ledger that fails for a moment does not cost the lease.
    while not stop.wait(LEASE_SECONDS / 4):
        try:
            lease.renew()
        except Fenced:
            return  # the next write of the step raises Fenced
        except Transient:
            continue  # the ledger may answer at the next renewal, before the lease ends


def _plan_advice(stream: Stream, seq: int) -> str:
    """Return the hint that an edit of the file has no effect on a batch that is planned already."""
    return (
        f"Batch {seq} keeps the pipeline and lookups that it was planned with, so an edit, or a table that "
        "was corrected, has no effect before its plan is dropped: "
        f"{stream.recover_command('drop-plan')} --yes"
    )


@contextmanager
def failures_noted(lease: LeasedLedger, seq: int, step: str) -> Iterator[None]:
    """Record in the ledger the error that a step of a batch fails with. The condition of a stream is derived
    from it.

    A Fenced that comes from a sink is recorded. One that comes from the ledger is not: a newer process holds
    the lease, and the ledger refuses the record. Raises the error again, with the batch in its text if a file
    is damaged.
    """
    try:
        yield
    except LedgerUnavailable:
        raise  # the ledger cannot store the failure either
    except TidegateError as raised:
        error = raised
        # After the commit no plan can be dropped, so the advice would be wrong.
        if step in _BEFORE_COMMIT and isinstance(raised, Permanent) and raised.resolved_by_edit:
            raised.fix = f"{raised.fix} {_plan_advice(lease.stream, seq)}".strip()
        if isinstance(raised, LakeDamaged):
            error = raised.needed_by(batch_named(lease.stream, seq))
        with suppress(Exception):  # the first error is the one to report, even if it cannot be recorded
            lease.note_failure(seq, step, error)
        if error is raised:
            raise
        raise error from raised


@contextmanager
def timed(lease: LeasedLedger, seq: int, step: str) -> Iterator[None]:
    """Record the seconds that a step of a batch takes as the metric `seconds.<step>`, if it succeeds."""
    began = time.monotonic()
    yield
    lease.set_metrics(seq, "", {f"seconds.{step}": time.monotonic() - began})


def claim_folder(app: App, stream: Stream) -> None:
    """Check that the stream's folder belongs to this ledger, and mark it with the head if that mark is
    missing.

    This needs no lease: all processes of one ledger write the same mark for a batch, and of two ledgers one
    finds the mark of the other. Raises LedgerMismatch and LakeDamaged as `check_owner`, LakeUnavailable,
    LedgerUnavailable.
    """
    # A loop: another process can commit a batch between the check and the mark.
    marks, missing = app.marks(stream), check_owner(app, stream)
    while missing is not None:
        marks.put(missing)
        missing = check_owner(app, stream)


def check_owner(app: App, stream: Stream) -> LedgerMark | None:
    """Return the mark that the stream's folder lacks for this ledger's head; None if it has it. Writes
    nothing.

    Raises LedgerMismatch if the folder belongs to another ledger, or has a batch that this ledger lacks;
    LakeDamaged if the folder has no mark although the ledger has batches; LakeUnavailable, LedgerUnavailable.
    """
    newest = app.marks(stream).newest()
    # Read the head after the marks. A batch is committed before it is marked, so in this order the head is
    # never older than a mark of this ledger.
    head = _committed_mark(app, stream)
    assert head is not None, "batch 0 is committed in every ledger"
    if newest is None:
        if head.number:
            raise _without_mark(app, stream, head.number)
        return head
    if newest.ledger != head.ledger:
        raise _of_another_ledger(app, stream, newest.ledger, head.ledger)
    if newest != (head if newest.number == head.number else _committed_mark(app, stream, newest.number)):
        raise _unknown_batch(stream, newest, head.number)
    return head if newest.number < head.number else None


def claim_promotions(app: App, pipeline: str) -> None:
    """Check that this ledger has the newest promotion of the pipeline's folder, and add missing marks.

    Raises LedgerMismatch if the folder belongs to another ledger, or has a promotion that this ledger lacks;
    LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    marks = app.promotion_marks(pipeline)
    missing = _missing_promotion(app, pipeline, marks.newest())
    while missing is not None:
        marks.put(missing)
        missing = _missing_promotion(app, pipeline, marks.newest())


def _missing_promotion(app: App, pipeline: str, newest: LedgerMark | None) -> LedgerMark | None:
    """Return the mark of the oldest of this ledger's promotions that the pipeline's folder lacks; None if it
    has all.
    """
    charge = app.ledger.charge(pipeline)
    # Most pipelines have no promotion: then no second query is needed.
    if newest is None and not charge.promotions:
        return None
    own = _committed_mark(app, Stream(pipeline, 0), 0)
    assert own is not None, "batch 0 is committed in every ledger"
    promotions = _promotion_marks(charge, own.ledger)
    if newest is None:
        return promotions[0]
    if newest.ledger != own.ledger:
        raise _of_another_ledger(app, Stream(pipeline, charge.generation or 1), newest.ledger, own.ledger)
    if newest not in promotions:
        raise LedgerMismatch(
            f"Promotion {newest.number} of {pipeline} has put {newest.name} in charge, and this ledger has "
            f"{len(promotions)} promotions: it was restored from a backup, or another copy of it is in use",
            "Use the newest copy of the ledger, or restore a newer backup. If there is none: "
            f"{Stream(pipeline, charge.generation or 1).recover_command('adopt-ledger')}",
        )
    return next(iter(promotions[newest.number :]), None)


def unknown_promotions(app: App, pipeline: str) -> list[LedgerMark]:
    """Return the marks of promotions of this ledger that it does not have, the oldest first.

    Then the ledger was restored from a backup. Raises LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    own = _committed_mark(app, Stream(pipeline, 0), 0)
    assert own is not None, "batch 0 is committed in every ledger"
    marks = [mark for mark in app.promotion_marks(pipeline).all() if mark.ledger == own.ledger]
    promotions = _promotion_marks(app.ledger.charge(pipeline), own.ledger)
    return [mark for mark in marks if mark not in promotions]


def _promotion_marks(charge: Charge, ledger: str) -> list[LedgerMark]:
    return [
        LedgerMark(ledger, promotion.number, str(promotion.stream), vars(promotion))
        for promotion in charge.promotions
    ]


def unknown_mark(app: App, stream: Stream) -> LedgerMark | None:
    """Return the newest mark of the stream's folder if this ledger wrote it but does not have its batch; else
    None.

    Such a ledger was restored from a backup. Raises LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    newest, head = app.marks(stream).newest(), _committed_mark(app, stream)
    if newest is None or head is None or newest.ledger != head.ledger or newest.name == DROPPED:
        return None
    return None if newest == _committed_mark(app, stream, newest.number) else newest


def adopt_folder(app: App, stream: Stream) -> None:
    """Remove the marks of batches that a restored ledger does not have.

    Raises LedgerMismatch if the folder belongs to another ledger; LakeDamaged, LakeUnavailable,
    LedgerUnavailable.
    """
    # From the newest down, until one is a batch that this ledger has committed.
    while (unknown := unknown_mark(app, stream)) is not None:
        app.marks(stream).remove(unknown.number)
    claim_folder(app, stream)


def forget_promotions(app: App, pipeline: str) -> None:
    """Remove the marks of promotions, after the ledger has removed them. Raises LakeDamaged,
    LakeUnavailable.
    """
    marks = app.promotion_marks(pipeline)
    # The newest first: a process that is killed leaves marks without a hole.
    while (newest := marks.newest()) is not None:
        marks.remove(newest.number)


def check_ledger(app: App, stream: Stream) -> None:
    """Raise LedgerMismatch if the stream's folder belongs to another ledger.

    Unlike `check_owner`, it accepts a ledger that has more or fewer batches than the folder.
    """
    newest, own = app.marks(stream).newest(), _committed_mark(app, stream, 0)
    if newest is not None and own is not None and newest.ledger != own.ledger:
        raise _of_another_ledger(app, stream, newest.ledger, own.ledger)


def is_marked_dropped(app: App, stream: Stream) -> bool:
    """Return whether the stream's folder has its last mark. Raises LakeDamaged, LakeUnavailable."""
    newest = app.marks(stream).newest()
    return newest is not None and newest.name == DROPPED


def mark_dropped(app: App, stream: Stream) -> None:
    """Write the last mark of a dropped stream, so that an older copy of the ledger halts, and no other ledger
    begins.

    Raises LedgerMismatch if the folder belongs to another ledger; LakeUnavailable, LedgerUnavailable.
    """
    check_ledger(app, stream)
    marks = app.marks(stream)
    newest, own = marks.newest(), _committed_mark(app, stream, 0)
    assert own is not None, "batch 0 is committed in every ledger"
    if newest is None or newest.name != DROPPED:
        # The highest number, so that this mark is the newest one for every later reader.
        number = 1 if newest is None else newest.number + 1
        marks.put(LedgerMark(own.ledger, number, DROPPED))


def _committed_mark(app: App, stream: Stream, seq: int | None = None) -> LedgerMark | None:
    batch = app.ledger.committed_batch(stream, seq)
    return None if batch is None else LedgerMark(*batch)


def _of_another_ledger(app: App, stream: Stream, owner: str, own: str) -> LedgerMismatch:
    return LedgerMismatch(
        f"The folder of {stream} in the lake {app.settings.lake} belongs to the ledger {owner}, and "
        f"TIDEGATE_LEDGER is the ledger {own}",
        "Set TIDEGATE_LEDGER to the ledger that has written it, or TIDEGATE_LAKE to another place. If this "
        f"ledger is a copy of that one: {stream.recover_command('adopt-ledger')}",
    )


def _unknown_batch(stream: Stream, newest: LedgerMark, head: int) -> LedgerMismatch:
    use = "Use the newest copy of the ledger, or restore a newer backup."
    restored = "It was restored from a backup, or another copy of it is in use"
    if newest.name == DROPPED:
        return LedgerMismatch(f"{stream} was dropped, and this ledger does not have that. {restored}", use)
    instead = f"its last batch is {head}" if newest.number > head else "it has another attempt"
    return LedgerMismatch(
        f"The lake has batch {newest.number} of {stream} as attempt {newest.name}, which this ledger has not "
        f"committed: {instead}. {restored}",
        f"{use} If there is none: {stream.recover_command('send-again')}",
    )


def _without_mark(app: App, stream: Stream, head: int) -> LakeDamaged:
    return LakeDamaged(
        f"The folder of {stream} in the lake {app.settings.lake} has no mark, and the ledger has {head} "
        "batches: it is not the folder that they were written to",
        "Point TIDEGATE_LAKE at the lake that was written to, or restore the folder.",
    )
