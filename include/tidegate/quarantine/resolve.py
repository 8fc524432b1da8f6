"""Resolve records in quarantine: write the open ones among the requested records into a file of the lake.

A plan that replays records names the file, so that its batch is a pure function of the file, and no record is
resolved twice. The caller has the stream's lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.lease import leased
from tidegate.app.root import App
from tidegate.errors import SettingsInvalid
from tidegate.ledger import LeasedLedger, Resolution, Stream
from tidegate.quarantine.database import DuckDatabase, open_database
from tidegate.quarantine.resolved import OPEN, ResolvedRecords
from tidegate.quarantine.store import rows_at
from tidegate.storage.datafile import RowWriter
from tidegate.storage.layout import resolution_name
from tidegate.storage.manifest import manifest_of
from tidegate.storage.quarantine_files import IDENTITY, QUARANTINE

_BLOCK_ROWS, _BLOCK_BYTES = 4_096, 16 * 1024 * 1024
_SORTED = (
    'SELECT "group", row, bytes FROM positions '
    'ORDER BY topic, "partition", "offset", part NULLS LAST, seq, "group", row'
)
Unfit = Callable[[pa.Table], pa.ChunkedArray]
"""A function that gets rows of quarantine, and returns which of them cannot be resolved this way."""


@dataclass(frozen=True)
class ResolutionRequest:
    """The records to replay or discard, by whom and why.

    Args:
        rows: returns tables with the columns of `QUARANTINE`, in any order; a replay uses the rows as they
            are.
        decided_by: the person who decides.
        reason: why, for people.
        is_listed: a person has listed the records one by one, so each must be in quarantine, and be listed
            once.
    """

    rows: Callable[[], Iterator[pa.Table]]
    decided_by: str
    reason: str = ""
    is_listed: bool = False


@dataclass
class Skipped:
    """The number of requested records that stay as they are: resolved before, or not fit for this
    resolution.
    """

    resolved: int = 0
    unfit: int = 0

    def __str__(self) -> str:
        parts = []
        if self.resolved:
            parts.append(f"{self.resolved} replayed or discarded before")
        if self.unfit:
            parts.append(f"{self.unfit} that a stage emitted or that cannot come again")
        return f" (left out: {', '.join(parts)})" if parts else ""


def written_resolution(
    app: App, lease: LeasedLedger, request: ResolutionRequest, seq: int | None, unfit: Unfit | None = None
) -> tuple[Resolution | None, Skipped]:
    """Write the open records of a request into a file, and return the resolution; None if no record is open.

    Nothing counts before the ledger has the resolution.

    Args:
        seq: The batch that replays the records; None: they are discarded, and only their identity is written.
        unfit: Returns which rows cannot be resolved this way; they are skipped.

    Raises SettingsInvalid if a list has a record that is not in quarantine, or a record twice; LakeDamaged,
    LakeUnavailable.
    """
    stream = lease.stream
    with open_database() as database:
        resolved = ResolvedRecords(app, stream, database, lease)
        # The lease makes the number unique: resolutions are noted only under it.
        number = max(resolved.resolutions, default=0) + 1
        skipped, lake, name = Skipped(), app.lake(stream), resolution_name(number)
        chosen = _open_rows(resolved, request, unfit, skipped)
        path = f"{lake.files('quarantine', '', name)}/records.parquet"
        batches: set[int] = set()
        with RowWriter(lake.store, path, "quarantine") as writer:
            for rows in _each_once(sorted_by_position(database, chosen), request.is_listed):
                # The range of batches lets readers skip this file for records of other batches.
                batches.update(pc.unique(rows["seq"]).to_pylist())
                stored = rows if seq is not None else _positions_only(rows)
                for batch in stored.combine_chunks().to_batches():
                    writer.write(batch)
    if writer.file is None:
        return None, skipped
    manifest = app.write_manifest(stream, manifest_of(name, seq or 0, [writer.file]))
    by = (request.decided_by, request.reason)
    return Resolution(stream, number, seq, manifest, min(batches), max(batches), *by), skipped


def discard_records(app: App, stream: Stream, request: ResolutionRequest) -> tuple[int, Skipped]:
    """Discard the open records of a request. Return their number, and the number of skipped records.

    Nothing is deleted: discarded records stay readable as long as quarantine is kept.

    Raises LeaseHeld while a run is at work, Fenced, and what `written_resolution` raises.
    """
    with leased(app, stream, f"discard__{uuid4().hex[:12]}") as lease:
        resolution, skipped = written_resolution(app, lease, request, None)
        if resolution is not None:
            lease.add_resolution(resolution)
        lease.release()
    return (0 if resolution is None else resolution.manifest.file_rows), skipped


def _open_rows(
    resolved: ResolvedRecords, request: ResolutionRequest, unfit: Unfit | None, skipped: Skipped
) -> Iterator[pa.Table]:
    for rows in request.rows():
        # Null: no batch has put it into quarantine. A list of a person must not have such a record.
        numbers = resolved.numbers(rows)
        if numbers.null_count and request.is_listed:
            raise _unknown(rows, numbers, resolved.expired)
        is_open = pc.fill_null(pc.equal(numbers, OPEN), False)
        skipped.resolved += len(numbers) - numbers.null_count - (pc.sum(is_open).as_py() or 0)
        rows = rows.filter(is_open)
        if unfit is not None and rows.num_rows:
            mask = unfit(rows)
            skipped.unfit += pc.sum(mask).as_py() or 0
            rows = rows.filter(pc.invert(mask))
        if rows.num_rows:
            yield rows


def _unknown(rows: pa.Table, numbers: pa.Int64Array, expired: int) -> SettingsInvalid:
    row = rows.filter(numbers.is_null()).slice(0, 1).to_pylist()[0]
    place = f"{row['topic']}/{row['partition']}/{row['offset']}"
    if row["seq"] <= expired:
        return SettingsInvalid(
            f"{place} is no longer in quarantine: of batches up to {expired} it is not kept",
            "Take its line out of the file. `quarantine: {keep: …}` says how long records are kept.",
        )
    part = "" if row["part"] is None else f", element {row['part']},"
    return SettingsInvalid(
        f"{place}{part} was not put into quarantine by batch {row['seq']}",
        "Leave `batch`, `topic`, `partition`, `offset` and `part` of an exported record as they are.",
    )


def sorted_by_position(database: DuckDatabase, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield all rows, sorted by `IDENTITY`; rows with one identity in the order in which they came.

    DuckDB sorts the positions. The rows wait in a file that the system maps into memory: keys and values can
    be of any size, and DuckDB cannot sort many of a megabyte within a bound of memory.

    Args:
        database: gets the table `positions`.
        tables: rows with the columns of `QUARANTINE`.
    """
    with TemporaryDirectory(prefix="tidegate-sort-") as folder:
        path = Path(folder) / "rows.arrow"
        database.run(
            'CREATE TABLE positions (topic VARCHAR, "partition" INT, "offset" INT8, part INT, seq INT8, '
            '"group" INT8, row INT8, bytes INT8)'
        )
        # Blocks, not tables: a place names a block, which is later read by its number alone.
        with pa.ipc.new_file(path, QUARANTINE) as file:
            blocks = (block for rows in tables for block in rows.to_batches(max_chunksize=_BLOCK_ROWS))
            for number, block in enumerate(blocks):
                file.write_batch(block)
                sizes = [pc.fill_null(pc.binary_length(block[name]), 0) for name in ("key", "value")]
                narrow = pa.table([block[name] for name in IDENTITY], list(IDENTITY))
                narrow = narrow.append_column("bytes", pc.add(*sizes))
                values = f"* EXCLUDE (row, bytes), {number}, row, bytes"
                database.run(f"INSERT INTO positions SELECT {values} FROM rows", rows=narrow)
        with pa.memory_map(str(path)) as mapped:
            stored = pa.ipc.open_file(mapped)
            for places in database.stream(_SORTED, _BLOCK_ROWS):
                for part in _bounded(places):
                    yield rows_at(part, lambda number: pa.table(stored.get_batch(number)))


