"""The watchdog of decoders: whatever a decoder raises costs one record, and never a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from tidegate.formats.decoded import Decoded, Decoder, malformed


class WatchedDecoder:
    """A decoder that never raises on what records hold.

    A decoder is written to give a reason for every value that it cannot use. Where one raises all the same,
    the block is decoded again, in halves, until the values that it raises on are alone: they are unusable,
    and the name of the exception is the reason. MemoryError is not the value's fault: it is raised.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.schema = decoder.schema
        self._decoder = decoder

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode the values of records; None is a tombstone."""
        try:
            return self._decoder.decode(values)
        except MemoryError:
            raise
        except Exception as error:
            if not len(values):
                raise
            if len(values) > 1:
                middle = len(values) // 2
                return _joined(self.decode(values[:middle]), self.decode(values[middle:]), middle)
            name = type(error).__name__
        nothing = self._decoder.decode([None])
        return replace(nothing, reasons={0: malformed(f"{name} while it was decoded")})


def _joined(first: Decoded, second: Decoded, middle: int) -> Decoded:
    """Two halves of a block as one; the second begins at `middle`."""
    sequence = None
    if first.sequence is not None and second.sequence is not None:
        sequence = pa.concat_arrays([first.sequence, second.sequence])
    return Decoded(
        pa.concat_arrays([first.columns, second.columns]),
        {**first.reasons, **{middle + row: reason for row, reason in second.reasons.items()}},
        [*first.deletions, *(middle + row for row in second.deletions)],
        sequence,
    )
