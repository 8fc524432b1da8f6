"""Decide a large topic-partition of a bounded stage in blocks.

A bounded buffer belongs to a topic-partition, whose rows are decided together: all of them at once would take
memory that grows with the batch. So the state after a block goes before the rows of the next one, as the
state after a batch goes before the next batch, and nothing depends on where a partition is cut. Only after
the last block is the clock of the batch applied, and does the newest state row of each entry leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.counts import Counts
from tidegate.kernel.ordering import (
    ENOUGH_ROWS,
    concatenated,
    group_ends,
    in_order,
    joined_and_released,
    number_of_rows,
)
from tidegate.kernel.rows import BY_PARTITION, EMISSION, STATE, ints, with_column
from tidegate.kernel.stage import Batch

BLOCK_ROWS = 131_072
"""The rows after which a topic-partition is cut."""

_ENTRY = ("topic", "partition", "key")
_CONSTANTS = {"kind": STATE, "updated_seq": 0, "turn": -1, "part": 0, "passes": True}
"""The values of state rows in columns about records."""

Decide = Callable[[Batch, pa.RecordBatch], Iterator[pa.RecordBatch]]


class CutPartition:
    """A topic-partition that is decided block by block, and the next one after it.

    Args:
        decide: Decides the rows of whole topic-partitions.
        batch: The parameters of the batch.
        counts: The counts that `decide` adds to.
    """

    def __init__(self, decide: Decide, batch: Batch, counts: Counts) -> None:
        self._decide = decide
        self._batch = batch
        # no time is over at the end of a block: only the batch has a clock
        self._unended = replace(batch, times={}, clock=None)
        self._counts = counts
        self._hash: int | None = None
        """The hash of the partition; None: none is cut."""
        self._stored: pa.RecordBatch
        """The state rows of entries that no block has changed."""
        self._changed: pa.RecordBatch
        """The newest state rows of the other entries, as the kernel yields them."""
        self._last: tuple[str, int, int]
        """The place of the last row so far."""
        self._ordinals: Counter[str] = Counter()
        """Key -> the number of its emissions so far."""

    @property
    def block_rows(self) -> int:
        """The rows of a block: state is read again in each, so blocks are larger than the state."""
        state = 0 if self._hash is None else self._stored.num_rows + self._changed.num_rows
        return max(BLOCK_ROWS, 2 * state)

    def decide(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield what the kernel decides of rows as `blocks` yields them, with their state, but for state rows
        of a partition that may go on.
        """
        if _hash(rows) != self._hash:
            yield from self.finish()
        if self._hash is not None:
            assert self._last <= _place(rows, 0), "the rows of a topic-partition come in order"
            yield from self._part(concatenated([*self._states(rows.schema), rows]))
            return
        # the state of topic-partitions without records may come before the rows
        begin = group_ends(rows, ("hash",))[-2:][0] if _hash(rows) != _hash(rows, -1) else 0
        if rows.num_rows - begin < BLOCK_ROWS:
            yield from self._decide(self._batch, rows)
            return
        if begin:
            yield from self._decide(self._batch, rows.slice(0, begin))
        rows = rows.slice(begin)
        self._hash = _hash(rows)
        self._stored = rows.filter(pc.equal(rows.column("kind"), STATE))
        self._changed = self._stored.slice(0, 0)
        yield from self._part(rows)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Apply the clock of the batch to the partition, and yield its changed state."""
        if self._hash is None:
            return
        if states := self._states(self._stored.schema):
            yield from self._apply(self._batch, concatenated(states))
        if self._changed.num_rows:
            yield in_order(self._changed, ("hash", *_ENTRY))
        self._hash = None
        self._ordinals.clear()

    def _part(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Decide rows of the partition after which others may follow."""
        self._last = _place(rows, -1)
        yield from self._apply(self._unended, rows)

    def _apply(self, batch: Batch, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for decided in self._decide(batch, in_order(rows, BY_PARTITION)):
            kind = decided.column("kind")[0].as_py() if decided.num_rows else None
            if kind == STATE:
                self._replace(decided)
            else:
                yield self._numbered(decided) if kind == EMISSION else decided

    def _states(self, schema: pa.Schema) -> list[pa.RecordBatch]:
        """Return all state rows of the partition as the kernel takes them."""
        # as `rows.BY_PARTITION` sorts them: changed rows have the least `updated_seq`
        states = (_as_input(self._changed, schema), self._stored)
        return [rows for rows in states if rows.num_rows]

    def _replace(self, newer: pa.RecordBatch) -> None:
        entries = _entries(newer)
        self._stored = _without(self._stored, entries)
        older = _without(self._changed, entries)
        # an entry is one changed row, however many blocks change it
        self._counts["state-rows-changed"] -= self._changed.num_rows - older.num_rows
        self._changed = concatenated([older, newer]) if older.num_rows else newer

    def _numbered(self, emissions: pa.RecordBatch) -> pa.RecordBatch:
        """Return emissions whose ordinals follow those of their keys in the blocks before."""
        keys = emissions.column("key").dictionary_encode()
        names, key = keys.dictionary.to_pylist(), keys.indices.to_numpy()
        before = np.array([self._ordinals[name] for name in names], np.int64)
        self._ordinals.update(dict(zip(names, np.bincount(key).tolist(), strict=True)))
        return with_column(emissions, "ordinal", ints(emissions.column("ordinal")) + before[key])


def _entries(states: pa.RecordBatch) -> pa.StringArray:
    """Return a text per entry; a topic has no slash."""
    topic, partition, key = map(states.column, _ENTRY)
    return pc.binary_join_element_wise(topic, partition.cast(pa.string()), key, "/")


def _without(states: pa.RecordBatch, entries: pa.StringArray) -> pa.RecordBatch:
    return states.filter(pc.invert(pc.is_in(_entries(states), value_set=entries)))


def _as_input(states: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return state rows that the kernel has yielded as rows of its input."""

    def column(field: pa.Field) -> pa.Array:
        if field.name in _CONSTANTS:
            return pa.repeat(pa.scalar(_CONSTANTS[field.name], field.type), states.num_rows)
        # a state row has no record, whose value has another type than the emitted one
        if field.name != "value" and field.name in states.schema.names:
            return states.column(field.name)
        return pa.nulls(states.num_rows, field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)


def blocks(batches: Iterable[pa.RecordBatch], block_rows: Callable[[], int]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of whole topic-partitions. A partition of more than `block_rows` rows is
    cut into batches of at least so many, in which no other one has rows; the last batch may have fewer. All
    parts of a record are in one batch. An empty batch is passed on at once.

    Args:
        batches: Rows by their hash. Those of a partition that is cut are sorted as `rows.BY_PARTITION`.
        block_rows: Returns the number, which may grow from block to block.
    """
    whole: list[pa.RecordBatch] = []
    partition: list[pa.RecordBatch] = []
    is_cut = False
    for batch in batches:
        if not batch.num_rows:
            yield batch
            continue
        for rows in _by_hash(batch):
            if partition and _hash(partition[0]) != _hash(rows):
                whole += partition
                partition.clear()
                if is_cut or number_of_rows(whole) >= ENOUGH_ROWS:
                    yield joined_and_released(whole)
                is_cut = False
            elif number_of_rows(partition) >= (enough := block_rows()):
                block = joined_and_released(partition)
                end = _last_record(block)
                if end >= enough:
                    if whole:
                        yield joined_and_released(whole)
                    yield block.slice(0, end)
                    is_cut = True
                    # a copy: a slice would keep the memory of the block
                    block = block.take(pa.array(np.arange(end, block.num_rows)))
                partition.append(block)
                del block
            partition.append(rows)
    if remaining := [*whole, *partition]:
        yield concatenated(remaining)


def _by_hash(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each hash."""
    begin = 0
    for end in group_ends(rows, ("hash",)):
        yield rows.slice(begin, end - begin)
        begin = end


def _hash(rows: pa.RecordBatch, row: int = 0) -> int:
    return int(rows.column("hash")[row].as_py())


def _place(rows: pa.RecordBatch, row: int) -> tuple[str, int, int]:
    topic, partition, turn = (rows.column(name)[row].as_py() for name in ("topic", "partition", "turn"))
    return topic, partition, turn


def _last_record(rows: pa.RecordBatch) -> int:
    """Return the row at which the parts of the last record begin."""
    turn = ints(rows.column("turn"))
    return int(np.flatnonzero(turn != turn[-1]).max(initial=-1)) + 1
