"""Words that people see, each with what it means beside it."""

from __future__ import annotations

from enum import Enum


class Explained(str, Enum):
    """An enum of words: each member is its text, and has an `explanation`.

    >>> class Light(Explained):
    ...     RED = "red", "Stop."
    >>> Light.RED == "red", Light.RED.explanation
    (True, 'Stop.')
    """

    explanation: str

    def __new__(cls, text: str, explanation: str) -> Explained:
        """A member that is its text."""
        member = str.__new__(cls, text)
        member._value_ = text
        member.explanation = explanation
        return member

    def __str__(self) -> str:
        """The text itself, in every Python."""
        return str.__str__(self)
