"""What a quality suite has found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExpectationResult:
    """How one expectation went: its type, its column (None: it is of the whole), and how many values it did
    not expect (None: it does not count them, or could not be checked).
    """

    type: str
    column: str | None
    passed: bool
    unexpected: int | None


@dataclass(frozen=True)
class Verdict:
    """Whether the suite passed, and what it found in a sentence."""

    passed: bool
    summary: str
    expectations: tuple[ExpectationResult, ...] = ()
