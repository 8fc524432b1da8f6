"""Words that users see, each with its explanation."""

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
        """Make a member that is its text."""
        member = str.__new__(cls, text)
        member._value_ = text
        member.explanation = explanation
        return member

    def __str__(self) -> str:
        """Return the text, in every version of Python."""
        return str.__str__(self)
