"""The kernel on whole columns: the same result as record by record (`folding`), in less time.

Some stages are decided entirely on columns. In others only plain keys are: a key with repetitions, or with
anything else that the column rule of its strategy does not cover (`special` lists it), goes record by
record. If the buffer is bounded, all keys of that key's partition do, since they share the buffer. Tests
compare both ways with each other, and with a model that shares no code with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import pyarrow as pa

from tidegate.kernel.before import with_before
from tidegate.kernel.columnar import bounded, latest
from tidegate.kernel.columnar.keys import Keys, parted
from tidegate.kernel.columnar.partitions import by_key
from tidegate.kernel.counts import Counts
from tidegate.kernel.folding import Folding
from tidegate.kernel.grouping import group_ends
from tidegate.kernel.ordering import in_order
from tidegate.kernel.stage import Batch, Stage, groups

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
    if latest.suits(stage, batch, value):
        return _latest
    # A trace names the fate of each single record, and a drain flushes entry by entry: both go record by
    # record.
    if batch.trace or batch.drain or stage.deduplicate == "root" or stage.expectations:
        return None
    if stage.bound and not bounded.suits(stage.bound):
        return None
    return _parted if stage.emit.decides_plain(stage, value) else None


def _latest(
    stage: Stage, batch: Batch, schema: pa.Schema, rows: pa.RecordBatch, counts: Counts
) -> Iterator[pa.RecordBatch]:
    decided = latest.fold_columns(stage, batch, schema, rows, counts)
    return with_before(rows, decided) if stage.tells_before else decided


def _parted(
    stage: Stage, batch: Batch, schema: pa.Schema, rows: pa.RecordBatch, counts: Counts
) -> Iterator[pa.RecordBatch]:
    """Decide plain keys on columns, and the others record by record."""
    keys, special = _split(stage, batch, rows)
    decided: list[pa.RecordBatch] = []
    if keys is not None:
        plain = stage.emit.decide(stage, batch, schema, keys, counts)
        decided += with_before(keys.rows, plain) if stage.tells_before else plain
    if special.num_rows:
        decided += Folding(stage, batch, special, schema, counts).run(group_ends(special, groups(stage)))
    yield from _by_kind(decided) if keys is not None and special.num_rows else decided


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
