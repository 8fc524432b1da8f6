"""Convert state rows between the form of files and the form that the kernel takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate import kernel
from tidegate.kernel.tables import made_by_tables
from tidegate.spark.shuffle import HashRange
from tidegate.storage.evolution import NO_ALIASES, Aliases
from tidegate.storage.manifest import DataFile
from tidegate.storage.schema import DUE_AT, PENDING, PLACE, TIMERS, UPDATED_SEQ, state_schema
from tidegate.storage.state import DueRows, StateReader
from tidegate.storage.store import Store

_CONSTANTS = {"kind": kernel.STATE, "turn": -1, "part": 0, "passes": True}
"""The values of state rows in columns about records."""


def stored_schema(logic: kernel.Stage, rows: pa.Schema) -> pa.Schema:
    """Return the columns of a stage's state files.

    Args:
        logic: the stage, which decides what it stores of a value.
        rows: the schema of the kernel's input.
    """
    values = [pa.field("value", rows.field("accumulator").type)] if logic.keeps_values else []
    if not logic.remembers_hashes:
        values.append(pa.field("emitted", rows.field("emitted").type))
    return state_schema(values)


def to_stored(states: pa.RecordBatch, schema: pa.Schema, seq: int) -> pa.RecordBatch:
    """Return state rows of the kernel in the form of files."""
    added = {UPDATED_SEQ: pa.repeat(pa.scalar(seq, pa.int64()), states.num_rows)}
    arrays = [
        added[field.name] if field.name in added else states.column(_KERNEL_NAMES.get(field.name, field.name))
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_KERNEL_NAMES = {"value": "accumulator"}
_STORED_NAMES = {"accumulator": "value"}


def to_kernel(states: pa.Table, rows: pa.Schema) -> pa.RecordBatch:
    """Return stored state rows as rows of the kernel's input; columns about records are null.

    Args:
        rows: the schema of the kernel's input.
    """
    size = states.num_rows

    def column(field: pa.Field) -> pa.Array:
        if field.name in _CONSTANTS:
            return pa.repeat(pa.scalar(_CONSTANTS[field.name], field.type), size)
        stored = _STORED_NAMES.get(field.name, field.name)
        # The kernel calls the value of a record `value`; the value in the state is its `accumulator`.
        if field.name != "value" and stored in states.column_names:
            return states[stored].combine_chunks()
        return pa.nulls(size, field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in rows], schema=rows)


def due_rows(logic: kernel.Stage, batch: kernel.Batch) -> DueRows | None:
    """Return the entries that the batch must read although it has no records of them; None without timers.

    Their timer fires; in a bounded or drained buffer they are all entries that hold something back.
    """
    if not logic.has_timers:
        return None
    all_that_hold = batch.drain or logic.bound is not None
    # a key that the table no longer has gets no row
    is_fed = logic.expects and bool(batch.tables)
    latest = None if all_that_hold or is_fed else max([batch.least_end, *batch.ends.values()])

    def fires(timers: pa.Table) -> pa.BooleanArray | pa.ChunkedArray:
        reached = pc.fill_null(pc.less_equal(timers[DUE_AT], _ends(logic, timers, batch)), False)
        if is_fed:
            reached = pc.or_(reached, made_by_tables(timers))
        if not all_that_hold:
            return reached
        return pc.or_(reached, pc.fill_null(pc.greater(timers[PENDING], 0), False))

    return DueRows(TIMERS, latest, fires)


def _ends(logic: kernel.Stage, timers: pa.Table, batch: kernel.Batch) -> pa.ChunkedArray | pa.Int64Scalar:
    """Return per row the time of its partition at the end of the batch."""
    ends = pa.nulls(timers.num_rows, pa.int64())
    for place in batch.ends:
        in_partition = pc.and_(
            *(pc.equal(timers[name], part) for name, part in zip(PLACE, place, strict=True))
        )
        ends = pc.if_else(in_partition, pa.scalar(batch.end_of(place), pa.int64()), ends)
    if logic.expects:  # a table has made entries, and `ends` does not have its place
        ends = pc.if_else(made_by_tables(timers), pa.scalar(batch.end_of_all, pa.int64()), ends)
    return pc.fill_null(ends, pa.scalar(batch.least_end, pa.int64()))


@dataclass(frozen=True)
class StateFiles:
    """The files from which a stage's state is read, of any number of attempts and snapshots, also files
    written before an edit, with other names and narrower types.
    """

    store: Store
    files: tuple[DataFile, ...]
    stored: pa.Schema
    rows: pa.Schema
    by_place: bool
    """Whether an entry belongs to a topic-partition, as in a bounded buffer."""
    aliases: Aliases = NO_ALIASES
    """The older names of columns that the stage declares, beside those that the files declare."""

    def open(self, hashes: HashRange, due: DueRows | None) -> StoredState:
        """Return the state of a range of hashes. Close it, or use it as a context manager."""
        reader = StateReader(
            *(self.store, self.files, self.stored, due, self.by_place),
            first_hash=hashes.first,
            aliases=self.aliases,
        )
        return StoredState(reader, self.rows, hashes.last)


class StoredState:
    """A `kernel.PriorState` from files, one row group of each at a time. Use it as a context manager."""

    def __init__(self, reader: StateReader, rows: pa.Schema, last_hash: int) -> None:
        self._reader = reader
        self._rows = rows
        self.last_hash = last_hash

    def __enter__(self) -> StoredState:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.__exit__()

    def next_bound(self, up_to: int) -> int:
        """Return the greatest hash, at most `up_to`, up to which not too many timers fire. Raises
        LakeDamaged, LakeUnavailable.
        """
        return self._reader.next_bound(up_to)

    def take(
        self, hashes: npt.NDArray[np.int64], up_to: int, only_keys: pa.StringArray | None
    ) -> pa.RecordBatch:
        """Return the newest state rows as the kernel takes them, as `kernel.PriorState` requires.

        Raises LakeDamaged, LakeUnavailable, SchemaChanged.
        """
        return to_kernel(self._reader.take(hashes, up_to, only_keys), self._rows)
