"""The tasks of a pass: each takes its sorted records and their state through the kernel, and passes the
results to an output, which writes or reports them. The tasks of the passes of a level run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate import kernel
from tidegate.failpoints import failpoint
from tidegate.kernel.ordering import starts
from tidegate.kernel.rows import mask, with_column
from tidegate.spark.shuffle import (
    TO,
    Report,
    Slots,
    columns_of,
    emitted_column,
    end_times,
    in_schema,
    record_column,
    start_times,
    value_column,
)
from tidegate.spark.state import StateFiles, due_rows

_CONSTANTS = {"kind": kernel.RECORD, "updated_seq": 0, "part": 0, "passes": True}
"""The values of records in columns that did not travel through the shuffle."""
BY_KEY_AND_RANK = ("key", "instant", "turn", "part", "topic", "partition", "ordinal")
"""The order of a key's emissions that tasks of several topic-partitions have made."""


@dataclass(frozen=True)
class Forwarding:
    """The emissions that leave a task.

    Args:
        schema: the columns of the rows that leave the tasks of the level.
        number: the number of the pass in its level.
        readers: the numbers of the passes that get the emissions; empty: only reports leave.
    """

    schema: pa.Schema
    number: int
    readers: tuple[int, ...]

    def rows(self, emissions: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield emissions as rows of each pass that reads them."""
        columns = columns_of(emissions)
        columns[value_column(self.number)] = columns.pop("value")
        if "emitted" in columns:
            columns[emitted_column(self.number)] = columns.pop("emitted")
        for reader in self.readers:
            columns[TO] = pa.repeat(pa.scalar(reader, pa.int32()), emissions.num_rows)
            yield in_schema(columns, self.schema, emissions.num_rows)


class TaskOutput(Protocol):
    """Takes the kernel's output in one try of one task. Ask for the reports after the end."""

    def put(self, decided: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows of `kernel.output_schema`, all of one kind; yield those that go on to the next pass."""

    def reports(self) -> list[Report]:
        """Return the reports of all rows."""


class StageOutput(Protocol):
    """The shared part of the outputs of a stage's tasks. It can be pickled."""

    @property
    def forwarding(self) -> Forwarding:
        """The emissions that go on to the next level."""

    def open(self, slot: int) -> AbstractContextManager[TaskOutput]:
        """Return the output of one try of a task."""

    def before_merge(self, forwarding: Forwarding, written: bool) -> StageOutput:
        """Return the output for tasks before a merge, which gets their emissions.

        Args:
            forwarding: the way to the merge.
            written: whether emissions are written before the merge, and not by it.
        """


Output = Generator[pa.RecordBatch, None, list[Report]]
"""Yields the rows that go on to the next level, and returns the reports."""


class PassTask(Protocol):
    """A task of one pass. It can be pickled."""

    def run(self, slot: int, reports: Sequence[Report], rows: Iterable[pa.RecordBatch]) -> Output:
        """Take the rows of a slot, at least one Arrow batch, after the reports of the level before."""


@dataclass(frozen=True)
class KernelTask:
    """A `PassTask` with the kernel: rows of a stage, by their hash, in; emissions and reports out.

    Args:
        name: the stage.
        number: the number of its pass in the level.
        logic: its rules.
        batch: the kernel's parameters without the stream times, which reports bring.
        sources: the sources of its rows, whose time slices report; empty if it reads emissions.
        rows: the schema of the kernel's input.
        slots: the ranges of hashes of all tasks.
        state: the files of its state before the batch.
        output: takes what the kernel decides.
    """

    name: str
    number: int
    logic: kernel.Stage
    batch: kernel.Batch
    sources: tuple[str, ...]
    rows: pa.Schema
    slots: Slots
    state: StateFiles
    output: StageOutput

    def run(self, slot: int, reports: Sequence[Report], rows: Iterable[pa.RecordBatch]) -> Output:
        """Decide the rows of a slot."""
        # No row can be decided before all slices have reported how far time is: so reports come first.
        batch = replace(self.batch, times=end_times(self.name, self.sources, self.batch.times, reports))
        batch = batch.started(start_times(self.sources, self.batch.times, reports))
        with ExitStack() as open_:
            with failpoint("compute.kernel"):
                hashes, due = self.slots.range(slot), due_rows(self.logic, batch)
                prior = open_.enter_context(self.state.open(hashes, due))
            output = open_.enter_context(self.output.open(slot))
            yield from self.decide(rows, batch, prior, output.put)
        # Behind the block: only the end of the block completes the files, which the report names.
        return output.reports()

    def before_merge(self, schema: pa.Schema) -> KernelTask:
        """Return the task that forwards to a merge; the emissions of a bounded stage are not written yet."""
        forwarding = Forwarding(schema, self.number, (self.number,))
        output = self.output.before_merge(forwarding, written=self.logic.bound is None)
        return replace(self, output=output)

    @property
    def merging(self) -> PassTask:
        """The task that gets the emissions of `before_merge`."""
        is_bounded = self.logic.bound is not None
        return MergeTask(self.output) if is_bounded else UnmergedTask(self.output.forwarding)

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
        bypass = Bypass()
        decidable = map(Completion(self.rows, self.number), bypass.without(rows))
        for decided in kernel.decide(self.logic, decidable, batch, prior):
            if decided.num_rows:
                yield from put(self._ranked(decided) if forwarding.readers else decided)
            # After each step of the kernel, so that the rows that go around it do not gather in memory.
            for taken in bypass.taken():
                yield from forwarding.rows(with_value(self.number, taken))

    def _ranked(self, decided: pa.RecordBatch) -> pa.RecordBatch:
        # The kernel yields rows of one kind at a time, so the first row is enough.
        is_emitted = decided.column("kind")[0].as_py() == kernel.EMISSION
        return kernel.ranked(decided, self.logic.bound is not None) if is_emitted else decided


@dataclass(frozen=True)
class MergeTask:
    """A `PassTask` after a bounded stage, whose tasks have whole topic-partitions: it takes emissions sorted
    by key and rank, and numbers each key's as one sequence.
    """

    output: StageOutput

    def run(self, slot: int, reports: Sequence[Report], rows: Iterable[pa.RecordBatch]) -> Output:
        """Number the emissions of a slot."""
        del reports
        emissions = map(partial(with_value, self.output.forwarding.number), rows)
        with self.output.open(slot) as output:
            for part in numbered_by_key(emissions):
                yield from output.put(part)
        return output.reports()


@dataclass(frozen=True)
class UnmergedTask:
    """A `PassTask` beside a `MergeTask`: it passes on the emissions of a stage that is not bounded."""

    forwarding: Forwarding

    def run(self, slot: int, reports: Sequence[Report], rows: Iterable[pa.RecordBatch]) -> Output:
        """Forward the emissions of a slot."""
        del slot, reports
        for part in rows:
            yield from self.forwarding.rows(with_value(self.forwarding.number, part))
        return []


def with_value(number: int, emissions: pa.RecordBatch) -> pa.RecordBatch:
    """Return forwarded emissions of a pass with their values in `value`."""
    place = emissions.schema.get_field_index(value_column(number))
    return emissions.set_column(place, "value", emissions.column(place))


class Completion:
    """Gives rows from the shuffle, of the pass with this number, all columns of the kernel's input, `schema`.

    Example: `Completion(schema, 0)(rows)` has a column `kind`, which is the same in all rows.
    """

    def __init__(self, schema: pa.Schema, number: int) -> None:
        self._schema = schema
        self._own = {"value": value_column(number), "record": record_column(number)}
        self._same: dict[str, pa.Array] = {}

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with all columns."""
        present = rows.schema.names

        def column(field: pa.Field) -> pa.Array:
            if field.name in self._own:
                return rows.column(self._own[field.name])
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

    They have `bypasses`, and go on as emissions beside the output of that pass.
    """

    def __init__(self) -> None:
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
        yield from (rows for rows in taken if rows.num_rows)


def numbered_by_key(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows sorted by `BY_KEY_AND_RANK`, with `ordinal` 0, 1, 2 … in each key.

    Example: rows of the keys a, a, b get the ordinals 0, 1, 0.
    """
    last, before = None, 0
    for rows in batches:
        if not rows.num_rows:
            continue
        keys = rows.column("key")
        is_first = mask(starts(keys))
        # Batches cut the rows of a key anywhere: the numbers go on from the batch before.
        goes_on = keys[0].as_py() == last
        number = np.arange(rows.num_rows)
        first = np.maximum.accumulate(np.where(is_first, number, 0))
        ordinals = number - first
        if goes_on:
            ordinals[first == 0] += before
        last, before = keys[-1].as_py(), int(ordinals[-1]) + 1
        yield with_column(rows, "ordinal", ordinals)
