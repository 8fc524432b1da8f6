"""List the newest quarantined records, count records, and show the history of one record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.root import App, batch_named, needed_by
from tidegate.errors import SettingsInvalid
from tidegate.kernel.rows import with_column
from tidegate.ledger import Stream
from tidegate.quarantine.database import DuckDatabase, open_database
from tidegate.quarantine.resolved import RESOLUTION, Decision, ResolvedRecords, Status
from tidegate.quarantine.store import (
    ALL,
    REASON,
    QuarantineFilter,
    matching_groups,
    quarantine_batches,
    rows_at,
)
from tidegate.storage.quarantine_files import IDENTITY, POSITION, RowGroup, read_group, row_groups

CountedBy = Literal["reason", "topic", "batch"]
_COUNTED = {"reason": REASON, "topic": "topic", "batch": "seq"}


def list_quarantine(
    app: App, stream: Stream, where: QuarantineFilter = ALL, limit: int = 50, max_bytes: int | None = None
) -> Iterator[pa.Table]:
    """Yield at most `limit` records, the newest batch first; the records of a batch are sorted by
    position.

    Each table has rows of one batch, with the columns of `QUARANTINE`. Positions are read first; values are
    read only from row groups with a chosen record, and older batches only if the newer ones have too few
    records.

    Args:
        max_bytes: Longer keys and values are cut to this length; None does not cut.

    Raises SettingsInvalid for a limit below 1; LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    if limit < 1:
        raise SettingsInvalid(f"A list of {limit} records has none", "Ask for 1 or more.")
    store = app.lake(stream).store
    with open_database() as database:
        for seq, files in quarantine_batches(app, stream, where, newest_first=True):
            with needed_by(batch_named(stream, seq)):
                groups = (group for file in files for group in row_groups(store, file, where.bounds))
                rows = _first_rows(database, groups, where, limit, max_bytes)
            limit -= rows.num_rows
            if rows.num_rows:
                yield rows
            if not limit:
                return


def _first_rows(
    database: DuckDatabase,
    groups: Iterable[RowGroup],
    where: QuarantineFilter,
    limit: int,
    max_bytes: int | None,
) -> pa.Table:
    """Return the first `limit` rows of a batch by position; rows with one position by their place."""
    condition, parameters = where.condition
    reads: list[Callable[[], pa.Table]] = []
    database.run(
        "CREATE OR REPLACE TABLE places "
        '(topic VARCHAR, "partition" INT, "offset" INT8, "group" INT8, row INT8)'
    )
    for group in groups:
        narrow = group.read(list({*POSITION, *where.columns}))
        values = f'topic, "partition", "offset", {len(reads)}, row'
        database.run(f"INSERT INTO places SELECT {values} FROM rows WHERE {condition}", parameters, narrow)
        # Only places stay in memory; row groups with a chosen record are read a second time.
        reads.append(partial(read_group, group.store, group.file, group.number))
    order = 'topic, "partition", "offset", "group", row'
    places = database.query(f'SELECT "group", row FROM places ORDER BY {order} LIMIT ?', [limit])
    return rows_at(places, lambda number: _cut(reads[number](), max_bytes))


def _cut(rows: pa.Table, max_bytes: int | None) -> pa.Table:
    """Return the rows with keys and values of at most `max_bytes` bytes."""
    if max_bytes is None:
        return rows
    for name in ("key", "value"):
        rows = with_column(rows, name, pc.binary_slice(rows[name], 0, max_bytes))
    return rows


@dataclass(frozen=True)
class QuarantineCount:
    """The number of records with the same `reason`, `topic` and `batch`; None for what is not counted by.

    Args:
        first_batch: The first batch with such a record.
        last_batch: The last batch with such a record.
        first_timestamp_ms: The earliest timestamp of such a record, in epoch ms; None if they have none.
        last_timestamp_ms: The latest timestamp.
    """

    reason: str | None
    topic: str | None
    batch: int | None
    records: int
    first_batch: int
    last_batch: int
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None


