"""The condition of a stream: one function derives it from what is recorded. Pure: facts and time are given.

The page, `status`, `doctor`, metrics and callbacks show what `derive_condition` returns, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum, IntEnum

from tidegate import errors
from tidegate.errors import Permanent, TidegateError
from tidegate.ledger.records import Attempt, Failure, Plan, Stream, StreamStatus

STALLED_AFTER = timedelta(minutes=10)
"""A planned batch that nobody works on for so long is behind: between two steps there are seconds."""
CLOCK_AHEAD_MS = 10 * 60_000
"""So far machines' clocks may differ."""
MISSED_INTERVALS = 2
"""A stream is behind if so many intervals of its schedule have passed unread."""


class Urgency(IntEnum):
    """What a condition asks of people. It is also the value of the metric `condition`."""

    NONE = 0
    WATCH = 1
    """It may pass; it is worth a look if it stays."""
    RETRY = 2
    """The last try failed, and a retry can help."""
    ACT = 3
    """It stays so until somebody acts."""


class ConditionKind(Enum):
    """What can be said of a stream in a word, the worst first."""

    HALTED = "halted", Urgency.ACT
    """No retry gets it on until somebody acts."""
    FENCED = "fenced", Urgency.ACT
    """A sink or a table is further than this ledger: another ledger, or a newer state of it, is in use."""
    FAILING = "failing", Urgency.RETRY
    """The last try of a step failed of something that can pass."""
    CLOCK_AHEAD = "clock ahead", Urgency.ACT
    """Its clock is later than now, so windows, thresholds and time limits end too early."""
    BEHIND = "behind", Urgency.WATCH
    """A batch or an interval waits for longer than it should, and no step has failed."""
    RETIRED = "retired", Urgency.NONE
    """No pipeline file has the generation any more."""
    WITHHELD = "withheld", Urgency.NONE
    """Another generation is in charge of publishing."""
    NOT_STARTED = "not started", Urgency.NONE
    """No batch was planned yet."""
    OK = "ok", Urgency.NONE

    @property
    def label(self) -> str:
        """The words that people see."""
        return self.value[0]

    @property
    def urgency(self) -> Urgency:
        """What it asks of people."""
        return self.value[1]


_FENCING = ("Fenced", "LedgerMismatch")
"""The classes of errors that say that another ledger, or a newer state of it, is in use."""
_RANK = {condition: rank for rank, condition in enumerate(ConditionKind)}


@dataclass(frozen=True)
class Cause:
    """Why a stream is in a condition: `what` is the case and the `fix`. `error` is the class of the error
    that a step has failed of, if one has.
    """

    condition: ConditionKind
    what: str
    fix: str = ""
    error: str = ""

    @property
    def text(self) -> str:
        """Both in one."""
        return f"{self.what.rstrip('.')}. {self.fix}" if self.fix else self.what


@dataclass(frozen=True)
class StreamCondition:
    """The worst condition, and the causes of all conditions that ask something, the worst first."""

    condition: ConditionKind
    causes: tuple[Cause, ...] = ()

    @property
    def is_troubled(self) -> bool:
        """Return whether anything is asked of people."""
        return self.condition.urgency > Urgency.NONE


@dataclass(frozen=True)
class StreamFacts:
    """All that is recorded of a stream.

    `status` is None before the ledger knows the stream. `failures` are those noted of the head's batch and of
    the one after it; they may be past. `open_plan` is planned and not committed, `open_attempt` its newest
    attempt. `unpublished` are the sinks that lack the head's batch. `unreadable` is why the ledger does not
    say more. `file_mistake` is what is wrong with the pipeline's file. `lag` is in offsets, None: not known;
    `schedule_gap` is the longest time between two runs by the schedule, None: it has none.
    """

    stream: Stream
    status: StreamStatus | None = None
    failures: tuple[Failure, ...] = ()
    open_plan: Plan | None = None
    open_attempt: Attempt | None = None
    unpublished: tuple[str, ...] = ()
    unreadable: TidegateError | None = None
    is_withheld: bool = False
    has_file: bool = True
    file_mistake: str = ""
    lag: int | None = None
    schedule_gap: timedelta | None = None


