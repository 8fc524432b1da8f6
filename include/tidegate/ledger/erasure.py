"""Erase keys in the ledger: point to rewritten files, remove samples, and let no text of a key stay behind.

The functions run inside of a transaction that holds the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Table, and_, func, insert, select, update

from tidegate.errors import Halted
from tidegate.ledger import schema
from tidegate.ledger.facts import Erasure, Rewritten
from tidegate.ledger.records import ManifestRef, Stream
from tidegate.ledger.rows import columns_of, in_stream, manifest_out, rows_of, stream_key

SAMPLE_ERASED = "its samples were erased"
"""The note of a result of a quality suite that has lost its samples."""
_TEXTS = (
    (schema.failures, ("what", "fix")),
    (schema.recoveries, ("cause", "effects", "outcome")),
    (schema.resolutions, ("reason",)),
    (schema.quality, ("observed", "error", "note")),
)
"""The columns with texts that may quote a record."""
_NAMED = (
    (schema.commits, "attempt"),
    *((table, "name") for table in (schema.attempts, schema.snapshots, schema.resolutions)),
)
"""The tables with manifests, and their columns with the names of these."""


def count_rewrites(connection: Connection, stream: Stream) -> int:
    """Return how many erasures have rewritten files."""
    table = schema.erasures
    is_rewritten = and_(in_stream(table, stream), table.c.rewritten_at.is_not(None))
    return connection.execute(select(func.count()).select_from(table).where(is_rewritten)).scalar_one()


def require_no_erasure(stream: Stream, number: int | None) -> None:
    """Raise Halted if an erasure of the stream is not finished."""
    if number is not None:
        raise Halted(
            f"Erasure {number} of {stream} is not finished",
            f"Let it go on: tidegate erase {stream.pipeline} --yes.",
        )


def add_erasure(connection: Connection, erasure: Erasure, now: float) -> None:
    """Store an erasure that begins."""
    row = columns_of(erasure) | stream_key(erasure.stream) | {"decided_at": now}
    # PostgreSQL refuses a text that is longer than its column.
    row["decided_by"] = erasure.decided_by[:300]
    connection.execute(insert(schema.erasures).values(row))


def point_to(connection: Connection, stream: Stream, number: int, rewritten: Rewritten, now: float) -> None:
    """Let readers find the rewritten files from now on, and store what was rewritten."""
    for name, manifest in rewritten.manifests.items():
        for table, column in _NAMED:
            is_named = and_(in_stream(table, stream), table.c[column] == name)
            connection.execute(update(table).where(is_named).values(manifest_out(manifest, column)))
    _point_replays(connection, stream, rewritten)
    values = asdict(rewritten)
    del values["manifests"]
    _set(connection, stream, number, rewritten_at=now, **values)


def _point_replays(connection: Connection, stream: Stream, rewritten: Rewritten) -> None:
    """Plans of replays have the manifest of a resolution inside of a JSON text."""
    plans = schema.plans
    replays = connection.execute(rows_of(plans, stream, plans.c.replay.is_not(None))).all()
    for plan in replays:
        manifest: ManifestRef | None = rewritten.manifests.get(plan.replay.name)
        if manifest is not None:
            is_plan = and_(in_stream(plans, stream), plans.c.seq == plan.seq)
            connection.execute(update(plans).where(is_plan).values(replay=manifest))


def remove_samples(
    connection: Connection, stream: Stream, batches: Collection[int], redacted: Callable[[str], str]
) -> None:
    """Remove the samples of quality results of some batches, and redact texts that may quote a record.

    Args:
        connection: a transaction that holds the epoch.
        stream: the stream.
        batches: batches whose samples may be of an erased key.
        redacted: returns a text without erased keys.
    """
    quality = schema.quality
    emptied: dict[str, Any] = {
        "failing": (),
        "observed": "",
        "error": None,
        "note": SAMPLE_ERASED,
        "page": None,
    }
    for seq in batches:
        is_result = and_(in_stream(quality, stream), quality.c.seq == seq)
        connection.execute(update(quality).where(is_result).values(emptied))
    for table, columns in _TEXTS:
        # Those of a generation that was dropped stay in the ledger, and no erasure of its own comes.
        is_of_pipeline = table.c.pipeline == stream.pipeline
        is_listed = is_of_pipeline if table is schema.recoveries else in_stream(table, stream)
        for row in connection.execute(select(table).where(is_listed)).all():
            _redact(connection, table, row, columns, redacted)


def _redact(
    connection: Connection, table: Table, row: Any, columns: Collection[str], redacted: Callable[[str], str]
) -> None:
    before = {name: row._mapping[name] for name in columns}
    after = {name: _without(value, redacted) for name, value in before.items()}
    if after != before:
        is_row = and_(*(column == row._mapping[column.name] for column in table.primary_key))
        connection.execute(update(table).where(is_row).values(after))


def _without(value: Any, redacted: Callable[[str], str]) -> Any:
    if value is None or isinstance(value, str):
        return value if value is None else redacted(value)
    return tuple(map(redacted, value))


def forget_keys(connection: Connection, erasure: Erasure) -> None:
    """Complete the certificate of an erasure, and remove the keys themselves from it."""
    certificate = {"sinks": dict(erasure.sinks), "remarks": erasure.remarks}
    _set(connection, erasure.stream, erasure.number, request=None, **certificate)


def end_erasure(connection: Connection, stream: Stream, number: int, now: float) -> None:
    """Note that the bytes of the keys are removed."""
    _set(connection, stream, number, finished_at=now)


def _set(connection: Connection, stream: Stream, number: int, **columns: Any) -> None:
    table = schema.erasures
    is_erasure = and_(in_stream(table, stream), table.c.number == number)
    connection.execute(update(table).where(is_erasure).values(columns))
