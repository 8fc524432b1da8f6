"""The time of a later stage: the emissions of the stage before it, in one order for each topic-partition.

The order is that of their ranks (`core.ordering`), which is the same wherever the log is cut.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.spark.errors import report_worker_errors
from tidegate.spark.kernel_task import slot_of_task
from tidegate.spark.reports import TimeReport, rows_of, split_reports
from tidegate.spark.stream_time import times_before
from tidegate.spark.task_rows import forwarded

ORDER = ("__topic", "__partition", "__rank")
"""The columns by which a `TimeTask` takes its rows: reports first, since nulls sort first."""
Place = tuple[str, int]


@dataclass(frozen=True)
class TimeTask:
    """A function for `mapInArrow`: a frame in `ORDER`, whole topic-partitions in one task.

    Sets `__turn`, the place in the partition, and `__time`, the largest timestamp before the row; quarantined
    rows advance no time.

    Args:
        stage: the stage that reads its rows.
        times: the time of the partitions before the batch, epoch ms.
        schema: the columns of what comes out.
        slots: the number of tasks of that stage.
    """

    stage: str
    times: Mapping[Place, int]
    schema: pa.Schema
    slots: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with report_worker_errors():
            reports, rows = split_reports(batches)
            clock = Clock(self.times)
            for part in rows:
                for run in by_place(part):
                    yield forwarded(clock.timed(run), self.schema)
            own = [TimeReport(self.stage, *place, time) for place, time in clock.times.items()]
            yield from rows_of([*(reports if slot_of_task() == 0 else []), *own], self.schema, self.slots)


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
