"""Reading back what the demo's second pipeline has in its table and in its state, without Kafka and Spark."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from tests.steps.committed import Committed
from tidegate.demo.tables import read_batches

EVENTS = pa.struct([("events", pa.list_(pa.struct([("visitorId", pa.string())])))])


def test_batches_come_in_order_and_what_waits_comes_last(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: sql, table: newest}", f"sqlite:///{tmp_path}/sink.db")
    committed.commit(1, {"second": [("7", 1)]})
    first, second, waits = ([{"visitorId": name}] for name in "abc")
    with sqlite3.connect(tmp_path / "sink.db") as table:
        table.execute(
            'CREATE TABLE visitor_batches ("customerId" BIGINT, batch BIGINT, ordinal BIGINT, events TEXT)'
        )
        rows = [(7, 2, 0, json.dumps(second)), (7, 1, 1, json.dumps(first))]
        table.executemany("INSERT INTO visitor_batches VALUES (?, ?, ?, ?)", rows)
    state = {
        "key": ["7", "8", "9"],
        "value": pa.array([{"events": waits}, {"events": waits}, None], EVENTS),
        "live": [True, True, False],
        "updated_seq": [1, 1, 1],
        "attempt": ["a1"] * 3,
    }
    lake = committed.app.lake(committed.stream)
    write_deltalake(lake.state("second"), pa.table(state), partition_by=["attempt"])
    assert read_batches(committed.app, committed.stream) == {
        "7": [
            {"batch": 1, "events": first},
            {"batch": 2, "events": second},
            {"batch": None, "events": waits},
        ],
        "8": [{"batch": None, "events": waits}],
    }
