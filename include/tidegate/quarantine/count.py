"""Count quarantined records by reason, topic or batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pyarrow as pa

from tidegate.app.manifests import batch_named, needed_by
from tidegate.app.root import App
from tidegate.errors import SettingsInvalid
from tidegate.lake.quarantine_files import reason_codes
from tidegate.ledger import Stream
from tidegate.quarantine.store import ALL, QuarantineFilter, groups_of, quarantine_batches

CountedBy = Literal["reason", "topic", "batch"]

_COUNTED = ("reason", "topic", "timestamp", "seq")
_TOTALS = {
    "records": "sum",
    "first_batch": "min",
    "last_batch": "max",
    "first_timestamp_ms": "min",
    "last_timestamp_ms": "max",
}
"""The totals, and the function that merges two totals of the same group."""


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
    columns = _columns_of(by)
    parts = [_counted_schema(columns).empty_table()]
    for seq, files in quarantine_batches(app, stream, where):
        with needed_by(batch_named(stream, seq)):
            for group in groups_of(app, stream, files, where.condition):
                parts.append(_totals(group.matching(where.condition, _COUNTED), columns))
        # merged after each batch, so memory holds one row per group
        parts = [_merged(parts, columns)]
    counted = _merged(parts, columns).sort_by([(name, "ascending") for name in columns])
    return [_count(row) for row in counted.to_pylist()]


def _columns_of(by: Sequence[str]) -> list[str]:
    unknown = sorted(set(by) - set(get_args(CountedBy)))
    if unknown or not by:
        raise SettingsInvalid(
            f"Quarantine cannot be counted by {', '.join(unknown) or 'nothing'}",
            f"It is counted by: {', '.join(get_args(CountedBy))}.",
        )
    return list(dict.fromkeys(by))


def _counted_schema(columns: Sequence[str]) -> pa.Schema:
    groups = [(name, pa.int64() if name == "batch" else pa.string()) for name in columns]
    return pa.schema([*groups, *((name, pa.int64()) for name in _TOTALS)])


def _totals(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the totals of some rows."""
    parts = {"reason": reason_codes(rows["reason"]), "topic": rows["topic"], "batch": rows["seq"]}
    ones = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    totals = (ones, rows["seq"], rows["seq"], rows["timestamp"], rows["timestamp"])
    table = pa.table([*(parts[name] for name in columns), *totals], schema=_counted_schema(columns))
    return _merged([table], columns)


def _merged(parts: Sequence[pa.Table], columns: Sequence[str]) -> pa.Table:
    """Merge totals of the same group."""
    merged = (
        pa.concat_tables(parts).group_by(list(columns), use_threads=False).aggregate(list(_TOTALS.items()))
    )
    schema = _counted_schema(columns)
    aggregated = [merged[name] for name in columns]
    aggregated += [merged[f"{name}_{function}"] for name, function in _TOTALS.items()]
    return pa.table(aggregated, schema=schema)


def _count(row: dict[str, Any]) -> QuarantineCount:
    groups: dict[str, Any] = dict.fromkeys(get_args(CountedBy))
    return QuarantineCount(**groups | row)
