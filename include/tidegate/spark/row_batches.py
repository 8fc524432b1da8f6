"""Send rows to their tasks in row batches: Arrow rows of one task, as one binary value.

Spark moves and sorts some thousands of values then, in place of millions of rows, and converts none of them.
The rows of a row batch are in the order of their hashes. A task takes row batches in the order of their first
hashes, so it has all rows up to the first hash of the next one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from tidegate.kernel.ordering import concatenated, number_of_rows, order_of_hashes
from tidegate.spark.errors import report_worker_errors
from tidegate.spark.shuffle import REPORT, TO, Slots, columns_of, in_schema
from tidegate.spark.source import spark_types

_ROWS = "rows"
SCHEMA = pa.schema([("hash", pa.int64()), (_ROWS, pa.binary()), (REPORT, pa.string()), (TO, pa.int32())])
"""The columns of row batches and of reports: the first hash, the rows, and the number of the task."""

_MOST_ROWS, _MOST_BYTES = 131_072, 32 * 1024 * 1024
"""The rows that are sorted and divided among tasks at once."""
_BATCH_BYTES = 128 * 1024
"""The least bytes of most row batches: each costs some 60 µs."""
_MERGED_BYTES = 4 * 1024 * 1024
"""The bytes that a task gathers before it passes on rows: the kernel takes longer for few rows at once."""


@dataclass(frozen=True)
class RowBatches:
    """Makes row batches for the tasks of a level. It can be pickled.

    Args:
        slots: the ranges of hashes of the tasks of each pass.
    """

    slots: Slots

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield row batches of kernel rows, which have the number of their pass in `TO`."""
        waiting: dict[int, _Waiting] = {}
        for batch in rows:
            if batch.num_rows:
                number = batch.column(TO)[0].as_py()
                of_pass = waiting.setdefault(number, _Waiting(number, self.slots))
                yield from of_pass.add(batch.drop_columns([REPORT, TO]))
        for of_pass in waiting.values():
            yield from of_pass.rest()


class _Waiting:
    """Rows of one pass that wait until there are many.

    Args:
        number: the number of the pass in its level.
    """

    def __init__(self, number: int, slots: Slots) -> None:
        self._first_task = number * slots.number
        self._slots = slots
        self._rows: list[pa.RecordBatch] = []
        self._number = self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._rows.append(rows)
        self._number, self._bytes = self._number + rows.num_rows, self._bytes + rows.nbytes
        if self._number >= _MOST_ROWS or self._bytes >= _MOST_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield row batches of all rows that wait."""
        if not self._rows:
            return
        rows = concatenated(self._rows)
        rows = rows.take(pa.array(order_of_hashes(rows.column("hash").to_numpy())))
        hashes = rows.column("hash").to_numpy()
        parts = _parts(self._bytes // self._slots.number)
        self._rows, self._number, self._bytes = [], 0, 0
        numbers = Slots(self._slots.number * parts).of_hashes(hashes)
        ends = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
        for first, end in itertools.pairwise([0, *ends.tolist(), rows.num_rows]):
            columns = {
                "hash": pa.array([hashes[first]], pa.int64()),
                _ROWS: _as_value(rows.slice(first, end - first)),
                TO: pa.array([self._first_task + numbers[first] // parts], pa.int32()),
            }
            yield in_schema(columns, SCHEMA, 1)


def _parts(slot_bytes: int) -> int:
    """Return the number of ranges into which the hashes of a slot are divided.

    It is a power of two, so that ranges of several slices end at the same hashes: then a task has no more
    rows than those of one range of each.
    """
    parts: int = 1 << (slot_bytes // _BATCH_BYTES).bit_length() >> 1
    return max(1, parts)


def _as_value(rows: pa.RecordBatch) -> pa.BinaryArray:
    """Return rows as one value, a stream of Arrow. A column without a value does not travel."""
    present = [name for name, column in columns_of(rows).items() if column.null_count < rows.num_rows]
    rows = rows.select(present)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    content = sink.getvalue()
    # not from bytes, which Arrow would copy twice
    bounds = pa.py_buffer(np.array([0, content.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, bounds, content])


def batched(rows: DataFrame, slots: Slots) -> DataFrame:
    """Return kernel rows that Spark has made as row batches."""
    return rows.mapInArrow(_BatchRows(RowBatches(slots)), spark_types(SCHEMA))


@dataclass(frozen=True)
class _BatchRows:
    """A function for `mapInArrow`: kernel rows in, row batches out."""

    row_batches: RowBatches

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with report_worker_errors():
            yield from self.row_batches(rows)


def rows_in(row_batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, smaller hashes before larger ones: at least one Arrow batch, maybe empty.

    Memory does not grow with the number of rows, but with that of the largest key.

    Args:
        row_batches: rows of `SCHEMA`, in the order of their hashes.
        schema: the columns of the rows.
    """
    gathered: list[pa.RecordBatch] = []
    size, enough = 0, _MERGED_BYTES
    for batch in row_batches:
        for first, content in zip(batch.column("hash").to_pylist(), batch.column(_ROWS), strict=True):
            if size >= enough:
                complete, remaining = _divided(gathered, first)
                yield from _merged(complete)
                # an estimate: to add up `nbytes` of all batches took a twentieth of the task's time
                size = size * number_of_rows(remaining) // max(number_of_rows(gathered), 1)
                # rows of a large key stay: to divide them after each row batch would go through all of them
                gathered, enough = remaining, size + max(_MERGED_BYTES, size // 4)
            stream = content.as_buffer()
            gathered.append(_from_bytes(stream, schema))
            size += stream.size
    yield from _merged(gathered or [pa.RecordBatch.from_pylist([], schema)])


def _from_bytes(content: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    rows = pa.ipc.open_stream(content).read_next_batch()
    return in_schema(columns_of(rows), schema, rows.num_rows)


def _divided(
    batches: Sequence[pa.RecordBatch], hash_: int
) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """Return the rows with a smaller hash, and all others."""
    ends = [int(np.searchsorted(rows.column("hash").to_numpy(), hash_)) for rows in batches]
    smaller = [rows.slice(0, end) for rows, end in zip(batches, ends, strict=True) if end]
    larger = [rows.slice(end) for rows, end in zip(batches, ends, strict=True) if end < rows.num_rows]
    return smaller, larger


def _merged(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all batches in the order of their hashes, a part at a time: the kernel has several
    copies of what it gets at once.
    """
    if not batches:
        return
    rows = concatenated(batches)
    order = order_of_hashes(rows.column("hash").to_numpy())
    at_once = max(1, rows.num_rows * _MERGED_BYTES // max(rows.nbytes, 1))
    for start in range(0, max(rows.num_rows, 1), at_once):
        yield rows.take(pa.array(order[start : start + at_once]))
