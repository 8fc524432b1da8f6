"""Summarize the quarantine of some batches: the number of records by reason, and how many of them are
open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow.compute as pc

from tidegate.app.damage import batch_named, needed_by
from tidegate.app.root import App
from tidegate.inspect.quarantine_history import Decisions
from tidegate.lake.manifest import DataFile
from tidegate.lake.quarantine import IDENTITY, RowCondition, reason_codes, row_groups
from tidegate.ledger import ManifestRef, Stream

MOST_RECORDS = 200_000
"""The most records that are counted while somebody waits for a page."""


@dataclass(frozen=True)
class ReasonSummary:
    """The number of records with a reason. `open` of them are neither replayed nor discarded."""

    reason: str
    records: int
    open: int


def quarantine_summary(
    app: App, stream: Stream, manifests: Iterable[tuple[int, ManifestRef]]
) -> list[ReasonSummary] | None:
    """Return the summary of these batches, the most frequent reason first; None for more than MOST_RECORDS
    records.

    Neither keys nor values are read. Raises LakeDamaged, LakeUnavailable.
    """
    files: list[DataFile] = []
    for seq, manifest in manifests:
        with needed_by(batch_named(stream, seq)):
            files += app.manifest(stream, manifest).files_of("quarantine")
    if sum(file.rows for file in files) > MOST_RECORDS:
        return None
    store, decisions = app.lake(stream).store, Decisions(app, stream)
    records, opened = Counter[str](), Counter[str]()
    for file in files:
        for group in row_groups(store, file, RowCondition()):
            rows = group.read([*IDENTITY, "reason"])
            codes = reason_codes(rows["reason"])
            records.update(codes.to_pylist())
            opened.update(pc.filter(codes, decisions.open_mask(rows)).to_pylist())
    return [ReasonSummary(reason, count, opened[reason]) for reason, count in records.most_common()]
