"""Hold the lease while a step works, record its failure, and time it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidegate.app.manifests import batch_named
from tidegate.app.owner import claim_folder
from tidegate.app.root import App
from tidegate.errors import Fenced, LakeDamaged, LedgerUnavailable, Permanent, TidegateError, Transient
from tidegate.ledger import LEASE_SECONDS, LeasedLedger, LedgerReader, Plan, Stream, lease_held

_BEFORE_COMMIT = ("compute", "validate")
"""Steps of a batch that is planned and not decided: its plan can be dropped."""


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
