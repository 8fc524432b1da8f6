"""Read quarantine by filters and in pieces: memory holds one row group at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate.app.manifests import batch_named, needed_by
from tidegate.app.root import App
from tidegate.errors import SettingsInvalid
from tidegate.formats.reasons import Reason
from tidegate.lake.manifest import DataFile
from tidegate.lake.quarantine_files import QUARANTINE, RowCondition, RowGroup, row_groups
from tidegate.ledger import Stream


@dataclass(frozen=True)
class QuarantineFilter:
    """A filter of quarantined records; a record must meet all conditions that are given.

    Args:
        reasons: Names of `formats.reasons.Reason`; empty for any.
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

    def __post_init__(self) -> None:
        """Refuse a reason that does not exist."""
        reasons = [str(reason) for reason in Reason]
        unknown = sorted(set(map(str, self.reasons)) - set(reasons))
        if unknown:
            raise SettingsInvalid(
                f"Quarantine has no reason {', '.join(unknown)}", f"Its reasons are: {', '.join(reasons)}."
            )

    @property
    def condition(self) -> RowCondition:
        """The condition on each row."""
        return RowCondition(
            frozenset(map(str, self.reasons)),
            frozenset(self.topics),
            frozenset(self.partitions),
            self.since_ms,
            self.until_ms,
        )

    def has_batch(self, seq: int) -> bool:
        """Return whether the filter includes records of this batch."""
        return (self.first_batch is None or seq >= self.first_batch) and (
            self.last_batch is None or seq <= self.last_batch
        )


ALL = QuarantineFilter()


def iter_quarantine(app: App, stream: Stream, where: QuarantineFilter = ALL) -> Iterator[pa.Table]:
    """Yield all matching records with all columns of `QUARANTINE`, a row group at a time.

    The oldest batch comes first; the records of a batch are in no particular order.

    Raises LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    for seq, files in quarantine_batches(app, stream, where):
        with needed_by(batch_named(stream, seq)):
            for group in groups_of(app, stream, files, where.condition):
                rows = group.matching(where.condition, QUARANTINE.names).drop_columns(["row"])
                if rows.num_rows:
                    yield rows


def quarantine_batches(
    app: App, stream: Stream, where: QuarantineFilter, newest_first: bool = False
) -> Iterator[tuple[int, Sequence[DataFile]]]:
    """Yield the matching batches whose quarantine exists and is not empty, with its files."""
    expired = app.ledger.expired_quarantine(stream).seq
    committed = app.ledger.committed(stream, max(expired, (where.first_batch or 1) - 1))
    for seq, manifest in reversed(committed) if newest_first else committed:
        if where.has_batch(seq):
            with needed_by(batch_named(stream, seq)):
                files = app.manifest(stream, manifest).files_of("quarantine")
            if files:
                yield seq, files


def groups_of(
    app: App, stream: Stream, files: Sequence[DataFile], condition: RowCondition
) -> Iterator[RowGroup]:
    """Yield the row groups of a batch that can contain matching records."""
    store = app.lake(stream).store
    for file in files:
        yield from row_groups(store, file, condition)
