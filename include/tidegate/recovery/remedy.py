"""What a remedy is: it looks for its cause, and proposes what it would do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidegate.ledger import Stream
from tidegate.recovery.situation import Situation


@dataclass(frozen=True)
class Proposal:
    """What a remedy would do about a cause that it has found.

    `remedy` is the remedy's name, as `--choose` takes it. `cause` is a sentence, and `effects` has a sentence
    for each thing that would be done. `action` does all of it, and returns a sentence for each thing that it
    did. Nothing is written before `carry_out` is called. `stream` is the one that `--generation` has to name,
    where that is another than the one that was asked for.
    """

    remedy: str
    cause: str
    effects: tuple[str, ...]
    action: Callable[[], tuple[str, ...]]
    stream: Stream | None = None

    def carry_out(self) -> tuple[str, ...]:
        """Do it, and return a sentence for each thing that was done.

        The stream may have moved since it was proposed: an action takes the lease, and looks again.
        """
        return self.action()


class Remedy(Protocol):
    """One way to let a stream continue. It holds no state: all that it needs is in the situation."""

    @property
    def name(self) -> str:
        """As `tidegate recover --choose` takes it."""

    def propose(self, situation: Situation) -> Proposal | None:
        """Return what would be done, or None where the cause is not there. Reads only.

        Raises a TidegateError where the cause cannot be judged, or where options are missing or cannot be.
        """
