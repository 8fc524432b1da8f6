"""What a format makes of record values: columns, and for what cannot be used the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tidegate.formats.reasons import Reason


@dataclass(frozen=True)
class Decoded:
    """`columns` is a struct array with one row for each value; `reasons` maps a row to why it is unusable.

    The row of an unusable value, and of a tombstone, is null; a tombstone has no reason. `deletions`:
    rows whose value says that its key is deleted. They have the key's columns at most, and those can be null.
    `sequence`: what the format itself tells of a change's place in the order, a row for each value.
    """

    columns: pa.StructArray
    reasons: Mapping[int, str] = field(default_factory=dict)
    deletions: Sequence[int] = ()
    sequence: pa.StructArray | None = None


class Decoder(Protocol):
    """Record values to columns. It is pure, and one unusable value never touches another."""

    schema: pa.Schema

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode the values of records; None is a tombstone."""


def malformed(why: str) -> str:
    """The reason of an unusable value, such as `malformed: Expected `int`, got `str` - at `$.id``."""
    return f"{Reason.MALFORMED}: {why}"
