"""Read a batch's outbox, or its quarantine, always in the same order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.errors import SinkRefused
from tidegate.failpoints import failpoint
from tidegate.ledger import Plan
from tidegate.model.stage import Stage
from tidegate.sinks.model import SinkModel
from tidegate.storage import DataFile, Store
from tidegate.storage.datafile import data_errors, leaf_numbers, open_data, read_files
from tidegate.storage.schema import (
    KEY,
    KEY_COLUMNS,
    REASON,
    SEQ,
    TIMESTAMP,
    VALUE,
    WINDOW,
    parts_of,
    window_columns,
)

CHUNK_ROWS = 10_000
"""The most rows in one record batch, which bounds the memory of a publication."""
SHARD_EMISSIONS = 1_000_000
"""The least number of emissions of a shard. One process sends them in the time that Spark takes to start."""
MOST_SHARDS = 64
POSITION = "position"
"""A column that files do not have: the place of an emission in the outbox of its batch, from 0 on."""


@dataclass(frozen=True)
class Outbox:
    """The emissions of a stage in one batch, as its sinks get them.

    Args:
        stage: The stage; None: these are not emissions, but what the batch put into quarantine.
        attempt: The name of the attempt that computed them.
        starts: The POSITION of each file's first emission; None: the files are all that the batch has.

    Methods that read raise LakeDamaged if a file is missing or changed, LakeUnavailable if the store does not
    answer.
    Raises neither before something is read.
    """

    plan: Plan
    stage: Stage | None
    attempt: str
    store: Store
    files: tuple[DataFile, ...]
    starts: tuple[int, ...] | None = None

    @property
    def emitted(self) -> int:
        """The number of emissions that sinks get, without those that were erased since."""
        return sum(file.rows for file in self.files)

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        """Return the types of those of `columns` that exist."""
        with open_data(self.store, self.files[0]) as parquet:
            schema = parquet.schema_arrow
        return pa.schema([schema.field(name) for name in columns if name in schema.names])

    @property
    def shards(self) -> int:
        """The number of shards in which the emissions are sent: 1 unless there are many.

        It depends on nothing but the manifest, so that each try finds the same number.
        """
        # Tasks have ranges of hashes, so a key's emissions are all in one file; nothing else may be cut.
        if not all(_are_apart(*files) for files in pairwise(self.files)):
            return 1
        most = max(1, min(len(self.files), self.emitted // SHARD_EMISSIONS, MOST_SHARDS))
        # a power of two: as most clusters have such a number of cores, none of them waits for the last shard
        return 1 << most.bit_length() - 1

    def cut(self, number: int) -> list[Outbox]:
        """Return the outboxes of `number` shards, in a fixed order. Each has all emissions of its keys.

        Example: an outbox of the files 0, 1 and 2 in two shards is one of 0 and 2, and one of 1.
        """
        parts = [(self.files[shard::number], self._starts[shard::number]) for shard in range(number)]
        return [replace(self, files=files, starts=starts) for files, starts in parts]

    @property
    def _starts(self) -> tuple[int, ...]:
        if self.starts is not None:
            return self.starts
        return tuple(accumulate((file.rows for file in self.files), initial=0))[:-1]

    def batches(self, columns: Sequence[str], skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the emissions from the `skip`-th on, at most CHUNK_ROWS at a time, always in the same
        order.

        The order is that of the manifest's files and of the rows in them; the emissions of a key are in the
        order of their ordinals. Row groups that are skipped are not read.

        Raises LakeDamaged, LakeUnavailable.
        """
        # a publication that goes on after a crash skips what it has sent, without reading it
        stored = [name for name in columns if name != POSITION]
        for file, start in zip(self.files, self._starts, strict=True):
            if skip < file.rows:
                with open_data(self.store, file) as parquet:
                    rows = self._rows(file, parquet, stored, skip)
                    yield from rows if len(stored) == len(columns) else _with_positions(rows, start + skip)
            skip = max(0, skip - file.rows)

    def table(self, columns: Sequence[str]) -> pa.Table:
        """Return all emissions in memory. Raises LakeDamaged, LakeUnavailable."""
        return read_files(self.store, self.files, columns)

    def outside(self, column: str, earliest_ms: int | None, latest_ms: int | None) -> tuple[str, int] | None:
        """Return key and timestamp (epoch ms) of an emission that is outside of the bounds; None if there
        is none. `column` has the timestamps.

        A bound that is None does not limit. If no emission is outside, usually only the files' statistics are
        read.

        Raises LakeDamaged, LakeUnavailable.
        """
        if earliest_ms is None and latest_ms is None:
            return None
        for file in self.files:
            with failpoint("outbox.timestamps"), open_data(self.store, file) as parquet:
                for group in _row_groups_outside(parquet, column, earliest_ms, latest_ms):
                    with data_errors(self.store, file):
                        rows = parquet.read_row_group(group, columns=[KEY, column])
                    rows = rows.filter(_is_outside(rows[column], earliest_ms, latest_ms))
                    if rows.num_rows:
                        return rows[KEY][0].as_py(), rows[column][0].as_py()
        return None

    def _rows(
        self, file: DataFile, parquet: pq.ParquetFile, columns: list[str], skip: int
    ) -> Iterator[pa.RecordBatch]:
        for group in range(parquet.num_row_groups):
            # The footer has the number of rows, so a row group that was sent already is not read.
            number = parquet.metadata.row_group(group).num_rows
            if skip < number:
                with failpoint("outbox.read"), data_errors(self.store, file):
                    rows = parquet.read_row_group(group, columns=columns)
                yield from rows.select(columns).slice(skip).to_batches(max_chunksize=CHUNK_ROWS)
            skip = max(0, skip - number)


