"""When a value goes out. One small unit per strategy.

A strategy sees each candidate beside the value that the key last sent out, both as struct arrays of
the same length; a null struct means "nothing there": never emitted, deleted, or a tombstone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.compare import any_differs


class Emit(Protocol):
    """A strategy."""

    @property
    def remembers_suppressed(self) -> bool:
        """Whether a record that is not emitted still changes the key's state."""
        ...

    def goes_out(self, now: pa.StructArray, last: pa.StructArray) -> pa.BooleanArray:
        """True where the candidate `now` is emitted, `last` being what was emitted before it."""
        ...


@dataclass(frozen=True)
class Update:
    """Every value; a deletion only of a key that consumers have seen."""

    remembers_suppressed: bool = True

    def goes_out(self, now: pa.StructArray, last: pa.StructArray) -> pa.BooleanArray:
        return pc.or_(now.is_valid(), last.is_valid())


@dataclass(frozen=True)
class Change:
    """A value that differs from the last emitted one in any of the `compared` columns.

    The comparison is an equivalence, so the candidate just before stands for the last emitted value.
    """

    compared: tuple[str, ...]
    remembers_suppressed: bool = False

    def goes_out(self, now: pa.StructArray, last: pa.StructArray) -> pa.BooleanArray:
        appears_or_vanishes = pc.xor(now.is_valid(), last.is_valid())
        both = pc.and_(now.is_valid(), last.is_valid())
        return pc.or_(appears_or_vanishes, pc.and_(both, any_differs(now, last, self.compared)))
