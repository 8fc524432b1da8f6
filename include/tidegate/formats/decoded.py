"""The result of decoding record values: columns, and a reason for each value that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tidegate.formats.reasons import Reason


@dataclass(frozen=True)
class Decoded:
    """Decoded values.

    Args:
        columns: A struct array with one row per value. The rows of unusable values and of tombstones are
            null.
        reasons: row -> why the value is unusable. A tombstone has no reason.
        deletions: Rows whose value says that its key is deleted. They have at most the key's columns, which
            can be null.
        sequence: The order of changes that the format itself contains, one row per value; None if it has
            none.
    """

    columns: pa.StructArray
    reasons: Mapping[int, str] = field(default_factory=dict)
    deletions: Sequence[int] = ()
    sequence: pa.StructArray | None = None


class Decoder(Protocol):
    """Decodes record values to columns. It is pure, and an unusable value never affects another value."""

    schema: pa.Schema

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode the values of records; None is a tombstone."""


def malformed(why: str) -> str:
    """Return the reason of an unusable value.

    Example::

        malformed("Expected `int`, got `str` - at `$.id`")  # "malformed: Expected `int`, …"
    """
    return f"{Reason.MALFORMED}: {why}"
