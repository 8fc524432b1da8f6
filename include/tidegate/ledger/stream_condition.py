"""Derive the condition of a stream from recorded facts.

`derive_condition` is pure: the caller passes facts and time. `read_facts` reads the facts from the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from enum import Enum, IntEnum

from tidegate import errors
from tidegate.errors import Permanent, TidegateError
from tidegate.ledger.facts import BatchFacts, CurrentBatches, Failure, StreamStatus
from tidegate.ledger.promotions import Charge
from tidegate.ledger.reader import LedgerReader
from tidegate.ledger.records import Attempt, Plan, Stream
from tidegate.model.compiled import longest_schedule_gap, output_count
from tidegate.numerals import counted

STALLED_AFTER = timedelta(minutes=10)
"""A planned batch without a worker for this long is behind; between two steps only seconds pass."""
CLOCK_AHEAD_MS = 10 * 60_000
"""A clock that is ahead by less than this counts as a difference between the clocks of two machines."""
MISSED_INTERVALS = 2
"""A stream is behind if this many intervals of its schedule have passed unread."""


class Urgency(IntEnum):
    """The degree to which a condition needs a person. It is also the value of the metric `condition`."""

    NONE = 0
    WATCH = 1
    """It can pass; look at it if it stays."""
    RETRY = 2
    """The last try failed, and a retry can help."""
    ACT = 3
    """It stays so until somebody acts."""


class ConditionKind(Enum):
    """The conditions of a stream, the worst first."""

    HALTED = "halted", Urgency.ACT
    """No retry succeeds until somebody acts."""
    FENCED = "fenced", Urgency.ACT
    """A sink or a table is ahead of this ledger: another ledger, or a newer state of it, is in use."""
    FAILING = "failing", Urgency.RETRY
    """The last try of a step failed for a reason that can pass."""
    CLOCK_AHEAD = "clock ahead", Urgency.ACT
    """Its clock is later than now, so windows, thresholds and time limits end too early."""
    BEHIND = "behind", Urgency.WATCH
    """A batch or an interval has waited for too long, and no step has failed."""
    RETIRED = "retired", Urgency.NONE
    """No pipeline file has the generation any more."""
    WITHHELD = "withheld", Urgency.NONE
    """Another generation is in charge of publishing."""
    NOT_STARTED = "not started", Urgency.NONE
    """No batch was planned yet."""
    OK = "ok", Urgency.NONE

    @property
    def label(self) -> str:
        """The words that users see."""
        return self.value[0]

    @property
    def urgency(self) -> Urgency:
        """The degree to which the condition needs a person."""
        return self.value[1]


_FENCING = ("Fenced", "LedgerMismatch")
"""The classes of errors that say that another ledger, or a newer state of it, is in use."""
_RANK = {condition: rank for rank, condition in enumerate(ConditionKind)}


@dataclass(frozen=True)
class Cause:
    """A cause of a condition.

    Args:
        what: what is the case.
        fix: what to do about it; "" if nothing.
        error: the class of the error that a step failed with; "" if none failed.
    """

    condition: ConditionKind
    what: str
    fix: str = ""
    error: str = ""

    @property
    def text(self) -> str:
        """Cause and fix as one text."""
        return f"{self.what.rstrip('.')}. {self.fix}" if self.fix else self.what


@dataclass(frozen=True)
class StreamCondition:
    """The worst condition of a stream, and the causes of all conditions that need attention, worst first."""

    condition: ConditionKind
    causes: tuple[Cause, ...] = ()

    @property
    def is_troubled(self) -> bool:
        """Return whether the condition needs attention."""
        return self.condition.urgency > Urgency.NONE


@dataclass(frozen=True)
class StreamFacts:
    """The recorded facts of a stream, from which its condition is derived.

    Args:
        status: None if the ledger does not have the stream.
        decided: the head's batch; None before the first commit.
        failures: those recorded of the head's batch and of the one after it; a later try may have succeeded.
        open_plan: the batch that is planned and not committed.
        open_attempt: its newest attempt.
        unpublished: the sinks that lack the head's batch.
        unreadable: the error that kept the ledger's other facts from being read.
        is_withheld: another generation is in charge of publishing.
        in_charge: that generation; None if every generation publishes.
        is_read_in_charge: a pipeline file has the generation in charge.
        has_file: a pipeline file has this generation.
        file_mistake: what is wrong in the pipeline file; "" if nothing is.
        lag: in offsets; None if it was not asked.
        schedule_gap: the longest time between two runs by the schedule; None if it has no schedule.
    """

    stream: Stream
    status: StreamStatus | None = None
    failures: tuple[Failure, ...] = ()
    decided: BatchFacts | None = None
    open_plan: Plan | None = None
    open_attempt: Attempt | None = None
    unpublished: tuple[str, ...] = ()
    unreadable: TidegateError | None = None
    is_withheld: bool = False
    in_charge: int | None = None
    is_read_in_charge: bool = True
    has_file: bool = True
    file_mistake: str = ""
    lag: int | None = None
    schedule_gap: timedelta | None = None


def derive_condition(facts: StreamFacts, now_ms: int) -> StreamCondition:
    """Return the condition of a stream with its causes. `now_ms` is the machine's time, epoch ms.

    Example: `derive_condition(StreamFacts(Stream("orders", 1)), now_ms=0)` has the condition `NOT_STARTED`
    and no causes.
    """
    causes = sorted(_causes(facts, now_ms), key=lambda cause: _RANK[cause.condition])
    if causes:
        return StreamCondition(causes[0].condition, tuple(causes))
    return StreamCondition(_calm(facts))


def _calm(facts: StreamFacts) -> ConditionKind:
    if not facts.has_file:
        return ConditionKind.RETIRED
    status = facts.status
    if status is None or (status.head.seq == 0 and status.open_seq is None):
        return ConditionKind.NOT_STARTED
    return ConditionKind.WITHHELD if facts.is_withheld else ConditionKind.OK


def _causes(facts: StreamFacts, now_ms: int) -> Iterator[Cause]:
    if facts.file_mistake:
        yield Cause(ConditionKind.HALTED, facts.file_mistake, error="PipelineInvalid")
    if facts.unreadable is not None:
        error = facts.unreadable
        name = type(error).__name__
        yield Cause(_condition_of(name), f"{name}: {error.what}", error.fix, name)
    status = facts.status
    noted = [failure for failure in facts.failures if status is None or not _is_past(failure, facts, status)]
    yield from map(_failed, noted)
    if status is None:
        return
    if not facts.has_file and facts.open_plan is not None:
        yield undecided_without_file(facts.stream, facts.open_plan.seq)
        return
    # A recorded failure already says why the work is left.
    if not noted:
        yield from _left(facts, status, now_ms)
    if facts.has_file:
        yield from _unread_in_charge(facts)
        yield from _ahead(facts, status, now_ms)
        yield from _unread(facts, status, now_ms)


def _failed(failure: Failure) -> Cause:
    what = (
        f"batch {failure.seq} failed in {failure.step} at {instant_text(failure.at_ms)}: {failure.error}: "
        f"{failure.what}"
    )
    return Cause(_condition_of(failure.error), what, failure.fix, failure.error)


def _condition_of(error: str) -> ConditionKind:
    """Return the condition that follows from an error of this class.

    Another version of tidegate can have recorded a class that this version lacks; it counts as an error that
    halts.
    """
    if error in _FENCING:
        return ConditionKind.FENCED
    is_permanent = issubclass(getattr(errors, error, Permanent), Permanent)
    return ConditionKind.HALTED if is_permanent else ConditionKind.FAILING


def _is_past(failure: Failure, facts: StreamFacts, status: StreamStatus) -> bool:
    """Return whether the step that failed has succeeded since.

    The ledger itself removes the failures of `start`, `plan` and `tables` when these steps succeed. `start`
    is the beginning of each step: it takes the lease and checks that the folder belongs to this ledger.
    """
    seq = status.head.seq
    if failure.seq not in (seq, seq + 1):
        return True
    if failure.step == "plan" and not facts.has_file and facts.open_plan is None:
        return True  # nothing plans for it any more
    if failure.step == "publish":
        return not facts.unpublished
    if failure.step == "tables":
        return False
    if failure.seq == seq:
        return True
    attempt = facts.open_attempt
    if attempt is None or failure.step in ("start", "plan", "commit"):
        return False
    return failure.step == "compute" or bool(attempt.validated)


def _left(facts: StreamFacts, status: StreamStatus, now_ms: int) -> Iterator[Cause]:
    """Yield the causes from work that was begun and that no process continues."""
    if status.holder is not None:
        return
    if status.head.erasure is not None:
        yield Cause(
            ConditionKind.HALTED,
            f"erasure {status.head.erasure} of {facts.stream} is not finished, and no process works on it",
            f"Until it is, no batch is planned. Let it go on: tidegate erase {facts.stream.pipeline} --yes.",
        )
    if facts.unpublished:
        yield Cause(
            ConditionKind.BEHIND,
            f"batch {status.head.seq} is committed and not published to {', '.join(facts.unpublished)}, "
            "no try has failed, and no process works on it",
            "The next run publishes it first: see that the DAG is not paused, or run it again.",
        )
    if status.open_seq is None or status.planned_at is None:
        return
    if now_ms - status.planned_at * 1000 >= STALLED_AFTER / timedelta(milliseconds=1):
        yield Cause(
            ConditionKind.BEHIND,
            f"batch {status.open_seq} was planned at {instant_text(status.planned_at * 1000)}, and no "
            "process works on it: its run has died, or waits",
            "The next run continues it; see that the DAG is not paused, and clear failed tasks.",
        )


def _unread_in_charge(facts: StreamFacts) -> Iterator[Cause]:
    """Yield a cause if a generation withholds, and the one in charge, which would publish, reads no more."""
    if facts.is_withheld and not facts.is_read_in_charge:
        stream = facts.stream
        yield Cause(
            ConditionKind.BEHIND,
            f"nothing of {stream.pipeline} is published: generation {facts.in_charge} is in charge, and no "
            f"pipeline file has it; what {stream} decides is withheld",
            f"Put this one in charge: tidegate generation promote {stream.pipeline} {stream.generation}; or "
            f"restore the file of generation {facts.in_charge}.",
        )


def _ahead(facts: StreamFacts, status: StreamStatus, now_ms: int) -> Iterator[Cause]:
    clocks = [*status.head.clocks.values()]
    if facts.open_plan is not None:
        clocks.append(facts.open_plan.clock_ms)
    clock_ms = max(clocks, default=-1)
    if clock_ms - now_ms > CLOCK_AHEAD_MS:
        yield Cause(
            ConditionKind.CLOCK_AHEAD,
            f"the clock of {facts.stream} is {instant_text(clock_ms)}, which is later than now: until then "
            "every window, threshold and time limit counts as over as soon as it begins",
            f"If that was a mistake, set it back: {facts.stream.recover_command('lower-clock')}",
        )


def _unread(facts: StreamFacts, status: StreamStatus, now_ms: int) -> Iterator[Cause]:
    """Yield a cause if records wait that the schedule should have had read."""
    if not facts.lag or facts.schedule_gap is None or not status.head.clocks:
        return
    # The partition that is furthest behind says up to where everything is read.
    clock_ms = min(status.head.clocks.values())
    allowed = MISSED_INTERVALS * facts.schedule_gap + STALLED_AFTER
    if now_ms - clock_ms > allowed / timedelta(milliseconds=1):
        yield Cause(
            ConditionKind.BEHIND,
            f"{counted(facts.lag, 'offset')} to read: records are read completely only up to "
            f"{instant_text(clock_ms)}, though a run is due every {facts.schedule_gap}",
            "See that the DAG is not paused, that its runs end in time, and that `max_records` is enough.",
        )


def undecided_without_file(stream: Stream, seq: int) -> Cause:
    """Return the cause for a planned batch of a generation that no pipeline file has any more."""
    return Cause(
        ConditionKind.BEHIND,
        f"batch {seq} is planned and not decided, and no pipeline file has generation {stream.generation} of "
        f"{stream.pipeline}",
        "To finish it, put that generation into its own file, which can exist beside the file of another "
        f"generation; to drop the plan: {stream.recover_command('drop-plan')}",
    )


def instant_text(epoch_ms: float) -> str:
    """Return an instant in ISO 8601 to the second, with its offset.

    Example: `instant_text(0)` is `1970-01-01 00:00:00+00:00`. A year that no calendar has, such as the one of
    a corrupt timestamp, is given as milliseconds.
    """
    try:
        instant = datetime.fromtimestamp(epoch_ms / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms:.0f} ms"
    return instant.isoformat(sep=" ", timespec="seconds")


def read_facts(ledger: LedgerReader, streams: Sequence[Stream]) -> dict[Stream, StreamFacts]:
    """Return the recorded facts of streams, without their files and their lags, which the caller adds.

    The number of queries does not depend on the number of streams. If the ledger has lost the pipeline of a
    plan, the error is one of the facts (`unreadable`). Raises LedgerUnavailable if the database does not
    answer.
    """
    current = ledger.current_batches(streams)
    charges = ledger.charges({stream.pipeline for stream in streams})
    facts = {stream: StreamFacts(stream) for stream in streams}
    for status, batches in current:
        facts[status.stream] = _facts(status, batches, charges[status.stream.pipeline])
    return facts


def _facts(status: StreamStatus, batches: CurrentBatches, charge: Charge) -> StreamFacts:
    stream, decided, following = status.stream, batches.decided, batches.following
    failures = (decided.failure, following.failure)
    facts = StreamFacts(
        stream,
        status,
        tuple(failure for failure in failures if failure is not None),
        decided=decided if status.head.seq else None,
        open_plan=following.plan,
        open_attempt=following.attempt if following.plan is not None else None,
        unreadable=batches.unreadable,
        is_withheld=charge.withholds(stream.generation),
        in_charge=charge.generation,
    )
    if decided.plan is None:
        return facts
    owner = f"batch {decided.seq} of {stream}"
    try:
        return replace(
            facts,
            unpublished=_unpublished(decided.plan, decided.publications, charge, owner),
            schedule_gap=longest_schedule_gap(decided.plan.spec_compiled, owner),
        )
    except TidegateError as error:
        return replace(facts, unreadable=error)


def _unpublished(plan: Plan, published: Collection[str], charge: Charge, owner: str) -> tuple[str, ...]:
    # Counting decides the usual case without the grammar.
    if len(published) >= output_count(plan.spec_compiled, owner):
        return ()
    from tidegate.ledger.planned import sinks_to_send  # late: it reads the grammar

    return tuple(sinks_to_send(plan, published, charge))
