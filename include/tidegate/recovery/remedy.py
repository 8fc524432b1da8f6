"""The interface of a remedy: it looks for its cause in a situation, and proposes effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from tidegate.app import App, leased
from tidegate.inspect import stream_condition
from tidegate.ledger import Head, LeasedLedger, LedgerReader, Plan, Recovery, Stream
from tidegate.ledger.stream_condition import Cause


@dataclass(frozen=True)
class Options:
    """The options of `tidegate recover`.

    Args:
        choice: the name of a remedy; None: none was chosen yet.
        from_batch: the first batch to send again.
        progress: sink -> the newest batch that it has completely.
        sinks: the sinks that the choice is for; empty: those that have its cause.
        by: the person who decides.
        checkpoints: a file with offsets of a topic that was moved.
        old_connection: the connection to the cluster in which that topic was.
    """

    choice: str | None = None
    from_batch: int | None = None
    progress: Mapping[str, int] = field(default_factory=dict)
    sinks: tuple[str, ...] = ()
    by: str | None = None
    checkpoints: Path | None = None
    old_connection: str | None = None


@dataclass(frozen=True)
class Situation:
    """A stream that may not be able to continue. What it has read from the ledger is cached, and does not
    change.
    """

    app: App
    stream: Stream
    options: Options = Options()

    @property
    def ledger(self) -> LedgerReader:
        """The ledger, for reading."""
        return self.app.ledger

    @cached_property
    def head(self) -> Head:
        """The stream's last committed batch."""
        return self.ledger.head(self.stream)

    @cached_property
    def open_plan(self) -> Plan | None:
        """The batch that is planned and not decided, if there is one."""
        return self.ledger.plan(self.stream, self.head.seq + 1)

    @cached_property
    def head_plan(self) -> Plan | None:
        """The plan of the last committed batch, if there is one."""
        return self.ledger.plan(self.stream, self.head.seq)

    @cached_property
    def causes(self) -> tuple[Cause, ...]:
        """The causes of the stream's condition, worst first."""
        return stream_condition(self.app, self.stream).causes

    @cached_property
    def uses(self) -> tuple[Recovery, ...]:
        """Each use of a remedy for the stream, the oldest first."""
        return tuple(self.ledger.recoveries(self.stream))

    @property
    def is_withheld(self) -> bool:
        """Whether another generation of the pipeline is in charge, so that this one sends nothing."""
        return self.ledger.charge(self.stream.pipeline).withholds(self.stream.generation)

    def is_chosen(self, remedy: str) -> bool:
        """Return whether a person has chosen the remedy. A chosen remedy may do more than one that only looks
        for its cause.
        """
        return self.options.choice == remedy

    @contextmanager
    def leased(self) -> Iterator[LeasedLedger]:
        """Hold the stream's lease, and release it at the end. Raises LeaseHeld while a run is at work."""
        with leased(self.app, self.stream, f"recover__{uuid4().hex[:8]}") as lease:
            yield lease
            lease.release()


@dataclass(frozen=True)
class Proposal:
    """The effects that a remedy proposes for a cause.

    Nothing is written before `carry_out` is called.

    Args:
        remedy: the remedy's name, as in `--choose`.
        cause: a sentence.
        effects: a sentence for each effect.
        action: causes the effects, and returns a sentence for each.
        stream: the stream that `--generation` has to name, if it is not the one of the command.
    """

    remedy: str
    cause: str
    effects: tuple[str, ...]
    action: Callable[[], tuple[str, ...]]
    stream: Stream | None = None

    def carry_out(self) -> tuple[str, ...]:
        """Carry out the proposal, and return a sentence for each thing that was done.

        The stream can have changed since the proposal, so an action takes the lease and looks again. Raises
        LeaseHeld, and what the remedy raises.
        """
        return self.action()


class Remedy(Protocol):
    """One way to let a stream continue. It holds no state: all that it needs is in the situation."""

    @property
    def name(self) -> str:
        """The name that `tidegate recover --choose` accepts."""

    def propose(self, situation: Situation) -> Proposal | None:
        """Return a proposal, or None if the cause does not apply. It only reads.

        Raises a TidegateError if the cause cannot be judged, or if options are missing or contradict each
        other.
        """
