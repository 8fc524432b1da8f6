"""The kernel: rows in; state changes, emissions and counts out. All decisions are made here, once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel import bounded
from tidegate.kernel.before import with_before
from tidegate.kernel.blocks import CutPartition, blocks
from tidegate.kernel.columns import Keys, by_key, parted
from tidegate.kernel.counts import Counts, count_lateness
from tidegate.kernel.loop import Loop
from tidegate.kernel.ordering import changes, group_ends, in_order, merge_partitions, whole_groups
from tidegate.kernel.rows import BY_KEY, BY_PARTITION, COUNTS, QUARANTINED, Ints, fill, output_schema
from tidegate.kernel.stage import Batch, Stage, groups
from tidegate.kernel.strategies import at_once
from tidegate.kernel.tables import made_by_tables
from tidegate.kernel.unusable import pass_through, traces_of_removed, without_removed, without_unreadable

_WHOLE_BATCH = Batch()
_MANY_ROWS = 1_000_000


class PriorState(Protocol):
    """The state that the batches before have left, read once in the order of hashes, up to `last_hash`."""

    last_hash: int

    def next_bound(self, up_to: int) -> int:
        """Return the largest hash, at most `up_to`, up to which `take` needs little memory.

        Args:
            up_to: The largest hash that the caller needs now.
        """

    def take(self, hashes: Ints, up_to: int, only_keys: pa.StringArray | None) -> pa.RecordBatch:
        """Return the newest state rows of entries up to the hash `up_to` that were not taken before, sorted.

        They have a hash of `hashes` (sorted, distinct), or a timer that the batch reaches.

        Args:
            hashes: The hashes of the batch's keys.
            up_to: The largest hash that is taken now.
            only_keys: If each key has one entry: the key of each hash, null for a hash that several keys
                have. Rows of other keys with such a hash are not needed. None: rows of all keys are needed.
        """


class _NoState:
    """The state of a first batch, or of rows that contain their state."""

    last_hash = -(2**63)

    def next_bound(self, up_to: int) -> int:
        return up_to

    def take(self, hashes: Ints, up_to: int, only_keys: pa.StringArray | None) -> pa.RecordBatch:
        del hashes, up_to, only_keys
        return pa.RecordBatch.from_pylist([], pa.schema([]))


NO_STATE: PriorState = _NoState()


def order(stage: Stage) -> tuple[str, ...]:
    """Return the columns by which a stage takes its rows.

    Example: it is `rows.BY_PARTITION` for a stage with a bounded buffer, otherwise `rows.BY_KEY`.
    """
    return BY_PARTITION if stage.bound else BY_KEY


def decide(
    stage: Stage, batches: Iterable[pa.RecordBatch], batch: Batch = _WHOLE_BATCH, prior: PriorState = NO_STATE
) -> Iterator[pa.RecordBatch]:
    """Apply a stage to rows as `rows` describes them.

    Yields state, emission, quarantined and trace rows, then counts. All rows of one hash must be in `batches`
    of one call, one after the other in any order, and smaller hashes before larger ones. The state may be
    among them, or come from `prior`. Quarantined rows are yielded before the next of `batches` is taken.

    The input must have at least one Arrow batch, though it may be empty: its schema gives the output's.
    Raises BufferFull; and if a record cannot be used and the stage stops for it, RecordFailed,
    UserFunctionFailed or ConditionFailed, with its position.

    Example::

        for rows in decide(stage, [record_batch], Batch(times={("orders", 0): 1_700_000_000_000})):
            ...
    """
    # a replayed record is below the fence, although no batch has applied it
    if batch.replay and stage.deduplicate == "offset":
        stage = replace(stage, deduplicate="none")
    counts = Counts()
    schema: pa.Schema | None = None
    undecided: list[pa.RecordBatch] = []
    """The rows of records that are not decided: those in quarantine, and traces of removed ones."""

    def accepted_rows() -> Iterator[pa.RecordBatch]:
        nonlocal schema
        for rows in batches:
            schema = schema or output_schema(stage, rows.schema)
            # usually there is none, and then nothing is filtered or copied
            if pc.index(rows.column("kind"), QUARANTINED).as_py() >= 0:
                unusable = pc.equal(rows.column("kind"), QUARANTINED)
                undecided.append(pass_through(schema, rows.filter(unusable), counts))
                rows = rows.filter(pc.invert(unusable))
            rows, removed = without_removed(rows, counts)
            if removed is not None and batch.trace:
                undecided.append(traces_of_removed(schema, removed))
            rows, unreadable = without_unreadable(stage, rows)
            if unreadable is not None:
                undecided.append(pass_through(schema, unreadable, counts))
            if undecided:
                # an empty batch lets the loop below yield them now: whole records may be wide
                yield rows.slice(0, 0)
            yield rows

    def decide_groups(applied: Batch, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        assert schema is not None, "there are rows"
        return _decide_groups(stage, applied, schema, rows, counts)

    by, partition, accepted = order(stage), CutPartition(decide_groups, batch, counts), accepted_rows()
    cuts = _cuts_partitions(stage, batch)
    whole = blocks(accepted, lambda: partition.block_rows) if cuts else whole_groups(accepted, ("hash",))
    # `map` keeps no reference to rows that it has passed on, as a generator would while they are decided
    ordered = map(partial(in_order, by=by), whole)
    for rows in with_state(ordered, prior, by, groups(stage), stage.has_one_entry_per_key):
        schema = schema or output_schema(stage, rows.schema)
        if rows.num_rows:
            if rows.num_rows >= _MANY_ROWS:
                # Arrow keeps what was joined and sorted on the way; NumPy's columns take as much again.
                pa.default_memory_pool().release_unused()
            # what was joined again is as old as the record was
            count_lateness(rows.filter(pc.invert(made_by_tables(rows))) if batch.tables else rows, counts)
            yield from partition.decide(rows) if cuts else decide_groups(batch, rows)
        while undecided:
            yield undecided.pop()
    yield from partition.finish()
    yield from undecided
    if schema is not None:
        yield fill(schema, COUNTS, {"counts": pa.array([counts.to_json()])}, 1)


def _cuts_partitions(stage: Stage, batch: Batch) -> bool:
    """Return whether large topic-partitions are decided in blocks: those that have rules on columns.

    Without a window, what these rules yield does not depend on where a partition is cut.
    """
    if stage.bound is None or stage.window is not None or batch.tables:
        return False
    # without a window, no rule of a bounded stage depends on the columns of the records
    return column_kernel(stage, batch, pa.struct([])) is not None


def _decide_groups(
    stage: Stage, batch: Batch, schema: pa.Schema, rows: pa.RecordBatch, counts: Counts
) -> Iterator[pa.RecordBatch]:
    # a bounded buffer is one partition's own, so its records are in order already
    if not stage.bound:
        rows, merged_keys = merge_partitions(rows, stage.by_time)
        counts["keys-in-several-partitions"] += merged_keys
    if stage.unchanged is not None:
        rows = stage.unchanged.fill(rows)
    decide_columns = column_kernel(stage, batch, rows.schema.field("value").type)
    if batch.tables and (stage.expects or pc.any(made_by_tables(rows)).as_py()):
        decide_columns = None  # they are few, and no rule on columns knows them
    if decide_columns is not None:
        yield from decide_columns(stage, batch, schema, rows, counts)
    else:
        yield from Loop(stage, batch, rows, schema, counts).run(group_ends(rows, groups(stage)))


ColumnKernel = Callable[[Stage, Batch, pa.Schema, pa.RecordBatch, Counts], Iterator[pa.RecordBatch]]
"""Decides rows of whole keys: yields emissions and state, sorted by hash."""


def column_kernel(stage: Stage, batch: Batch, value: pa.StructType) -> ColumnKernel | None:
    """Return the function that decides a stage's rows on columns; None if they must go record by record.

    `value` is the type of the records' columns.

    Args:
        stage: The stage that is decided.
        batch: A trace goes record by record, and except under `latest` a drain does.
        value: The type of the records' columns.
    """
    if at_once.suits(stage, batch, value):
        # without a `ttl`, no record looks at time
        return _latest if stage.ttl is None else _living if stage.emit.forgets_suppressed else None
    # A trace names the fate of each single record, and a drain flushes entry by entry: both go record by
    # record.
    if batch.trace or batch.drain or stage.deduplicate == "root" or stage.expectations or stage.ttl:
        return None
    if stage.bound and not bounded.suits(stage.bound):
        return None
    return _parted if stage.emit.decides_plain(stage, value) else None


def _latest(
    stage: Stage, batch: Batch, schema: pa.Schema, rows: pa.RecordBatch, counts: Counts
) -> Iterator[pa.RecordBatch]:
    decided = at_once.fold_columns(stage, batch, schema, rows, counts)
    return with_before(rows, decided) if stage.tells_before else decided


def _parted(
    stage: Stage, batch: Batch, schema: pa.Schema, rows: pa.RecordBatch, counts: Counts
) -> Iterator[pa.RecordBatch]:
    """Decide plain keys on columns, and the others record by record."""
    keys, special = _split(stage, batch, rows)
    decided: list[pa.RecordBatch] = []
    if keys is not None:
        plain = stage.emit.decide(stage, schema, keys, counts)
        decided += with_before(keys.rows, plain) if stage.tells_before else plain
    yield from _with_special(stage, batch, schema, decided, special, counts)


def _living(
    stage: Stage, batch: Batch, schema: pa.Schema, rows: pa.RecordBatch, counts: Counts
) -> Iterator[pa.RecordBatch]:
    """Decide keys that live through the batch on columns, and the others record by record."""
    assert stage.ttl is not None, "the stage has one"
    keys = Keys(rows, batch)
    plain, special = parted(rows, keys, [stage.ttl.may_end(keys)])
    decided = [*_latest(stage, batch, schema, plain, counts)] if plain.num_rows else []
    yield from _with_special(stage, batch, schema, decided, special, counts)


def _with_special(
    stage: Stage,
    batch: Batch,
    schema: pa.Schema,
    decided: list[pa.RecordBatch],
    special: pa.RecordBatch,
    counts: Counts,
) -> Iterable[pa.RecordBatch]:
    """Return what was decided on columns, and the special rows decided record by record."""
    if not special.num_rows:
        return decided
    by_record = Loop(stage, batch, special, schema, counts).run(group_ends(special, groups(stage)))
    # an empty batch has no first row that tells its kind
    return _by_kind(part for part in (*decided, *by_record) if part.num_rows) if decided else by_record


def _split(stage: Stage, batch: Batch, rows: pa.RecordBatch) -> tuple[Keys | None, pa.RecordBatch]:
    """Return the plain keys, or None if there are none, and the remaining rows."""
    # rows arrive by key, but for a bounded buffer by partition, and then keys are brought together
    keys_of = by_key if stage.bound else Keys
    keys = keys_of(rows, batch)
    masks = [*stage.emit.special(stage, keys)]
    if stage.bound:
        masks.append(bounded.overfull(stage.bound, keys))
    plain, special = parted(rows, keys, masks)
    if not special.num_rows:
        return keys, special
    # fewer rows: keys, lines and places are numbered anew
    return (keys_of(plain, batch) if plain.num_rows else None), special


def _by_kind(decided: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of both ways together, by kind and hash; rows of one key keep their order."""

    def kind(rows: pa.RecordBatch) -> int:
        return int(rows.column("kind")[0].as_py())

    for _, batches in groupby(sorted(decided, key=kind), kind):
        # each way yields rows sorted by hash, but the state files need them sorted together
        yield in_order(pa.concat_batches(list(batches)), ("hash",))


