"""Reading back what the demo's second pipeline has in its table and in its state, without Kafka and Spark."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pyarrow as pa

from tests.batch.committed import Committed
from tidegate.kernel.keys import key_hashes
from tidegate_dev.demo.samples import read_batches

EVENTS = pa.struct([("events", pa.list_(pa.struct([("visitorId", pa.string())])))])
STATE = pa.schema(
    [
        ("key", pa.string()),
        ("value", EVENTS),
        ("live", pa.bool_()),
        ("window_start", pa.int64()),
        ("window_end", pa.int64()),
        ("updated_seq", pa.int64()),
    ]
)


def test_batches_are_ordered_and_waiting_comes_last(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: sql, table: newest}", f"sqlite:///{tmp_path}/sink.db")
    first, second, waits = ([{"visitorId": name}] for name in "abc")
    held_back = {"7": {"events": waits}, "8": {"events": waits}, "9": None}
    state = pa.Table.from_pylist(
        [
            {"key": key, "value": value, "live": value is not None, "updated_seq": 1}
            for key, value in held_back.items()
        ],
        STATE,
    )
    hashed = state.append_column("hash", key_hashes(state["key"].combine_chunks()))
    committed.states = {"second": hashed.sort_by("hash")}
    committed.commit(1, {"second": [("7", 1)]})
    with sqlite3.connect(tmp_path / "sink.db") as table:
        table.execute(
            'CREATE TABLE visitor_batches ("customerId" BIGINT, batch BIGINT, ordinal BIGINT, events TEXT)'
        )
        rows = [(7, 2, 0, json.dumps(second)), (7, 1, 1, json.dumps(first))]
        table.executemany("INSERT INTO visitor_batches VALUES (?, ?, ?, ?)", rows)
    assert read_batches(committed.app, committed.stream) == {
        "7": [
            {"batch": 1, "events": first},
            {"batch": 2, "events": second},
            {"batch": None, "events": waits},
        ],
        "8": [{"batch": None, "events": waits}],
    }
