"""The quarantine of some batches for a page: counts by reason, and a few records, cut to a bounded size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.app.root import App, batch_named, needed_by
from tidegate.errors import LakeDamaged, LakeUnavailable, TidegateError
from tidegate.ledger import Stream
from tidegate.ledger.report import HistoryEntry
from tidegate.quarantine.database import open_database
from tidegate.quarantine.resolved import NOT_RESOLVED, ResolvedRecords, open_decisions
from tidegate.quarantine.store import REASON
from tidegate.storage.datafile import first_rows
from tidegate.storage.manifest import DataFile
from tidegate.storage.quarantine_files import IDENTITY, QUARANTINE, RowBounds, row_groups

MOST_RECORDS = 200_000
"""The most records that are counted while somebody waits for a page."""
SAMPLES = 10
MAX_CHARACTERS = 300
_COLUMNS = ("topic", "partition", "offset", "part", "seq", "timestamp", "reason", "key", "value")
_IDENTIFIED = pa.schema([QUARANTINE.field(name) for name in IDENTITY])


@dataclass(frozen=True)
class ReasonSummary:
    """The number of records with a reason.

    Args:
        reason: the reason without its detail.
        records: the number of records with it.
        open: how many of them are neither replayed nor discarded.
    """

    reason: str
    records: int
    open: int


@dataclass(frozen=True)
class QuarantineSample:
    """A record, or an emission, that could not be used.

    Args:
        key: Text of at most MAX_CHARACTERS characters; None if there is none. Bytes that are not UTF-8 are
            escaped.
        value: As `key`.
        value_size: The length of the whole value: bytes, or characters of a text.
        status: Open, or how it was resolved.
    """

    seq: int
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    reason: str
    key: str | None
    value: str | None
    value_size: int
    status: str


def summary_of(app: App, stream: Stream, entries: Iterable[HistoryEntry]) -> list[ReasonSummary] | None:
    """Return the quarantine of these batches by reason, the most frequent reason first.

    None if there are more than MOST_RECORDS records, or the lake cannot be read. Neither keys nor values are
    read.
    """
    try:
        files = [(seq, file) for seq, files in _quarantines(app, stream, entries) for file in files]
        # The manifest has the number of rows, so a page that would take long is refused without reading.
        if sum(file.rows for _, file in files) > MOST_RECORDS:
            return None
        return _summary(app, stream, files)
    except (LakeDamaged, LakeUnavailable):
        return None  # `samples_of` returns the error


def _summary(app: App, stream: Stream, files: Iterable[tuple[int, DataFile]]) -> list[ReasonSummary]:
    records, opened = Counter[str](), Counter[str]()
    counted = f"{REASON} AS reason, count(*) AS n, count(*) FILTER ({NOT_RESOLVED}) AS open"
    with open_database() as database:
        resolved = ResolvedRecords(app, stream, database)
        for seq, file in files:
            resolved.load(seq)
            for group in row_groups(app.lake(stream).store, file, RowBounds()):
                for row in database.query(
                    f"SELECT {counted} FROM rows GROUP BY 1", rows=group.read([*IDENTITY, "reason"])
                ).to_pylist():
                    records[row["reason"]] += row["n"]
                    opened[row["reason"]] += row["open"]
    return [ReasonSummary(reason, count, opened[reason]) for reason, count in records.most_common()]


def samples_of(
    app: App, stream: Stream, entries: Iterable[HistoryEntry], limit: int = SAMPLES
) -> tuple[list[QuarantineSample], TidegateError | None]:
    """Return the first `limit` quarantined records of these batches, batch by batch.

    No more files are opened than necessary. The error says why the lake cannot be read; None if it can.
    """
    store, samples = app.lake(stream).store, list[QuarantineSample]()
    try:
        with open_decisions(app, stream) as resolved:
            for seq, files in _quarantines(app, stream, entries):
                with needed_by(batch_named(stream, seq)):
                    parts = first_rows(store, files, _COLUMNS, limit - len(samples))
                    rows = [row for part in parts for row in part.to_pylist()]
                    decisions = resolved.decisions_on(pa.Table.from_pylist(rows, _IDENTIFIED))
                for row, decision in zip(rows, decisions, strict=True):
                    samples.append(_sample(seq, row, str(decision)))
                if len(samples) >= limit:
                    break
    except (LakeDamaged, LakeUnavailable) as error:
        return [], error
    return samples, None


def _quarantines(
    app: App, stream: Stream, entries: Iterable[HistoryEntry]
) -> Iterator[tuple[int, Sequence[DataFile]]]:
    """Yield the files of committed batches whose quarantine still exists and is not empty."""
    expired = app.ledger.expired(stream, "quarantine").seq
    for entry in entries:
        quarantined = entry.report and entry.report.quarantined
        # The report in the ledger says where there is nothing, so those manifests are not read.
        is_readable = entry.committed_at_ms is not None and entry.seq > expired
        if is_readable and quarantined and entry.manifest is not None:
            with needed_by(batch_named(stream, entry.seq)):
                files = app.manifest(stream, entry.manifest).files_of("quarantine")
            yield entry.seq, files


def _sample(seq: int, row: dict[str, Any], status: str) -> QuarantineSample:
    value = row.get("value")
    return QuarantineSample(
        seq=seq,
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        timestamp_ms=row.get("timestamp"),
        reason=_cut(row["reason"]) or "",
        key=_cut(row.get("key")),
        value=_cut(value),
        value_size=0 if value is None else len(value),
        status=status,
    )


def _cut(value: str | bytes | None) -> str | None:
    """Return text of a bounded length. The part that is cut off is not decoded."""
    if value is None:
        return None
    if isinstance(value, bytes):
        # a character of UTF-8 has at most four bytes
        value = value[: 4 * MAX_CHARACTERS].decode(errors="backslashreplace")
    return value if len(value) <= MAX_CHARACTERS else value[: MAX_CHARACTERS - 1] + "…"
