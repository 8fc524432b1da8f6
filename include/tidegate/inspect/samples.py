"""A few quarantined records of a stream, cut to a size that a page can show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.app.damage import batch_named, needed_by
from tidegate.app.root import App
from tidegate.inspect.quarantine_history import Decisions
from tidegate.lake.datafile import data_errors, open_data
from tidegate.lake.manifest import DataFile
from tidegate.lake.quarantine import IDENTITY, QUARANTINE
from tidegate.lake.store import Store
from tidegate.ledger import ManifestRef, Stream

MAX_CHARACTERS = 300
_COLUMNS = ("topic", "partition", "offset", "part", "seq", "timestamp", "reason", "key", "value")

_IDENTIFIED = pa.schema([QUARANTINE.field(name) for name in IDENTITY])


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


def quarantine_samples(
    app: App, stream: Stream, manifests: Iterable[tuple[int, ManifestRef]], limit: int
) -> list[QuarantineSample]:
    """Return the first `limit` rows of these batches' quarantine, batch by batch.

    No more files are opened than necessary. Raises LakeDamaged, LakeUnavailable.
    """
    store, samples = app.lake(stream).store, list[QuarantineSample]()
    decisions = Decisions(app, stream)
    for seq, manifest in manifests:
        if len(samples) >= limit:
            break
        with needed_by(batch_named(stream, seq)):
            files = app.manifest(stream, manifest).files_of("quarantine", "")
            rows = list(_first_rows(store, files, limit - len(samples)))
            decided = decisions.decisions_on(pa.Table.from_pylist(rows, _IDENTIFIED))
            samples += [_sample(seq, row, str(decision)) for row, decision in zip(rows, decided, strict=True)]
    return samples


def _first_rows(store: Store, files: Sequence[DataFile], limit: int) -> Iterator[dict[str, Any]]:
    for file in files:
        if limit <= 0:
            return
        with open_data(store, file) as parquet, data_errors(store, file):
            columns = [name for name in _COLUMNS if name in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(batch_size=limit, columns=columns):
                rows = batch.slice(0, limit).to_pylist()
                limit -= len(rows)
                yield from rows
                if limit <= 0:
                    return


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
