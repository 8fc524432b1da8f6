"""Holding the lease while a step works, and timing the step."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidegate.app.damage import batch_named
from tidegate.app.owner import claim_folder
from tidegate.app.root import App
from tidegate.errors import Fenced, LakeDamaged, LedgerUnavailable, Permanent, TidegateError, Transient
from tidegate.ledger import LEASE_SECONDS, LeasedLedger, LedgerReader, Plan, Stream, lease_held

_BEFORE_COMMIT = ("compute", "validate")
"""Steps of a batch that is planned and not decided: its plan can be dropped."""


def check_lease(ledger: LedgerReader, stream: Stream, run_id: str) -> None:
    """Raise LeaseHeld if another run is at work. For who can wait before something that takes long to start:
    only `leased` says for certain.
    """
    holder = ledger.lease_holder(stream)
    if holder not in (None, run_id):
        raise lease_held(stream, holder)


@contextmanager
def leased(app: App, stream: Stream, run_id: str) -> Iterator[LeasedLedger]:
    """The lease for one step of a run, renewed while it works. The stream's folder is the ledger's own.

    It stays with the run after the step, since the next step follows. An error gives it back, so that
    nobody waits for a run that may never be tried again; only a killed process leaves it to run out.

    Raises LeaseHeld, and what `claim_folder` raises; Fenced in place of an error that comes when the lease is
    another's: by then files may have been removed that nobody else needs any more, and what this step missed
    says nothing.
    """
    held = app.ledger.acquire(stream, run_id)
    stop = threading.Event()
    keeper = threading.Thread(target=_keep, args=(held, stop), daemon=True)
    keeper.start()
    try:
        with failures_noted(held, held.head(stream).seq + 1, "start"):
            claim_folder(app, stream)
        yield held
    except BaseException as error:
        if (lost := _give_back(held, error)) is not None:
            raise lost from error
        raise
    finally:
        stop.set()
        keeper.join()


def _give_back(held: LeasedLedger, error: BaseException) -> Fenced | None:
    """Let others in after an error. Returns Fenced where they are in already: it may be of that."""
    try:
        if isinstance(error, Permanent):
            held.renew()
        held.release()
    except Fenced as lost:
        return lost
    except Transient:
        pass  # the first error is the one to tell
    return None


@contextmanager
def leased_for(app: App, plan: Plan, run_id: str, step: str) -> Iterator[LeasedLedger]:
    """The lease for one step on a planned batch. Raises Fenced when that plan is no longer the ledger's.

    What the step fails of is noted.

    A step reads its plan before it has the lease. If somebody drops the plan in between, and the batch is
    planned anew, then what the step would do with the old one must not pass for the new one's.
    """
    with leased(app, plan.stream, run_id) as held:
        if held.plan(plan.stream, plan.seq) != plan:
            raise Fenced(
                f"The plan of batch {plan.seq} of {plan.stream} was dropped meanwhile",
                "Nothing was written; trigger a new run.",
            )
        with failures_noted(held, plan.seq, step):
            yield held


def _keep(held: LeasedLedger, stop: threading.Event) -> None:
    while not stop.wait(LEASE_SECONDS / 4):
        try:
            held.renew()
        except Fenced:
            return  # the step learns it at its next write
        except Transient:
            continue  # the ledger may be back at the next beat


def _kept_pipeline(stream: Stream, seq: int) -> str:
    """What comes before an edit of the file, where a batch is planned already."""
    return (
        f"Batch {seq} keeps the pipeline and lookups that it was planned with, so an edit, or a table that "
        "was corrected, has no effect before its plan is dropped: "
        f"{stream.recover_command('drop-plan')} --yes"
    )


@contextmanager
def failures_noted(held: LeasedLedger, seq: int, step: str) -> Iterator[None]:
    """Record in the ledger what a step of a batch failed of: the condition of a stream is derived from that.

    Fenced is recorded where it comes from a sink. Where it comes from the ledger, a newer try holds the
    lease, and the ledger refuses the record.
    """
    try:
        yield
    except LedgerUnavailable:
        raise  # the ledger would not take the note either
    except TidegateError as raised:
        error = raised
        if step in _BEFORE_COMMIT and isinstance(raised, Permanent) and raised.resolved_by_edit:
            raised.fix = f"{raised.fix} {_kept_pipeline(held.stream, seq)}".strip()
        if isinstance(raised, LakeDamaged):
            error = raised.needed_by(batch_named(held.stream, seq))
        with suppress(Exception):  # whatever keeps it from being noted, the first error is the one to tell
            held.note_failure(seq, step, error)
        if error is raised:
            raise
        raise error from raised


@contextmanager
def timed(held: LeasedLedger, seq: int, step: str) -> Iterator[None]:
    """Note the seconds that a step of a batch took."""
    began = time.monotonic()
    yield
    held.set_metrics(seq, "", {f"seconds.{step}": time.monotonic() - began})
