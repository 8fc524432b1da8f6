"""The tasks of a stage: each takes its sorted records and their state through the kernel, and passes the
results to an output, which writes or reports them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from tidegate import kernel
from tidegate.failpoints import failpoint
from tidegate.formats import INPUT, unpack_headers
from tidegate.spark.errors import report_worker_errors
from tidegate.spark.shuffle import (
    Place,
    Report,
    Slots,
    TimeReport,
    columns_of,
    end_times,
    in_schema,
    rows_of,
    split_reports,
    times_before,
)
from tidegate.spark.state import StateFiles, due_rows
from tidegate.storage.quarantine_files import QUARANTINE

_CONSTANTS = {"kind": kernel.RECORD, "updated_seq": 0, "part": 0, "passes": True}
"""The values of records in columns that did not travel through the shuffle."""
BY_KEY_AND_RANK = ("key", "instant", "turn", "part", "topic", "partition", "ordinal")
"""The order of a key's emissions that tasks of several topic-partitions have made."""
TIME_ORDER = ("__topic", "__partition", "__rank")
"""The columns by which a `TimeTask` takes its rows: reports first, since nulls sort first."""


@dataclass(frozen=True)
class Forwarding:
    """The rows that leave a task.

    Args:
        schema: their columns.
        emissions: whether emissions are among them; otherwise only reports leave.
        slots: the number of tasks of the next pass; 1 if the driver is next.
    """

    schema: pa.Schema
    emissions: bool
    slots: int


