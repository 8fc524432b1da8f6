"""The kernel on whole columns, where that says the same as record by record (`folding`), only sooner.

Some stages are decided so altogether. Of others only plain keys are: those with a repetition, or whatever
else a column kernel does not know (its `special` says what), go record by record; where a buffer is bounded,
so do the others of their partition, which share it. Tests hold the two against each other, and both against a
model that shares nothing with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Protocol

import pyarrow as pa

from tidegate.core.before import with_before
from tidegate.core.columnar import bounded, held, latest, sequence, updates, windowed
from tidegate.core.columnar.keys import Keys, Mask, parted
from tidegate.core.columnar.partitions import by_key
from tidegate.core.counts import Counts
from tidegate.core.folding import Folding
from tidegate.core.grouping import group_ends
from tidegate.core.ordering import in_order
from tidegate.core.stage import Batch, Stage, groups

ColumnKernel = Callable[[Stage, Batch, pa.Schema, pa.RecordBatch, Counts], Iterator[pa.RecordBatch]]
"""Decides rows of whole keys: gives emissions and state, sorted by hash."""


class _PlainKeys(Protocol):
    """A module for plain keys."""

    def suits(self, stage: Stage, batch: Batch, value: pa.StructType) -> bool:
        """Whether it decides the plain keys of a stage, of records with these columns."""

    def special(self, stage: Stage, keys: Keys) -> Iterable[Mask]:
        """The rows whose keys are not plain."""

    def decide(
        self, stage: Stage, batch: Batch, schema: pa.Schema, keys: Keys, counts: Counts
    ) -> Iterator[pa.RecordBatch]:
        """Emissions and state of plain keys, sorted by hash."""


_OF_PLAIN_KEYS: tuple[_PlainKeys, ...] = (updates, held, windowed, sequence)


def column_kernel(stage: Stage, batch: Batch, value: pa.StructType) -> ColumnKernel | None:
    """How a stage decides its rows on columns; None: it cannot. `value`: the records' columns."""
    if latest.suits(stage, batch, value):
        return _latest
    if batch.trace or batch.drain or stage.deduplicate == "root" or stage.expectations:
        return None
    if stage.bound and not bounded.suits(stage.bound):
        return None
    return next((_Parted(plain) for plain in _OF_PLAIN_KEYS if plain.suits(stage, batch, value)), None)


def _latest(
    stage: Stage, batch: Batch, schema: pa.Schema, rows: pa.RecordBatch, counts: Counts
) -> Iterator[pa.RecordBatch]:
    decided = latest.fold_columns(stage, batch, schema, rows, counts)
    return with_before(rows, decided) if stage.tells_before else decided


class _Parted:
    """Plain keys on columns, the others record by record."""

    def __init__(self, plain: _PlainKeys) -> None:
        self._plain = plain

    def __call__(
        self, stage: Stage, batch: Batch, schema: pa.Schema, rows: pa.RecordBatch, counts: Counts
    ) -> Iterator[pa.RecordBatch]:
        keys, special = self._split(stage, batch, rows)
        decided: list[pa.RecordBatch] = []
        if keys is not None:
            plain = self._plain.decide(stage, batch, schema, keys, counts)
            decided += with_before(keys.rows, plain) if stage.tells_before else plain
        if special.num_rows:
            decided += Folding(stage, batch, special, schema, counts).run(group_ends(special, groups(stage)))
        yield from _by_kind(decided) if keys is not None and special.num_rows else decided

    def _split(self, stage: Stage, batch: Batch, rows: pa.RecordBatch) -> tuple[Keys | None, pa.RecordBatch]:
        """The plain keys, if there are any, and the rows that are left."""
        keys_of = by_key if stage.bound else Keys
        keys = keys_of(rows, batch)
        masks = [*self._plain.special(stage, keys)]
        if stage.bound:
            masks.append(bounded.overfull(stage.bound, keys))
        plain, special = parted(rows, keys, masks)
        if not special.num_rows:
            return keys, special
        return (keys_of(plain, batch) if plain.num_rows else None), special


def _by_kind(decided: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What came of both, sorted by hash again; rows of one key stay in their order."""

    def kind(rows: pa.RecordBatch) -> int:
        return int(rows.column("kind")[0].as_py())

    for _, batches in groupby(sorted(decided, key=kind), kind):
        yield in_order(pa.concat_batches(list(batches)), ("hash",))
