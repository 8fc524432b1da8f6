"""A batch's outbox, or its quarantine, read in the one order that every publication of it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.failpoints import failpoint
from tidegate.lake import DataFile, Store
from tidegate.lake.datafile import data_errors, open_data, read_files
from tidegate.lake.outbox import TIMESTAMP
from tidegate.lake.schema import KEY
from tidegate.ledger import Plan
from tidegate.spec import Stage

CHUNK_ROWS = 10_000


@dataclass(frozen=True)
class Outbox:
    """What a stage emitted in one batch for its sinks: how many emissions, and the files that they are in.
    Where `stage` is None, what the batch has put into quarantine.

    `attempt` is the name of the computation that they are of. What reads raises LakeDamaged, LakeUnavailable.
    """

    plan: Plan
    stage: Stage | None
    attempt: str
    emitted: int
    store: Store
    files: tuple[DataFile, ...]

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """The types of those of `columns` that it has."""
        with open_data(self.store, self.files[0]) as parquet:
            found = parquet.schema_arrow
        return pa.schema([found.field(name) for name in columns if name in found.names])

    def batches(self, columns: Sequence[str], skip: int = 0) -> Iterator[pa.RecordBatch]:
        """The emissions from the `skip`-th on, at most CHUNK_ROWS at a time, always in the same order.

        That is the order of the manifest's files, and of the rows in them, where a key's are in the order of
        their ordinals. What is skipped is not read.
        """
        for file in self.files:
            if skip < file.rows:
                with open_data(self.store, file) as parquet:
                    yield from self._rows(file, parquet, list(columns), skip)
            skip = max(0, skip - file.rows)

    def table(self, columns: Sequence[str]) -> pa.Table:
        """All emissions at once."""
        return read_files(self.store, self.files, columns)

    def outside(self, earliest_ms: int | None, latest_ms: int | None) -> tuple[str, int] | None:
        """Key and timestamp (epoch ms) of an emission that is not between two instants; None: no bound.

        Costs a look at the files' statistics where there is none.
        """
        if earliest_ms is None and latest_ms is None:
            return None
        for file in self.files:
            with failpoint("outbox.timestamps"), open_data(self.store, file) as parquet:
                for group in _row_groups_outside(parquet, earliest_ms, latest_ms):
                    with data_errors(self.store, file):
                        rows = parquet.read_row_group(group, columns=[KEY, TIMESTAMP])
                    rows = rows.filter(_is_outside(rows[TIMESTAMP], earliest_ms, latest_ms))
                    if rows.num_rows:
                        return rows[KEY][0].as_py(), rows[TIMESTAMP][0].as_py()
        return None

    def _rows(
        self, file: DataFile, parquet: pq.ParquetFile, columns: list[str], skip: int
    ) -> Iterator[pa.RecordBatch]:
        for group in range(parquet.num_row_groups):
            number = parquet.metadata.row_group(group).num_rows
            if skip < number:
                with failpoint("outbox.read"), data_errors(self.store, file):
                    rows = parquet.read_row_group(group, columns=columns)
                yield from rows.select(columns).slice(skip).to_batches(max_chunksize=CHUNK_ROWS)
            skip = max(0, skip - number)


def _row_groups_outside(parquet: pq.ParquetFile, earliest: int | None, latest: int | None) -> Iterator[int]:
    """The row groups whose statistics do not rule out that a timestamp is outside."""
    paths = [parquet.schema.column(leaf).path for leaf in range(parquet.metadata.num_columns)]
    place = paths.index(TIMESTAMP)
    for group in range(parquet.num_row_groups):
        found = parquet.metadata.row_group(group).column(place).statistics
        too_early = earliest is not None and found.min < earliest
        too_late = latest is not None and found.max > latest
        if too_early or too_late:
            yield group


def _is_outside(timestamps: pa.ChunkedArray, earliest: int | None, latest: int | None) -> pa.ChunkedArray:
    bounds = []
    if earliest is not None:
        bounds.append(pc.less(timestamps, earliest))
    if latest is not None:
        bounds.append(pc.greater(timestamps, latest))
    return reduce(pc.or_, bounds)
