"""Other rows that a suite can be evaluated on than those that a batch has written: all state, or a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.lake.datafile import stored_schema
from tidegate.lake.state import StateReader
from tidegate.quality.audited import AuditedRows


@dataclass(frozen=True)
class StateRows(AuditedRows):
    """Of all state that some files have the newest row of each entry that is not gone, by hash.

    `is_bounded`: the stage's buffer is, so an entry is a topic-partition's.
    """

    is_bounded: bool = False

    def parts(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """About a row group at a time. Raises LakeDamaged, LakeUnavailable."""
        requested = self.schema.names if names is None else list(names)
        if not self.files:
            return
        schema = stored_schema(self.store, self.files)
        with StateReader(self.store, self.files, schema, by_place=self.is_bounded) as state:
            for rows in state.scan(live_only=True):
                yield self._shown(rows, requested)

    @classmethod
    def of(cls, rows: AuditedRows, is_bounded: bool) -> StateRows:
        """Of the files of `rows`, with its columns."""
        return cls(rows.store, rows.files, rows.columns, rows.schema, is_bounded=is_bounded)


@dataclass(frozen=True)
class TableRows(AuditedRows):
    """A table in memory."""

    in_memory: pa.Table = field(default_factory=lambda: pa.table({}))

    @property
    def most_rows(self) -> int:
        """How many rows there are."""
        return int(self.in_memory.num_rows)

    def parts(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """All at once."""
        yield self.in_memory if names is None else self.in_memory.select(list(names))

    @classmethod
    def of(cls, rows: AuditedRows, stored: Iterable[pa.Table]) -> TableRows:
        """What `rows` would show of some rows as files have them."""
        shown = (rows._shown(part, rows.schema.names) for part in stored)
        in_memory = pa.concat_tables([rows.schema.empty_table(), *shown])
        return cls(rows.store, (), rows.columns, rows.schema, in_memory=in_memory)