def derive_condition(facts: StreamFacts, now_ms: int) -> StreamCondition:
    """Return the condition of a stream with its causes. `now_ms` is the machine's time, epoch ms."""
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
    if not noted:
        yield from _left(facts, status, now_ms)
    if facts.has_file:
        yield from _ahead(facts, status, now_ms)
        yield from _unread(facts, status, now_ms)


def _failed(failure: Failure) -> Cause:
    what = (
        f"batch {failure.seq} failed in {failure.step} at {instant_text(failure.at_ms)}: {failure.error}: "
        f"{failure.what}"
    )
    return Cause(_condition_of(failure.error), what, failure.fix, failure.error)


def _condition_of(error: str) -> ConditionKind:
    """An error that this version does not have was noted by another one: it counts as one that halts."""
    if error in _FENCING:
        return ConditionKind.FENCED
    is_permanent = issubclass(getattr(errors, error, Permanent), Permanent)
    return ConditionKind.HALTED if is_permanent else ConditionKind.FAILING


def _is_past(failure: Failure, facts: StreamFacts, status: StreamStatus) -> bool:
    """Return whether the step that failed has gone through since.

    The ledger itself removes the notes of `start`, `plan` and `tables` when these go through. `start` is what
    each step begins with: it takes the lease and makes sure that the folder is this ledger's.
    """
    seq = status.head.seq
    if failure.seq not in (seq, seq + 1):
        return True
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
    """What was begun, and nobody works on it."""
    if status.holder is not None:
        return
    if facts.unpublished:
        yield Cause(
            ConditionKind.BEHIND,
            f"batch {status.head.seq} is committed and not published to {', '.join(facts.unpublished)}, "
            "no try has failed, and nobody is at work on it",
            "The next run publishes it first: see that the DAG is not paused, or run it again.",
        )
    if status.open_seq is None or status.planned_at is None:
        return
    if now_ms - status.planned_at * 1000 >= STALLED_AFTER / timedelta(milliseconds=1):
        yield Cause(
            ConditionKind.BEHIND,
            f"batch {status.open_seq} was planned at {instant_text(status.planned_at * 1000)}, and nobody is "
            "at work on it: its run has died, or waits",
            "The next run goes on with it; see that the DAG is not paused, and clear what failed.",
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
    """Records wait, and the schedule would have had them read."""
    if not facts.lag or facts.schedule_gap is None or not status.head.clocks:
        return
    clock_ms = min(status.head.clocks.values())
    allowed = MISSED_INTERVALS * facts.schedule_gap + STALLED_AFTER
    if now_ms - clock_ms > allowed / timedelta(milliseconds=1):
        yield Cause(
            ConditionKind.BEHIND,
            f"{facts.lag} offsets wait, and what came before {instant_text(clock_ms)} is the newest that is "
            f"read as a whole, though a run is due every {facts.schedule_gap}",
            "See that the DAG is not paused, that its runs end in time, and that `max_records` is enough.",
        )


def undecided_without_file(stream: Stream, seq: int) -> Cause:
    """Return what to do about a planned batch of a generation that no pipeline file has any more."""
    return Cause(
        ConditionKind.BEHIND,
        f"batch {seq} is planned and not decided, and no pipeline file has generation {stream.generation} of "
        f"{stream.pipeline}",
        "To finish it, put that into a file of its own, which may stand beside that of another generation; "
        f"to forget it: {stream.recover_command('drop-plan')}",
    )


def instant_text(epoch_ms: float) -> str:
    """Return an instant to the second, with its offset; of a year that no calendar has, the milliseconds."""
    try:
        instant = datetime.fromtimestamp(epoch_ms / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms:.0f} ms"
    return instant.isoformat(sep=" ", timespec="seconds")
