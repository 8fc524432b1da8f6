"""Deciding on records in quarantine: which of those that are asked for are open, and writing them down.

What is decided of is a file of the lake: a plan that replays names it, so that the batch is a pure function
of it, and nobody decides of a record twice. Whoever calls holds the stream's lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.lease import leased
from tidegate.app.root import App
from tidegate.errors import SettingsInvalid
from tidegate.lake.layout import resolution_name
from tidegate.lake.manifest import manifest_of
from tidegate.lake.quarantine_files import IDENTITY, QUARANTINE
from tidegate.lake.writer import RowWriter
from tidegate.ledger import LeasedLedger, Resolution, Stream
from tidegate.quarantine.resolutions import OPEN, ResolvedRecords
from tidegate.quarantine.sorting import sorted_by_position

Unfit = Callable[[pa.Table], pa.ChunkedArray]
"""Of rows of a quarantine, which of them cannot be decided of so."""


@dataclass(frozen=True)
class ResolutionRequest:
    """The records to replay or discard, by whom and why.

    `rows` gives tables with the columns of `QUARANTINE`, in any order; a replay uses the rows
    as they are. `is_listed`: a person has listed the records one by one, so each must be in quarantine, and
    be listed once.
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
            parts.append(f"{self.resolved} were replayed or discarded before")
        if self.unfit:
            parts.append(f"{self.unfit} are no records, but what a stage emitted, or cannot come again")
        return f" ({'; '.join(parts)})" if parts else ""


def written_resolution(
    app: App, lease: LeasedLedger, request: ResolutionRequest, seq: int | None, unfit: Unfit | None = None
) -> tuple[Resolution | None, Skipped]:
    """The open records that are asked for, as a file that a manifest names; None where there are none.

    `seq`: the batch that replays them; None: they are discarded, so that only what they are known by is
    written. Nothing counts before the ledger has the resolution. Raises SettingsInvalid where a list has a
    record that is not in quarantine, or twice; LakeDamaged, LakeUnavailable.
    """
    stream = lease.stream
    resolved = ResolvedRecords(app, stream, lease)
    number = max(resolved.resolutions, default=0) + 1
    skipped, lake, name = Skipped(), app.lake(stream), resolution_name(number)
    chosen = _open_rows(resolved, request, unfit, skipped)
    path = f"{lake.files('quarantine', '', name)}/records.parquet"
    batches: list[int] = []
    with RowWriter(lake.store, path, "quarantine") as writer:
        for rows in _each_once(sorted_by_position(chosen), request.is_listed):
            batches = sorted({*batches, *pc.unique(rows["seq"]).to_pylist()})
            for batch in (rows if seq is not None else _positions_only(rows)).combine_chunks().to_batches():
                writer.write(batch)
    if writer.file is None:
        return None, skipped
    manifest = app.write_manifest(stream, manifest_of(name, seq or 0, [writer.file]))
    by = (request.decided_by, request.reason)
    return Resolution(stream, number, seq, manifest, batches[0], batches[-1], *by), skipped


def discard_records(app: App, stream: Stream, request: ResolutionRequest) -> tuple[int, Skipped]:
    """Discard the open records that are asked for; says how many, and how many were decided of before.

    Nothing is deleted: they stay readable as long as quarantine is kept. Raises LeaseHeld while a run is at
    work, Fenced, and what `written_resolution` raises.
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


def _each_once(tables: Iterable[pa.Table], is_listed: bool) -> Iterator[pa.Table]:
    """Sorted rows without those that repeat the one before. Raises SettingsInvalid where a list does."""
    last: tuple[object, ...] | None = None
    for rows in tables:
        keys = [tuple(row.values()) for row in rows.select(IDENTITY).to_pylist()]
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
