"""Other rows that a suite can be evaluated on, instead of those that a batch has written: all state, or a
table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.quality.audited import AuditedRows
from tidegate.storage.datafile import stored_schema
from tidegate.storage.state import StateReader


@dataclass(frozen=True)
class StateRows(AuditedRows):
    """The newest row of each live entry of a stage's state, ordered by hash.

    Args:
        is_bounded: Whether the stage's buffer is bounded. If it is, the same key has an entry per
            topic-partition.
    """

    is_bounded: bool = False

    def parts(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield about a row group at a time, with the columns `names` (None: all).

        Raises LakeDamaged if a file is missing or changed, LakeUnavailable if the store does not answer.
        """
        requested = self.schema.names if names is None else list(names)
        if not self.files:
            return
        schema = stored_schema(self.store, self.files)
        with StateReader(self.store, self.files, schema, by_place=self.is_bounded) as state:
            for rows in state.scan(live_only=True):
                yield self._shown(rows, requested)

    @classmethod
    def from_files(cls, rows: AuditedRows, is_bounded: bool) -> StateRows:
        """Return the state rows of the files of `rows`, with its columns."""
        return cls(rows.store, rows.files, rows.columns, rows.schema, is_bounded=is_bounded)


@dataclass(frozen=True)
class TableRows(AuditedRows):
    """A table in memory.

    Example::

        rows = TableRows.from_stored(audited_rows(pipeline, check, store, files), [stored_table])
    """

    in_memory: pa.Table = field(default_factory=lambda: pa.table({}))

    @property
    def most_rows(self) -> int:
        """The number of rows of the table."""
        return int(self.in_memory.num_rows)

    def parts(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the table at once, with the columns `names` (None: all)."""
        yield self.in_memory if names is None else self.in_memory.select(list(names))

    @classmethod
    def from_stored(cls, rows: AuditedRows, stored: Iterable[pa.Table]) -> TableRows:
        """Return rows as `rows` would show them, from tables with the columns of stored files.

        Args:
            rows: Names and types of the columns.
            stored: Tables with the columns that data files have.
        """
        shown = (rows._shown(part, rows.schema.names) for part in stored)
        in_memory = pa.concat_tables([rows.schema.empty_table(), *shown])
        return cls(rows.store, (), rows.columns, rows.schema, in_memory=in_memory)
