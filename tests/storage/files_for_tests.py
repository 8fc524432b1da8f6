"""State files, and the columns that identify their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidegate.storage.datafile import RowWriter
from tidegate.storage.layout import attempt_name
from tidegate.storage.manifest import DataFile
from tidegate.storage.store import Store

SCHEMA = pa.schema(
    [
        pa.field("hash", pa.int64()),
        pa.field("key", pa.string()),
        pa.field("window_start", pa.int64()),
        pa.field("window_end", pa.int64()),
        pa.field("value", pa.struct([pa.field("n", pa.int64())])),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("due_at", pa.int64()),
        pa.field("live", pa.bool_()),
        pa.field("updated_seq", pa.int64()),
    ]
)


def row(
    hash_: int, seq: int, due_at: int | None = None, window: int | None = None, live: bool = True
) -> dict[str, Any]:
    return {
        "hash": hash_,
        "key": f"k{hash_}",
        "window_start": window,
        "window_end": None if window is None else window + 10,
        "value": {"n": seq * 1000 + hash_},
        "topic": "t",
        "partition": 0,
        "due_at": due_at,
        "live": live,
        "updated_seq": seq,
    }


def write(store: Store, seq: int, rows: Sequence[dict[str, Any]], schema: pa.Schema = SCHEMA) -> DataFile:
    ordered = sorted(rows, key=lambda row: (row["hash"], row["window_start"] or -1))
    with RowWriter(store, f"s/{attempt_name(seq, 1)}/{seq}.parquet", "state", "s") as file:
        for start in range(0, len(ordered), 3):
            file.write(pa.RecordBatch.from_pylist(ordered[start : start + 3], schema))
    assert file.file is not None
    return file.file
