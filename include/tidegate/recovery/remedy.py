"""The interface of a remedy: it looks for its cause, and proposes effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidegate.ledger import Stream
from tidegate.recovery.situation import Situation


@dataclass(frozen=True)
class Proposal:
    """The effects that a remedy proposes for a cause.

    `remedy` is the remedy's name, as in `--choose`. `cause` is a sentence, and `effects` has a sentence for
    each effect. `action` causes the effects, and returns a sentence for each. Nothing is written before
    `carry_out` is called. `stream` is the one that `--generation` has to name, if it is not the one of the
    command.
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