def _bounded(places: pa.Table) -> Iterator[pa.Table]:
    """Cut a block of places into parts of at most 16 MiB of keys and values, or one row."""
    start = size = 0
    for row, length in enumerate(places["bytes"].to_pylist()):
        # At least one row per part: a single record may be larger than the bound.
        if row > start and size + length > _BLOCK_BYTES:
            yield places.slice(start, row - start)
            start, size = row, 0
        size += length
    yield places.slice(start)


def _each_once(tables: Iterable[pa.Table], is_listed: bool) -> Iterator[pa.Table]:
    """Yield sorted rows without those that repeat the one before.

    Raises SettingsInvalid if a list has such a row.
    """
    last: tuple[object, ...] | None = None
    for rows in tables:
        keys = [tuple(row.values()) for row in rows.select(IDENTITY).to_pylist()]
        # Sorted input: a repeated record follows the first one, also across two tables.
        repeats = [key == before for key, before in zip(keys, [last, *keys], strict=False)]
        if any(repeats) and is_listed:
            topic, partition, offset, *_ = keys[repeats.index(True)]
            raise SettingsInvalid(f"{topic}/{partition}/{offset} is there twice", "Keep the one to replay.")
        last = keys[-1] if keys else last
        yield rows.filter(pa.array([not repeated for repeated in repeats]))


def _positions_only(rows: pa.Table) -> pa.Table:
    columns = [
        rows[field.name] if field.name in (*IDENTITY, "reason") else pa.nulls(rows.num_rows, field.type)
        for field in QUARANTINE
    ]
    return pa.table(columns, schema=QUARANTINE)
