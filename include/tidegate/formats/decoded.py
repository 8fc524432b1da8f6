"""The result of decoding record values: columns, and a reason for each value that cannot be used."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa

from tidegate.kernel import unusable as core

_FRAMES = 10_000
"""A value of 100 levels takes up to 30 frames per level; a thread's stack of 8 MB has room for all of
them.
"""


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


class Reason(Explained):
    """A reason with its explanation. If several apply, the first one in this list counts.

    Some have a detail after a colon: `malformed: Expected …`.
    """

    MALFORMED = "malformed", "The value does not match its format or columns; the detail follows the colon."
    UNKNOWN_SCHEMA = (
        "unknown_schema",
        "No version of the source's subjects in the registry has this id; the id follows the colon.",
    )
    MALFORMED_SOURCE_CHAIN = (
        "malformed_source_chain",
        "The header `tidegate-source` is not a list of positions.",
    )
    KEY_NOT_TEXT = "key_not_text", "The record's key is not UTF-8."
    MALFORMED_KEY = (
        "malformed_key",
        "The record's key does not match `key_format` or `key_columns`; the detail follows the colon.",
    )
    MALFORMED_HEADER = (
        "malformed_header",
        "A header does not have the type that `headers` declares; the header follows the colon.",
    )
    TOMBSTONE_WITHOUT_KEY = (
        "tombstone_without_key",
        "The key of a null value, or the `before` of Debezium's deletion, does not have the key's columns.",
    )
    NULL_KEY_COLUMN = "null_key_column", "One of the key's columns is null."
    NULL_KEY = "null_key", "The record has no key."
    RESERVED_KEY = (
        "reserved_key",
        "The key begins with what stands for no key in the state of a source with `null_key: keep`.",
    )
    NO_TIMESTAMP = "no_timestamp", "The column that is declared as the timestamp is null."
    ZONELESS_TIMESTAMP = (
        "zoneless_timestamp",
        "The column that is declared as the timestamp has a time without a zone (`zoneless: refuse`).",
    )
    NEGATIVE_TIMESTAMP = "negative_timestamp", "The timestamp is before 1970."
    FUTURE_TIMESTAMP = "future_timestamp", "The timestamp is more than a day past the batch's clock."
    NO_SEQUENCE = (
        "no_sequence",
        "A part of the declared `sequence` is null, or the value is, so its place in the order is unknown.",
    )
    CONDITION_FAILED = core.CONDITION_FAILED, "A stage's `where` or `equal: sql` cannot be evaluated on it."
    RECORD_FAILED = core.RECORD_FAILED, "A stage cannot fold it into its state, or store the value."
    LATE = core.LATE, "All windows of the record were over; its window and its lateness follow the colon."
    FUNCTION_FAILED = (
        core.FUNCTION_FAILED,
        "A stage's `python` function raised an error on it, or returned no boolean.",
    )
    EXPECTATION = (
        "expectation",
        "Not a record, but a value that breaks an expectation; the expectation follows the colon.",
    )
    TOO_LARGE = "too_large", "Not a record, but an emission that is larger than a Kafka sink accepts."
    REFUSED_TIMESTAMP = (
        "refused_timestamp",
        "Not a record, but an emission whose timestamp the output topic does not accept.",
    )
    REFUSED_ROW = (
        "refused_row",
        "Not a record, but an emission that a database refuses; what it says follows the colon.",
    )


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

    def decode(self, values: Sequence[Any]) -> Decoded:
        """Decode values: bytes, or what `Format.of_records` returns; None is a tombstone."""


def malformed(why: str) -> str:
    """Return the reason of an unusable value.

    Example::

        malformed("Expected `int`, got `str` - at `$.id`")  # "malformed: Expected `int`, …"
    """
    return f"{Reason.MALFORMED}: {why}"


class WatchedDecoder:
    """A decoder that never raises on the content of records.

    A decoder must return a reason for every value that it cannot use. If it raises an error instead, the
    block is decoded again in halves, until the values that cause the error are alone. They are unusable, and
    the reason is the error's name.

    Raises MemoryError, which is not the fault of a value.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.schema = decoder.schema
        self._decoder = decoder

    def decode(self, values: Sequence[Any]) -> Decoded:
        """Decode the values of records; None is a tombstone.

        Raises MemoryError.
        """
        try:
            return self._decoder.decode(values)
        # halving would hide that the machine has too little memory
        except MemoryError:
            raise
        except Exception as error:
            if not len(values):
                raise
            if len(values) > 1:
                # halves: one bad value among n costs about 2 log n further calls, not n
                middle = len(values) // 2
                return _joined(self.decode(values[:middle]), self.decode(values[middle:]), middle)
            name = type(error).__name__
        nothing = self._decoder.decode([None])
        return replace(nothing, reasons={0: malformed(f"{name} while it was decoded")})


def _joined(first: Decoded, second: Decoded, middle: int) -> Decoded:
    """Join the results of two halves of a block; the second begins at row `middle`."""
    sequence = None
    if first.sequence is not None and second.sequence is not None:
        sequence = pa.concat_arrays([first.sequence, second.sequence])
    return Decoded(
        pa.concat_arrays([first.columns, second.columns]),
        {**first.reasons, **{middle + row: reason for row, reason in second.reasons.items()}},
        [*first.deletions, *(middle + row for row in second.deletions)],
        sequence,
    )


@contextmanager
def room_on_stack() -> Iterator[None]:
    """Allow more than Python's default of 1,000 frames; a deeper recursion still raises RecursionError."""
    frames = sys.getrecursionlimit()
    sys.setrecursionlimit(max(frames, _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(frames)
