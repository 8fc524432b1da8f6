"""The time of a later stage: emissions that it reads get their turn in their topic-partition, and its stream
time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.spark.kernel_task import Output
from tidegate.spark.shuffle import TO, Place, Report, TimeReport, columns_of, in_schema, times_before

TIME_ORDER = ("__topic", "__partition", "__rank", "__side")
"""The columns by which a `TimeTask` takes its rows: reports first, since nulls sort first. Of two emissions
of one rank, which come to both sides of a join, the left one is first.
"""


@dataclass(frozen=True)
class TimeTask:
    """A `PassTask` before a later stage: a frame in `TIME_ORDER`, whole topic-partitions in one task.

    Sets `__turn`, the place in the partition, and `__time`, the largest timestamp before the row; quarantined
    rows advance no time.

    Args:
        stage: the stage that reads its rows.
        number: the number of its pass in the level.
        times: the time of the partitions before the batch, epoch ms.
        schema: the columns of what comes out.
    """

    stage: str
    number: int
    times: Mapping[Place, int]
    schema: pa.Schema

    def run(self, slot: int, reports: Sequence[Report], rows: Iterable[pa.RecordBatch]) -> Output:
        """Set the times of a slot."""
        del slot, reports
        clock = Clock(self.times)
        for part in rows:
            for timed in map(clock.timed, by_place(part)):
                to = pa.repeat(pa.scalar(self.number, pa.int32()), timed.num_rows)
                yield in_schema(columns_of(timed) | {TO: to}, self.schema, timed.num_rows)
        return [TimeReport(self.stage, *place, time) for place, time in clock.times.items()]


class Clock:
    """Turns and times of one topic-partition after the other.

    `starts` has the stream time (epoch ms) of each before the batch, -1 if there is none; `times` the time
    after the rows so far. Turns count from 1 in each.
    """

    def __init__(self, starts: Mapping[Place, int]) -> None:
        self._starts = starts
        self._turn = 0
        self._place: Place | None = None
        self.times: dict[Place, int] = {}

    def timed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of one topic-partition, which come in order, with `__turn` and `__time` set."""
        place = (rows.column("__topic")[0].as_py(), rows.column("__partition")[0].as_py())
        # Rows are sorted by place, so a place that was left never comes back.
        if place != self._place:
            self._place, self._turn = place, 0
            self.times[place] = self._starts.get(place, -1)
        usable = rows.column("__reason").is_null()
        before, self.times[place] = times_before(rows.column("__timestamp"), usable, self.times[place])
        turns = np.arange(self._turn, self._turn + rows.num_rows) + 1
        self._turn += rows.num_rows
        return _with(_with(rows, "__turn", turns), "__time", before)


def by_place(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each topic-partition, which come together."""
    if not rows.num_rows:
        return
    moved = np.zeros(rows.num_rows, bool)
    for name in ("__topic", "__partition"):
        column = rows.column(name)
        moved[1:] |= pc.not_equal(column.slice(1), column.slice(0, rows.num_rows - 1)).to_numpy(False)
    starts = [0, *np.flatnonzero(moved).tolist(), rows.num_rows]
    for start, end in itertools.pairwise(starts):
        if end > start:
            yield rows.slice(start, end - start)


def _with(rows: pa.RecordBatch, name: str, numbers: object) -> pa.RecordBatch:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place), pa.array(numbers, pa.int64()))
