"""The kernel on whole columns, where that says the same as record by record (`folding`), only sooner.

Some stages are decided so altogether. Of others only plain keys are: those with a tombstone, a repetition, or
whatever else a way does not know (its `special` says what) go record by record. Tests hold the two against
each other, and both against a model that shares nothing with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Protocol

import pyarrow as pa

from tidegate.core.columnar import held, latest, updates, windowed
from tidegate.core.columnar.keys import Keys, Mask, parted
from tidegate.core.counts import Counts
from tidegate.core.folding import Folding
from tidegate.core.grouping import group_ends
from tidegate.core.ordering import in_order
from tidegate.core.stage import Batch, Stage

Way = Callable[[Stage, Batch, pa.Schema, pa.RecordBatch, Counts], Iterator[pa.RecordBatch]]
"""Decides rows of whole keys: gives emissions and state, sorted by hash."""


class _PlainKeys(Protocol):
    """A module for plain keys."""

    def suits(self, stage: Stage, batch: Batch, value: pa.StructType) -> bool:
        """Whether it decides the plain keys of a stage, of records with these columns."""

    def special(self, stage: Stage, keys: Keys) -> Sequence[Mask]:
        """The rows whose keys are not plain."""

    def decide(
        self, stage: Stage, batch: Batch, schema: pa.Schema, rows: pa.RecordBatch, counts: Counts
    ) -> Iterator[pa.RecordBatch]:
        """Emissions and state of plain keys, sorted by hash."""


_OF_PLAIN_KEYS: tuple[_PlainKeys, ...] = (updates, held, windowed)


def way(stage: Stage, batch: Batch, value: pa.StructType) -> Way | None:
    """How a stage decides its rows on columns; None: it cannot. `value`: the records' columns."""
    if latest.suits(stage, batch, value):
        return latest.fold_columns
    if batch.trace or batch.drain or stage.bound or stage.deduplicate == "root":
        return None
    return next((_Parted(plain) for plain in _OF_PLAIN_KEYS if plain.suits(stage, batch, value)), None)


class _Parted:
    """Plain keys on columns, the others record by record."""

    def __init__(self, plain: _PlainKeys) -> None:
        self._plain = plain

    def __call__(
        self, stage: Stage, batch: Batch, schema: pa.Schema, rows: pa.RecordBatch, counts: Counts
    ) -> Iterator[pa.RecordBatch]:
        plain, special = self._split(stage, batch, rows)
        decided: list[pa.RecordBatch] = []
        if plain.num_rows:
            decided += self._plain.decide(stage, batch, schema, plain, counts)
        if special.num_rows:
            decided += Folding(stage, batch, special, schema, counts).run(group_ends(special, ("key",)))
        yield from _by_kind(decided) if plain.num_rows and special.num_rows else decided

    def _split(
        self, stage: Stage, batch: Batch, rows: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        keys = Keys(rows, batch)
        return parted(rows, keys, [*self._plain.special(stage, keys), keys.tombstones()])


def _by_kind(decided: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What came of both, sorted by hash again; rows of one key stay in their order."""

    def kind(rows: pa.RecordBatch) -> int:
        return int(rows.column("kind")[0].as_py())

    for _, batches in groupby(sorted(decided, key=kind), kind):
        yield in_order(pa.concat_batches(list(batches)), ("hash",))