def with_state(
    batches: Iterable[pa.RecordBatch],
    prior: PriorState,
    order: Sequence[str],
    groups: Sequence[str],
    one_entry_per_key: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows, each group's state before it; also state of groups without rows, as `prior` gives it.

    No hash is in two of `batches`; input and output are sorted by `order`; `groups` are the columns of rows
    that are decided together. An empty batch is passed on at once.

    Args:
        prior: The state, which is read once, from the least hash to the largest.
        order: The columns of `kernel.order`.
        one_entry_per_key: See `Stage.has_one_entry_per_key`.
    """
    decided: int | None = None
    for rows in batches:
        if not rows.num_rows:
            yield rows
            continue
        hashes = rows.column("hash").to_numpy()
        start, last = 0, int(hashes[-1])
        if last == decided:
            # a further part of a topic-partition that is cut: its first part came with the state
            yield rows
            continue
        decided = last
        while start < rows.num_rows:
            # one range of hashes at a time, so that memory does not grow with the state
            bound = prior.next_bound(last)
            end = int(np.searchsorted(hashes, bound, side="right"))
            part = rows.slice(start, end - start)
            requested, first = np.unique(hashes[start:end], return_index=True)
            only_keys = _only_keys(part.column("key"), first) if one_entry_per_key else None
            yield from _merged(prior.take(requested, bound, only_keys), part, order, groups)
            start = end
    # state of groups without records: their timers may be due. What was taken is not taken again
    bound = -(2**63) - 1
    while bound < prior.last_hash:
        bound = prior.next_bound(prior.last_hash)
        state = prior.take(np.empty(0, np.int64), bound, None)
        if state.num_rows:
            yield state


def _only_keys(keys: pa.StringArray, first: Ints) -> pa.StringArray:
    """Return the key of each hash, null if several keys have it; `first` is the first row of each hash.

    The rows of a hash are sorted by key.
    """
    last = np.append(first, len(keys))[1:] - 1
    first_keys = keys.take(pa.array(first))
    is_only = pc.equal(first_keys, keys.take(pa.array(last)))
    return pc.if_else(is_only, first_keys, pa.scalar(None, pa.string()))


def _merged(
    state: pa.RecordBatch, rows: pa.RecordBatch, order: Sequence[str], groups: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    if not (state.num_rows and rows.num_rows):
        if state.num_rows or rows.num_rows:
            yield state if state.num_rows else rows
        return
    # state first: a stable sort by hash keeps it before its group's records
    combined = pa.concat_batches([state, rows])
    merged = combined.take(pa.array(np.argsort(combined.column("hash").to_numpy(), kind="stable")))
    if _interleaves(merged, groups):
        merged = in_order(combined, order)
    yield merged


def _interleaves(rows: pa.RecordBatch, groups: Sequence[str]) -> bool:
    """Return whether two groups share a hash (rare), so that hashes do not separate them."""
    same_hash = pc.invert(changes(rows.column("hash"), first=True))
    group_changes = [changes(rows.column(name)) for name in groups]
    return any(pc.any(pc.and_(same_hash, moved)).as_py() for moved in group_changes)


def live_rows_suffice(stage: Stage) -> bool:
    """Return whether rows that are not live may be left out of a snapshot, if nothing older is read beside
    it.

    Such a row has no value and no timer. If entries expire (windows, repeated values, deletions under a
    sequence), the kernel drops it at once when it reads it: the time of its partition says whether a record
    is late, not a row. Otherwise it is a deleted key, or a key whose content was all emitted, and only its
    position is left: that is below the head, where no record is read again. With `deduplicate: root` the
    position is one of another topic, whose earlier records may come at any time.

    Example: it is False for a stage with `deduplicate: root` and neither a window nor entries that expire.
    """
    return stage.window is not None or stage.emit.expires or stage.deduplicate != "root"