class TaskOutput(Protocol):
    """Takes the kernel's output in one try of one task. Ask for the report after the end."""

    def put(self, decided: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows of `kernel.output_schema`, all of one kind; yield those that go on to the next pass."""

    def report(self) -> Report:
        """Return the report of all rows."""


class StageOutput(Protocol):
    """The shared part of the outputs of a stage's tasks. It can be pickled."""

    @property
    def forwarding(self) -> Forwarding:
        """The rows that go on to the next pass."""

    def open(self, slot: int) -> AbstractContextManager[TaskOutput]:
        """Return the output of one try of a task."""

    def before_merge(self, forwarding: Forwarding) -> StageOutput:
        """Return the output for tasks before a `MergeTask`, which gets their emissions by `forwarding`."""


@dataclass(frozen=True)
class KernelTask:
    """A function for `mapInArrow`: rows of a stage, by their hash, in; emissions and reports out.

    Args:
        name: the stage.
        logic: its rules.
        batch: the kernel's parameters without the stream times, which reports bring.
        reads_source: whether its rows are records, whose time slices report.
        rows: the schema of the kernel's input.
        slots: the ranges of hashes of all tasks.
        state: the files of its state before the batch.
        output: takes what the kernel decides.
    """

    name: str
    logic: kernel.Stage
    batch: kernel.Batch
    reads_source: bool
    rows: pa.Schema
    slots: Slots
    state: StateFiles
    output: StageOutput

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with report_worker_errors():
            yield from self._run(slot_of_task(), batches)

    def _run(self, slot: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reports, rows = split_reports(batches)
        # No row can be decided before all slices have reported how far time is: so reports come first.
        batch = replace(self.batch, times=end_times(self.name, self.reads_source, self.batch.times, reports))
        with ExitStack() as open_:
            with failpoint("compute.kernel"):
                hashes, due = self.slots.range(slot), due_rows(self.logic, batch)
                prior = open_.enter_context(self.state.open(hashes, due))
            output = open_.enter_context(self.output.open(slot))
            yield from self.decide(rows, batch, prior, output.put)
        # Behind the block: only the end of the block completes the files, which the report names.
        yield from forwarded_reports(reports, output.report(), slot, self.output.forwarding)

    def decide(
        self,
        rows: Iterable[pa.RecordBatch],
        batch: kernel.Batch,
        prior: kernel.PriorState,
        put: Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that go on to the next pass. Raises the errors of `kernel.decide`.

        Args:
            rows: the records, at least one Arrow batch, smaller hashes before larger ones.
            batch: the kernel's parameters, with the stream times at the end of the batch.
            prior: the state before the batch.
            put: takes what the kernel decides, as `TaskOutput.put`.
        """
        forwarding = self.output.forwarding
        bypass = Bypass(forwarding.schema)
        decidable = map(Completion(self.rows), bypass.without(rows))
        for decided in kernel.decide(self.logic, decidable, batch, prior):
            if decided.num_rows:
                yield from put(self._ranked(decided) if forwarding.emissions else decided)
            # After each step of the kernel, so that the rows that go around it do not gather in memory.
            yield from bypass.taken()

    def _ranked(self, decided: pa.RecordBatch) -> pa.RecordBatch:
        # The kernel yields rows of one kind at a time, so the first row is enough.
        is_emitted = decided.column("kind")[0].as_py() == kernel.EMISSION
        return kernel.ranked(decided, self.logic.bound is not None) if is_emitted else decided


@dataclass(frozen=True)
class MergeTask:
    """A function for `mapInArrow` after a bounded stage, whose tasks have whole topic-partitions: it takes
    emissions sorted by key and rank, and numbers each key's as one sequence.
    """

    output: StageOutput

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with report_worker_errors():
            slot = slot_of_task()
            reports, rows = split_reports(batches)
            with self.output.open(slot) as output:
                for part in numbered_by_key(rows):
                    yield from output.put(part)
            yield from forwarded_reports(reports, output.report(), slot, self.output.forwarding)


def slot_of_task() -> int:
    """Return the number of the task in this worker: its rows are those of this slot."""
    context = TaskContext.get()
    assert context is not None, "a task runs in a worker of Spark"
    return int(context.partitionId())


def forwarded_reports(
    reports: Sequence[Report], own: Report, slot: int, forwarding: Forwarding
) -> Iterator[pa.RecordBatch]:
    """Yield a task's own report; from the first task also the reports that all tasks got.

    Args:
        reports: the reports that came in; each task of this pass has all of them.
        own: the report of this task.
        slot: the number of this task.
        forwarding: the form in which rows leave it.
    """
    return rows_of([*(reports if slot == 0 else ()), own], forwarding.schema, forwarding.slots)


class Completion:
    """Gives rows from the shuffle all columns of the kernel's input, `schema`.

    Example: `Completion(schema)(rows)` has a column `kind`, which is the same in all rows.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._same: dict[str, pa.Array] = {}

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with all columns."""
        present = rows.schema.names

        def column(field: pa.Field) -> pa.Array:
            if field.name in present:
                return rows.column(field.name)
            if field.name == "turn":
                # A record of the source has its turn by its offset.
                return rows.column("offset")
            return self._repeated(field, rows.num_rows)

        return pa.RecordBatch.from_arrays([column(field) for field in self._schema], schema=self._schema)

    def _repeated(self, field: pa.Field, number: int) -> pa.Array:
        """Return the constant value of a column, or null, `number` times.

        Batches share one array: half of the columns are such, and all rows of a large group are in memory.
        """
        array = self._same.get(field.name)
        if array is None or len(array) < number:
            array = pa.repeat(pa.scalar(_CONSTANTS.get(field.name), field.type), number)
            self._same[field.name] = array
        return array.slice(0, number)


class Bypass:
    """Records that nothing can repeat bypass the pass that drops repeated ones.

    They have `bypasses`, and go on as emissions in `schema` beside the output of that pass.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._taken: list[pa.RecordBatch] = []

    def without(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the other rows; all rows, if there is no column `bypasses`."""
        for rows in batches:
            if "bypasses" in rows.schema.names:
                bypasses = rows.column("bypasses")
                self._taken.append(rows.filter(bypasses))
                rows = rows.filter(pc.invert(bypasses))
            yield rows

    def taken(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that were taken since the last call."""
        taken, self._taken = self._taken, []
        for rows in taken:
            if rows.num_rows:
                yield forwarded(rows, self._schema)


def forwarded(emissions: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return emissions as rows of the next pass."""
    return in_schema(columns_of(emissions), schema, emissions.num_rows)


def quarantine_rows(rows: pa.RecordBatch, inputs: pa.StructArray, seq: int) -> pa.RecordBatch:
    """Return unusable input, whole, in the form of quarantine. `inputs` is its `input`."""
    columns = {name: rows.column(name) for name in ("topic", "partition", "offset", "timestamp")}
    columns |= {name: pc.struct_field(inputs, name) for name in INPUT.names}
    columns["headers"] = unpack_headers(columns["headers"])
    columns["seq"] = pa.repeat(pa.scalar(seq, pa.int64()), rows.num_rows)
    return pa.RecordBatch.from_pydict(columns, schema=QUARANTINE)


def numbered_by_key(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows sorted by `BY_KEY_AND_RANK`, with `ordinal` 0, 1, 2 … in each key.

    Example: rows of the keys a, a, b get the ordinals 0, 1, 0.
    """
    last, before = None, 0
    for rows in batches:
        if not rows.num_rows:
            continue
        keys = rows.column("key")
        is_first = np.ones(rows.num_rows, bool)
        is_first[1:] = pc.not_equal(keys.slice(1), keys.slice(0, rows.num_rows - 1)).to_numpy(False)
        # Batches cut the rows of a key anywhere: the numbers go on from the batch before.
        goes_on = keys[0].as_py() == last
        number = np.arange(rows.num_rows)
        first = np.maximum.accumulate(np.where(is_first, number, 0))
        ordinals = number - first
        if goes_on:
            ordinals[first == 0] += before
        last, before = keys[-1].as_py(), int(ordinals[-1]) + 1
        place = rows.schema.get_field_index("ordinal")
        yield rows.set_column(place, rows.schema.field(place), pa.array(ordinals, pa.int64()))


@dataclass(frozen=True)
class TimeTask:
    """A function for `mapInArrow`: a frame in `TIME_ORDER`, whole topic-partitions in one task.

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
