"""Write the results of tasks: state, outbox and quarantine, as files of an attempt."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from tidegate import kernel
from tidegate.failpoints import failpoint
from tidegate.formats.decoded import Reason
from tidegate.kernel.counts import count_emissions
from tidegate.spark.kernel_task import Forwarding
from tidegate.spark.outbox import COUNTED, OutboxFormat
from tidegate.spark.shuffle import Report, TaskReport
from tidegate.spark.state import to_stored
from tidegate.stage_names import late_name
from tidegate.storage.datafile import RowWriter
from tidegate.storage.layout import Lake
from tidegate.storage.manifest import DataFile, Kind
from tidegate.storage.quarantine_files import quarantine_rows, quarantined_emissions, refused_input


@dataclass(frozen=True)
class WrittenOutput:
    """A `StageOutput` that writes files.

    Args:
        stage: the name of the pass.
        seq: the batch.
        files: the place of the attempt's files.
        stored: the columns of state files.
        outbox: how emissions are written; None: no sink gets them, or a later task writes them.
        late: how late records are written; None: no sink gets them.
        forwarding: the emissions that go on to the next level.
    """

    stage: str
    seq: int
    files: AttemptFiles
    stored: pa.Schema
    outbox: OutboxFormat | None
    forwarding: Forwarding
    late: OutboxFormat | None = None

    def open(self, slot: int) -> WrittenTask:
        """Return the output of one try of a task. Enter it before use."""
        return WrittenTask(self, slot)

    def before_merge(self, forwarding: Forwarding, written: bool) -> WrittenOutput:
        """Return an output that forwards to a merge. It writes the outbox if that is `written` before."""
        return replace(self, outbox=self.outbox if written else None, forwarding=forwarding)


class WrittenTask:
    """A `TaskOutput` that writes state, outbox and quarantine, and counts. Use it as a context manager: after
    an error it reports no files. Raises RecordTooLarge, LakeUnavailable.
    """

    def __init__(self, output: WrittenOutput, slot: int) -> None:
        self._output = output
        self._slot = slot
        self._counts = kernel.Counts()
        self._late_counts = kernel.Counts()
        self._writers: Writers = output.files.writers(output.stage, slot)
        self._handlers: Mapping[int, Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]] = {
            kernel.STATE: self._state,
            kernel.EMISSION: self._emissions,
            kernel.LATE: self._late,
            kernel.QUARANTINED: self._quarantined,
            kernel.REFUSED: self._refused,
            kernel.COUNTS: self._counted,
        }

    def __enter__(self) -> WrittenTask:
        self._writers.__enter__()
        return self

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writers.__exit__(type_, error, trace)

    def put(self, decided: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Write or count rows of one kind, and yield emissions for the next level. Raises RecordTooLarge if a
        sink halts for an emission, LakeUnavailable, SchemaRefused.
        """
        # A `MergeTask` passes on emissions only, which have no column `kind` any more.
        kind = decided.column("kind")[0].as_py() if "kind" in decided.schema.names else kernel.EMISSION
        return self._handlers[kind](decided)

    def copy(self, kind: Kind, rows: pa.RecordBatch) -> None:
        """Write rows that have the form of their file already. Raises LakeUnavailable."""
        self._writers.write(kind, rows)

    def reports(self) -> list[Report]:
        """Return the counts, also of late records as a stage, and the files that are complete."""
        own = TaskReport(self._output.stage, self._slot, dict(self._counts), self._writers.files)
        if self._output.late is None:
            return [own]
        return [own, TaskReport(late_name(self._output.stage), self._slot, dict(self._late_counts), ())]

    def _state(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._writers.write("state", to_stored(rows, self._output.stored, self._output.seq))
        yield from ()

    def _quarantined(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._writers.write("quarantine", quarantine_rows(rows, rows.column("input"), self._output.seq))
        yield from ()

    def _refused(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Quarantine values that break an expectation."""
        reasons = pc.binary_join_element_wise(str(Reason.EXPECTATION), rows.column("reason"), ": ")
        inputs = refused_input(rows, reasons)
        self._writers.write("quarantine", quarantine_rows(rows, inputs, self._output.seq))
        yield from ()

    def _counted(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for text in rows.column("counts").to_pylist():
            self._counts.include(json.loads(text))
        yield from ()

    def _emissions(self, emissions: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._output.outbox is not None:
            rows = self._sendable(self._output.outbox, emissions, self._counts)
            self._writers.write("outbox", rows)
        # The next stages also read emissions that the sinks of this one would refuse.
        yield from self._output.forwarding.rows(emissions)

    def _late(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Write late records to an outbox of their own."""
        if self._output.late is not None:
            emissions = kernel.late_emissions(rows)
            count_emissions(emissions.column("value"), emissions.column("reason"), self._late_counts)
            sendable = self._sendable(self._output.late, emissions, self._late_counts)
            self._writers.write("outbox", sendable, late_name(self._output.stage))
        yield from ()

    def _sendable(
        self, outbox: OutboxFormat, emissions: pa.RecordBatch, counts: kernel.Counts
    ) -> pa.RecordBatch:
        """Return the rows of an outbox, and quarantine emissions that sinks would refuse."""
        rows, refused = outbox.rows(emissions)
        if refused.null_count == len(refused):
            return rows
        for reason in pc.value_counts(refused.drop_null()).to_pylist():
            counts[COUNTED[reason["values"]]] += reason["counts"]
        is_refused = refused.is_valid()
        refusals = rows.filter(is_refused), refused.filter(is_refused)
        self._writers.write("quarantine", quarantined_emissions(*refusals, self._output.seq))
        return rows.filter(pc.invert(is_refused))


@dataclass(frozen=True)
class AttemptFiles:
    """The place of an attempt's files: folders of its name, which nothing reads before a manifest
    names them.
    """

    lake: Lake
    attempt: str

    def writers(self, stage: str, slot: int) -> Writers:
        """Return the writers of one try of a task. Use them as a context manager."""
        return Writers(self, stage, slot)


class Writers:
    """A file of each kind, made with its first row, under names that no other try has.

    `files` has the written files after the end of the block.
    """

    def __init__(self, attempt: AttemptFiles, stage: str, slot: int) -> None:
        self._attempt, self._stage, self._slot = attempt, stage, slot
        # Spark can run two tries of one task at once: each writes under names of its own.
        self._try = uuid4().hex[:12]
        self._open = ExitStack()
        self._writers: dict[tuple[Kind, str], RowWriter] = {}
        self.files: tuple[DataFile, ...] = ()

    def __enter__(self) -> Writers:
        return self

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            # With the error, the writers give up their files instead of completing them.
            self._open.__exit__(type_, error, trace)
            return
        with failpoint("compute.files"):
            self._open.close()
        self.files = tuple(writer.file for writer in self._writers.values() if writer.file is not None)

    def write(self, kind: Kind, rows: pa.RecordBatch, stage: str | None = None) -> None:
        """Add rows of a kind; all stages share one quarantine. Raises LakeUnavailable.

        Args:
            kind: The kind.
            rows: The rows.
            stage: The stage whose rows they are; None: that of the task.
        """
        stage = "" if kind == "quarantine" else stage or self._stage
        if (kind, stage) not in self._writers:
            lake = self._attempt.lake
            folder = lake.files(kind, stage, self._attempt.attempt)
            writer = RowWriter(lake.store, f"{folder}/{self._slot:05d}-{self._try}.parquet", kind, stage)
            self._writers[kind, stage] = self._open.enter_context(writer)
        with failpoint(f"compute.write_{kind}"):
            self._writers[kind, stage].write(rows)