def count_quarantine(
    app: App, stream: Stream, where: QuarantineFilter = ALL, by: Sequence[CountedBy] = ("reason",)
) -> list[QuarantineCount]:
    """Count matching records by reason, topic, batch or several of these; the counts are sorted by them.

    Neither keys nor values are read. Raises SettingsInvalid if `by` has another name, LakeDamaged,
    LakeUnavailable, LedgerUnavailable.
    """
    unknown = sorted(set(by) - set(get_args(CountedBy)))
    if unknown or not by:
        raise SettingsInvalid(
            f"Quarantine cannot be counted by {', '.join(unknown) or 'nothing'}",
            f"It is counted by: {', '.join(get_args(CountedBy))}.",
        )
    condition, parameters = where.condition
    groups = ", ".join(f"{_COUNTED[name] if name in by else 'NULL'} AS {name}" for name in _COUNTED)
    with open_database() as database:
        database.run(
            "CREATE TABLE counts (reason VARCHAR, topic VARCHAR, batch INT8, records INT8, first_batch INT8, "
            "last_batch INT8, first_timestamp_ms INT8, last_timestamp_ms INT8)"
        )
        # counted by row group, so that DuckDB keeps counts, and no rows
        counted = 'count(*), min(seq), max(seq), min("timestamp"), max("timestamp")'
        insert = f"INSERT INTO counts SELECT {groups}, {counted} FROM rows WHERE {condition} GROUP BY ALL"
        for group in matching_groups(app, stream, where):
            narrow = group.read({"reason", "topic", "timestamp", "seq", *where.columns})
            database.run(insert, parameters, narrow)
        rows = database.query(
            "SELECT reason, topic, batch, CAST(sum(records) AS INT8) AS records, "
            "min(first_batch) AS first_batch, max(last_batch) AS last_batch, "
            "min(first_timestamp_ms) AS first_timestamp_ms, max(last_timestamp_ms) AS last_timestamp_ms "
            f"FROM counts GROUP BY ALL ORDER BY {', '.join(dict.fromkeys(by))}"
        )
    return [QuarantineCount(**row) for row in rows.to_pylist()]


def count_by_status(app: App, stream: Stream, where: QuarantineFilter) -> dict[Status, int]:
    """Return the number of records of each status. Neither keys nor values are read.

    Raises LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    condition, parameters = where.condition
    counts = dict.fromkeys(Status, 0)
    counted = (
        f"SELECT {RESOLUTION} AS number, count(*) AS records FROM rows WHERE {condition} GROUP BY number"
    )
    with open_database() as database:
        resolved = ResolvedRecords(app, stream, database)
        for group in matching_groups(app, stream, where):
            narrow = group.read({*IDENTITY, *where.columns})
            resolved.load(group.seq)
            for row in database.query(counted, parameters, narrow).to_pylist():
                counts[resolved.decision(row["number"]).status] += row["records"]
    return counts


@dataclass(frozen=True)
class RecordEvent:
    """An event in the history of a record.

    Args:
        at: Epoch seconds; None if the ledger does not have it.
        batch: The batch that put the record into quarantine, or replayed it.
        part: See `formats.INPUT`.
    """

    what: str
    at: float | None
    batch: int | None
    part: int | None
    by: str | None
    reason: str | None


def record_history(app: App, stream: Stream, topic: str, partition: int, offset: int) -> list[RecordEvent]:
    """Return the events of a record, the oldest first; empty if it was never in quarantine.

    The ledger keeps resolutions forever, so they are included even if the quarantine has expired.

    Raises LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    where = QuarantineFilter(topics=(topic,), partitions=(partition,), offset=offset)
    condition, parameters = where.condition
    events: list[RecordEvent] = []
    with open_database() as database:
        resolved = ResolvedRecords(app, stream, database)
        for group in matching_groups(app, stream, where):
            sql = f"SELECT * FROM rows WHERE {condition} ORDER BY row"
            rows = database.query(sql, parameters, group.read((*IDENTITY, "reason")))
            at = _committed_at(app, stream, group.seq) if rows.num_rows else None
            for row, decision in zip(rows.to_pylist(), resolved.decisions_on(rows), strict=True):
                part, reason = row["part"], row["reason"]
                events.append(RecordEvent("quarantined", at, group.seq, part, None, reason))
                events += _resolution_event(decision, part)
    return list(dict.fromkeys(events))


def _committed_at(app: App, stream: Stream, seq: int) -> float | None:
    # The newest batch before `seq + 1`: it is another one if the ledger has removed this batch.
    batches = app.ledger.batches(stream, seq + 1, 1)
    return batches[0].committed_at if batches and batches[0].seq == seq else None


def _resolution_event(decision: Decision, part: int | None) -> Iterator[RecordEvent]:
    resolution = decision.resolution
    if resolution is not None:
        by, reason = resolution.decided_by, resolution.reason or None
        yield RecordEvent(decision.status.value, resolution.decided_at, resolution.seq, part, by, reason)
