"""Read quarantine by filters and in pieces: memory holds one row group at a time.

Narrow columns decide which records match; keys and values are read only from row groups with such records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.root import App, batch_named, needed_by
from tidegate.errors import SettingsInvalid
from tidegate.formats.decoded import Reason
from tidegate.ledger import Stream
from tidegate.quarantine.database import open_database
from tidegate.quarantine.resolved import NOT_RESOLVED, ResolvedRecords
from tidegate.storage.manifest import DataFile
from tidegate.storage.quarantine_files import IDENTITY, QUARANTINE, RowBounds, RowGroup, row_groups

REASON = "split_part(reason, ':', 1)"
"""SQL: a reason without its detail."""


@dataclass(frozen=True)
class QuarantineFilter:
    """A filter of quarantined records; a record must meet all conditions that are given.

    Args:
        reasons: Names of `formats.decoded.Reason`; empty for any.
        first_batch: Included.
        last_batch: Included.
        since_ms: The earliest timestamp of a record, in epoch ms. A record without a timestamp is in no
            interval.
        until_ms: The end of the timestamps, not included.

    Raises SettingsInvalid for a reason that does not exist.
    """

    reasons: Collection[str] = ()
    topics: Collection[str] = ()
    partitions: Collection[int] = ()
    first_batch: int | None = None
    last_batch: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    offset: int | None = None

    def __post_init__(self) -> None:
        """Refuse a reason that does not exist."""
        reasons = [str(reason) for reason in Reason]
        unknown = sorted(set(map(str, self.reasons)) - set(reasons))
        if unknown:
            raise SettingsInvalid(
                f"Quarantine has no reason {', '.join(unknown)}", f"Its reasons are: {', '.join(reasons)}."
            )

    @property
    def condition(self) -> tuple[str, list[Any]]:
        """The condition on a row as SQL, and its parameters."""
        tests: list[tuple[str, Any]] = []
        if self.reasons:
            tests.append((f"list_contains(?, {REASON})", list(map(str, self.reasons))))
        if self.topics:
            tests.append(("list_contains(?, topic)", list(self.topics)))
        if self.partitions:
            tests.append(('list_contains(?, "partition")', list(self.partitions)))
        if self.since_ms is not None:
            tests.append(('"timestamp" >= ?', self.since_ms))
        if self.until_ms is not None:
            tests.append(('"timestamp" < ?', self.until_ms))
        if self.offset is not None:
            tests.append(('"offset" = ?', self.offset))
        return " AND ".join(test for test, _ in tests) or "true", [value for _, value in tests]

    @property
    def columns(self) -> list[str]:
        """The columns that the condition reads."""
        is_timed = self.since_ms is not None or self.until_ms is not None
        used = {"reason": self.reasons, "topic": self.topics, "partition": self.partitions}
        compared = {"timestamp": is_timed, "offset": self.offset is not None}
        return [name for name, values in {**used, **compared}.items() if values]

    @property
    def bounds(self) -> RowBounds:
        """The bounds by which row groups are skipped."""
        places = frozenset(self.topics), frozenset(self.partitions)
        return RowBounds(*places, self.since_ms, self.until_ms, self.offset)

    def has_batch(self, seq: int) -> bool:
        """Return whether the filter includes records of this batch.

        Example: `QuarantineFilter(first_batch=3).has_batch(3)` is true.
        """
        return (self.first_batch is None or seq >= self.first_batch) and (
            self.last_batch is None or seq <= self.last_batch
        )


ALL = QuarantineFilter()


def iter_quarantine(
    app: App, stream: Stream, where: QuarantineFilter = ALL, open_only: bool = False
) -> Iterator[pa.Table]:
    """Yield all matching records with the columns of `QUARANTINE`, a row group at a time.

    The oldest batch comes first; the records of a batch are in no particular order.

    Args:
        open_only: Leave out records that were replayed or discarded.

    Raises LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    condition, parameters = where.condition
    with open_database() as database:
        resolved = ResolvedRecords(app, stream, database) if open_only else None
        test = f"{condition} AND {NOT_RESOLVED}" if open_only else condition
        for group in matching_groups(app, stream, where):
            if resolved is not None:
                resolved.load(group.seq)
            # Narrow columns first: a row group whose records do not match costs no read of values.
            narrow = group.read({*where.columns, *IDENTITY})
            numbers = database.query(f"SELECT row FROM rows WHERE {test} ORDER BY row", parameters, narrow)
            if numbers.num_rows:
                yield group.read(QUARANTINE.names).take(numbers["row"])


def iter_open(app: App, stream: Stream, where: QuarantineFilter) -> Iterator[pa.Table]:
    """Yield what `iter_quarantine` yields, without records that were replayed or discarded."""
    return iter_quarantine(app, stream, where, open_only=True)


@dataclass(frozen=True)
class QuarantineGroup:
    """A row group of a batch's quarantine. If it is damaged, the error names the batch."""

    stream: Stream
    seq: int
    group: RowGroup

    def read(self, columns: Iterable[str]) -> pa.Table:
        """Return these columns of all rows. Raises LakeDamaged, LakeUnavailable."""
        with needed_by(batch_named(self.stream, self.seq)):
            return self.group.read(list(columns))


def matching_groups(app: App, stream: Stream, where: QuarantineFilter) -> Iterator[QuarantineGroup]:
    """Yield the row groups that can contain matching records. Read one before you take the next one."""
    store = app.lake(stream).store
    for seq, files in quarantine_batches(app, stream, where):
        with needed_by(batch_named(stream, seq)):
            for file in files:
                for group in row_groups(store, file, where.bounds):
                    yield QuarantineGroup(stream, seq, group)


def quarantine_batches(
    app: App, stream: Stream, where: QuarantineFilter, newest_first: bool = False
) -> Iterator[tuple[int, Sequence[DataFile]]]:
    """Yield the matching batches whose quarantine exists and is not empty, with its files.

    Raises LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    expired = app.ledger.expired(stream, "quarantine").seq
    # `committed` excludes the batch that it is given, hence `- 1`.
    committed = app.ledger.committed(stream, max(expired, (where.first_batch or 1) - 1))
    for seq, manifest in reversed(committed) if newest_first else committed:
        if where.has_batch(seq):
            with needed_by(batch_named(stream, seq)):
                files = app.manifest(stream, manifest).files_of("quarantine")
            if files:
                yield seq, files


def rows_at(places: pa.Table, read: Callable[[int], pa.Table]) -> pa.Table:
    """Return the rows at some places, in the order of the places. Each group of rows is read once.

    Args:
        places: The columns `group`, which `read` takes, and `row`, the number of the row in the group.
    """
    # An empty part first: without places, the result is an empty table with all columns.
    parts = [(QUARANTINE.empty_table(), pa.array([], pa.int64()))]
    order = pa.array(range(places.num_rows), pa.int64())
    # Group by group, and not in the order of places, so that each group is read once.
    for group in pc.unique(places["group"]).to_pylist():
        chosen = pc.equal(places["group"], group)
        parts.append((read(group).take(places["row"].filter(chosen)), order.filter(chosen)))
    rows = pa.concat_tables([rows for rows, _ in parts])
    return rows.take(pc.sort_indices(pa.chunked_array([numbers for _, numbers in parts])))
