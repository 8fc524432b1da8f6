"""Outboxes in memory as the tables that a promotion by net differences folds, and its own as one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

import pyarrow as pa

from tests.simulator.emissions import Emission
from tidegate.storage import DataFile

_SCHEMA = pa.schema(
    [
        ("hash", pa.int64()),
        ("key", pa.string()),
        ("ordinal", pa.int64()),
        ("reason", pa.string()),
        ("value", pa.struct([("value", pa.string())])),
        ("key_columns", pa.struct([("key", pa.string())])),
        ("payload", pa.string()),
        ("window_start", pa.int64()),
        ("window_end", pa.int64()),
        ("timestamp", pa.int64()),
        ("at", pa.int64()),
        ("source", pa.string()),
        ("seq", pa.int64()),
    ]
)


def outboxes(app: Any, feed: Any, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the outboxes in place of `generations.outputs._outboxes`."""
    for seq, manifest in app.ledger.committed(feed.stream, feed.seqs.start - 1):
        rows = app.places.lake.outbox.get((feed.stage, manifest.name), [])
        if seq in feed.seqs and rows:
            yield app.places.world.effect("lake.outbox", lambda rows=rows, seq=seq: _table(rows, seq))


def _table(rows: Sequence[Emission], seq: int) -> pa.Table:
    return pa.Table.from_pylist([_row(row, number, seq) for number, row in enumerate(rows)], _SCHEMA)


def _row(emission: Emission, ordinal: int, seq: int) -> dict[str, Any]:
    return {
        "hash": crc32(emission.key.encode()),
        "key": emission.key,
        "ordinal": ordinal,
        "reason": "new",
        "value": None if emission.payload is None else {"value": emission.payload},
        "key_columns": {"key": emission.key},
        "payload": emission.payload,
        "timestamp": emission.timestamp,
        "at": emission.timestamp,
        "source": emission.source,
        "seq": seq,
    }


def written(lake: Any, stage: str, name: str, rows: pa.Table) -> DataFile:
    """Write the rows in place of `generations.net._written`, in several effects."""
    from tests.simulator.app import here

    places = here()
    emissions = [
        Emission(row["key"], row["payload"], row["timestamp"], row["source"]) for row in rows.to_pylist()
    ]
    for part in (emissions[:1], emissions[1:]):
        places.world.effect(
            "spark.write",
            lambda part=part: places.lake.outbox.setdefault((stage, name), []).extend(part),
        )
    count = len(emissions)
    return DataFile("outbox", stage, name, count, count, "", 1, "")