def table_rows(sink: SinkModel, outbox: Outbox) -> pa.RecordBatchReader:
    """Return the rows of a table of files: key, window if there is one, emitted columns, timestamp, reason,
    batch.

    Times are instants in UTC. The emitted columns of a deletion are null. Raises SinkRefused if a name has
    two meanings.
    """
    windows = window_columns(outbox.stage is not None and outbox.stage.window is not None)
    before, after = (KEY, *windows), (TIMESTAMP, REASON, SEQ)
    columns = [*before, KEY_COLUMNS, VALUE, *after]
    schema = outbox.schema(columns)
    structs = [KEY_COLUMNS, VALUE] if sink.with_key else [VALUE]
    emitted = dict.fromkeys(field.name for struct in structs for field in schema.field(struct).type)
    check_names(f"table of {sink.name}", [*before, *after], emitted)

    def as_rows(emissions: pa.RecordBatch) -> pa.RecordBatch:
        key_parts = parts_of(emissions.column(KEY_COLUMNS)) if sink.with_key else {}
        # A key column that is also emitted occurs once, so a deletion has it, too.
        parts = key_parts | parts_of(emissions.column(VALUE)) | key_parts
        own = {name: _as_instants(name, emissions.column(name)) for name in (*before, *after)}
        ordered = {name: own[name] for name in before} | parts | {name: own[name] for name in after}
        return pa.RecordBatch.from_pydict(ordered)

    # A reader needs its schema before its first batch: no row has the same columns as all rows.
    none = pa.RecordBatch.from_pylist([], schema)
    return pa.RecordBatchReader.from_batches(as_rows(none).schema, map(as_rows, outbox.batches(columns)))


def check_names(table: str, own: Iterable[str], emitted: Iterable[str]) -> None:
    """Check that no emitted column has the name of a column of the table. Raises SinkRefused."""
    own_names = list(own)
    # Delta and some databases ignore case: `Batch` and `batch` would be one column there.
    taken = {name.lower() for name in own_names}
    for name in emitted:
        if name.lower() in taken:
            raise SinkRefused(
                f"The column {name} is emitted to the {table}, which has one of that name itself "
                f"({', '.join(own_names)})",
                f"Emit it under another name, such as event_{name}.",
            )
        taken.add(name.lower())


def _as_instants(name: str, values: pa.Array) -> pa.Array:
    """Return a column of times (epoch ms) as instants, and any other column as it is."""
    if name not in (*WINDOW, TIMESTAMP):
        return values
    return values.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def _with_positions(batches: Iterator[pa.RecordBatch], start: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        positions = pa.array(range(start, start + batch.num_rows), pa.int64())
        yield batch.append_column(POSITION, positions)
        start += batch.num_rows


def _are_apart(first: DataFile, second: DataFile) -> bool:
    """Return whether all hashes of the second file come after those of the first."""
    if first.most_hash is None or second.least_hash is None:
        return False
    return first.most_hash < second.least_hash


def _row_groups_outside(
    parquet: pq.ParquetFile, column: str, earliest: int | None, latest: int | None
) -> Iterator[int]:
    """Yield the row groups whose statistics allow that a timestamp is outside."""
    leaf = leaf_numbers(parquet)[column]
    for group in range(parquet.num_row_groups):
        statistics = parquet.metadata.row_group(group).column(leaf).statistics
        # the statistics rule out most row groups without reading them
        too_early = earliest is not None and statistics.min < earliest
        too_late = latest is not None and statistics.max > latest
        if too_early or too_late:
            yield group


def _is_outside(timestamps: pa.ChunkedArray, earliest: int | None, latest: int | None) -> pa.ChunkedArray:
    bounds = []
    if earliest is not None:
        bounds.append(pc.less(timestamps, earliest))
    if latest is not None:
        bounds.append(pc.greater(timestamps, latest))
    return reduce(pc.or_, bounds)
