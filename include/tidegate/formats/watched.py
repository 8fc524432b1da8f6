"""Protect a batch from errors in decoders: an unexpected error makes one record unusable, never the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from tidegate.formats.decoded import Decoded, Decoder, malformed


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

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
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
