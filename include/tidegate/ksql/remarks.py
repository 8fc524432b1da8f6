"""Remarks: what of a file has no equivalent, or another result, with its place and what to do instead."""

from __future__ import annotations

from dataclasses import dataclass


class Untranslatable(Exception):
    """A statement, or a part of one, has no equivalent. It becomes a Remark.

    Example: `Untranslatable("UUID gives another value each time", "Let the producer make the id.")`
    """

    def __init__(self, why: str, instead: str) -> None:
        super().__init__(why)
        self.why = why
        self.instead = instead


@dataclass(frozen=True)
class Remark:
    """A statement that is not imported as it is.

    Args:
        line: The line at which the statement begins.
        statement: Its first words.
        why: What has no equivalent.
        instead: What to do instead.
        imported: Whether a pipeline is written all the same, whose result differs as `why` says.
    """

    file: str
    line: int
    statement: str
    why: str
    instead: str
    imported: bool = False

    def __str__(self) -> str:
        """Return the remark as one line."""
        return f"{self.file}:{self.line}: {self.statement}: {self.why}. {self.instead}"
