"""Stream time: the largest timestamp of a topic-partition so far."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate import kernel

Place = tuple[str, int]
RowNumbers = npt.NDArray[np.int64]


def times_before(
    timestamps: pa.Int64Array, usable: pa.BooleanArray, start: int
) -> tuple[npt.NDArray[np.int64], int]:
    """Return the time before each record of a topic-partition, in order, and the time after all; epoch ms.

    `start` is the time before the first record, -1 for none. Records that are not usable, or have no
    timestamp, do not advance time.

    Example: timestamps 5, 3, 8, all usable, from -1 give `[-1, 5, 5]` and 8.
    """
    counted = pc.fill_null(pc.if_else(usable, timestamps, -1), -1)
    # One number more than records: the time before each of them, and the time after all.
    reached = np.maximum.accumulate(np.append(np.int64(start), counted.to_numpy()))
    return reached[:-1], int(reached[-1])


class StreamTimes:
    """The times of topic-partitions, none at first, advanced by rows of the kernel."""

    def __init__(self) -> None:
        self._times: dict[Place, int] = {}

    @property
    def now(self) -> dict[Place, int]:
        """The times of the topic-partitions that have had rows."""
        return dict(self._times)

    def advance(self, rows: pa.RecordBatch) -> pa.Int64Array:
        """Return the time before each row. Rows of one topic-partition are in order."""
        timestamps, usable = rows.column("timestamp"), pc.equal(rows.column("kind"), kernel.RECORD)
        before = np.empty(rows.num_rows, np.int64)
        for place, numbers in _by_place(rows):
            own = pa.array(numbers)
            before[numbers], self._times[place] = times_before(
                timestamps.take(own), usable.take(own), self._times.get(place, -1)
            )
        return pa.array(before)


def _by_place(rows: pa.RecordBatch) -> Iterator[tuple[Place, RowNumbers]]:
    """Yield the numbers of the rows of each topic-partition."""
    topics, partitions = rows.column("topic"), rows.column("partition")
    places = pc.binary_join_element_wise(topics, partitions.cast(pa.string()), "/").dictionary_encode()
    codes = places.indices.to_numpy()
    for code in range(len(places.dictionary)):
        numbers = np.flatnonzero(codes == code)
        yield (topics[numbers[0]].as_py(), partitions[numbers[0]].as_py()), numbers
