"""Quarantine by conditions and in pieces: however much there is, memory has a row group of it at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate.app.damage import batch_named, needed_by
from tidegate.app.root import App
from tidegate.errors import SettingsInvalid
from tidegate.formats.reasons import Reason
from tidegate.lake.manifest import DataFile
from tidegate.lake.quarantine import QUARANTINE, RowCondition, RowGroup, row_groups
from tidegate.ledger import Stream


@dataclass(frozen=True)
class QuarantineFilter:
    """Which records of a quarantine are asked for: those that meet all that is given.

    `reasons`: names of `formats.reasons.Reason`; `first_batch`, `last_batch`: both included; `since_ms`,
    `until_ms`: the records' timestamps (epoch ms), the end not included: a record without a timestamp is in
    no such interval. Empty, or None: any. Raises SettingsInvalid for a reason that there is not.
    """

    reasons: Collection[str] = ()
    topics: Collection[str] = ()
    partitions: Collection[int] = ()
    first_batch: int | None = None
    last_batch: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def __post_init__(self) -> None:
        """Refuse a reason that is none."""
        known = [str(reason) for reason in Reason]
        unknown = sorted(set(map(str, self.reasons)) - set(known))
        if unknown:
            raise SettingsInvalid(
                f"Quarantine knows no reason {', '.join(unknown)}", f"Its reasons are: {', '.join(known)}."
            )

    @property
    def condition(self) -> RowCondition:
        """What is asked of each row."""
        return RowCondition(
            frozenset(map(str, self.reasons)),
            frozenset(self.topics),
            frozenset(self.partitions),
            self.since_ms,
            self.until_ms,
        )

    def has_batch(self, seq: int) -> bool:
        """Whether records of this batch are asked for."""
        return (self.first_batch is None or seq >= self.first_batch) and (
            self.last_batch is None or seq <= self.last_batch
        )


ALL = QuarantineFilter()


def iter_quarantine(app: App, stream: Stream, where: QuarantineFilter = ALL) -> Iterator[pa.Table]:
    """All records, whole: the oldest batch first, those of a batch in no particular order. Each table has at
    most a row group's rows, with the columns of `lake.quarantine.QUARANTINE`. Raises as `list_quarantine`.
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
    """The batches that are asked for and have something in quarantine, with its files: as far as it is
    kept.
    """
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
    """The row groups of a batch that may have records that are asked for."""
    store = app.lake(stream).store
    for file in files:
        yield from row_groups(store, file, condition)
