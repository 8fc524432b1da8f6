"""The tasks of a stage: each takes its sorted records and their state through the kernel, and passes the
results to an output, which writes or reports them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext

from tidegate import kernel
from tidegate.failpoints import failpoint
from tidegate.spark.errors import report_worker_errors
from tidegate.spark.reports import Report, end_times, rows_of, split_reports
from tidegate.spark.shuffle import Slots
from tidegate.spark.state import StateFiles, due_rows
from tidegate.spark.task_rows import Bypass, complete, numbered_by_key


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
        """Take rows of `core.output_schema`, all of one kind; yield the rows that go on to the next pass."""

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
        forwarding = self.output.forwarding
        bypass = Bypass(forwarding.schema)
        with ExitStack() as open_:
            with failpoint("compute.kernel"):
                hashes, due = self.slots.range(slot), due_rows(self.logic, batch)
                prior = open_.enter_context(self.state.open(hashes, due))
            output = open_.enter_context(self.output.open(slot))
            decidable = (complete(part, self.rows) for part in bypass.without(rows))
            for decided in kernel.decide(self.logic, decidable, batch, prior):
                if decided.num_rows:
                    yield from output.put(self._ranked(decided) if forwarding.emissions else decided)
                # After each step of the kernel, so that the rows that go around it do not gather in memory.
                yield from bypass.taken()
        # Behind the block: only the end of the block completes the files, which the report names.
        yield from forwarded_reports(reports, output.report(), slot, forwarding)

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
