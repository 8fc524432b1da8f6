"""What checks see: the values, all emissions, or the state rows of a stage, or the columns of a sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.model.files import made
from tidegate.model.quality import QualityCheck
from tidegate.quality.audit import AuditedRows, audited_rows
from tidegate.storage.datafile import RowWriter
from tidegate.storage.schema import outbox_schema, state_schema
from tidegate.storage.store import Store

VALUE = pa.struct([("price", pa.float64()), ("name", pa.string())])
OUTBOX = outbox_schema(VALUE, pa.struct([("id", pa.int64())]), {})
EMISSIONS = [
    {"key": "a", "timestamp": 1, "value": {"price": 1.5, "name": None}, "key_columns": {"id": 1}},
    {"key": "b", "timestamp": 2, "value": None, "key_columns": {"id": 2}},
]
STATE = state_schema([pa.field("value", VALUE), pa.field("emitted", VALUE)])
SELECT = {"select": {"price": "price", "name": "name"}}


def seen(folder: Path, rows: list[dict[str, Any]], schema: pa.Schema, **check: Any) -> AuditedRows:
    sinks = [{"kind": "table", "path": "plain"}, {"kind": "kafka", "topic": "out", "with_key": True}]
    pipeline = made(SELECT, sinks=sinks)
    store = Store(str(folder))
    with RowWriter(store, "o/1.parquet", "outbox", "s0") as file:
        for row in rows:
            file.write(pa.RecordBatch.from_pylist([row], schema))
    files = [] if file.file is None else [file.file]
    return audited_rows(pipeline, QualityCheck(suite="s", **check), store, files)


def test_values_are_without_deletions(tmp_path: Path) -> None:
    rows = seen(tmp_path, EMISSIONS, OUTBOX)
    assert rows.table().to_pylist() == [{"key": "a", "timestamp": 1, "id": 1, "price": 1.5, "name": None}]
    assert rows.table(["name"]).to_pylist() == [{"name": None}]
    assert rows.table(["key"]).num_rows == 1


def test_emissions_have_deletions_and_say_which_they_are(tmp_path: Path) -> None:
    rows = seen(tmp_path, EMISSIONS, OUTBOX, of="emissions").table(["key", "price", "deleted"]).to_pylist()
    assert rows == [
        {"key": "a", "price": 1.5, "deleted": False},
        {"key": "b", "price": None, "deleted": True},
    ]


def test_sink_rows_have_key_columns_only_if_sent(tmp_path: Path) -> None:
    names = [
        seen(tmp_path, EMISSIONS, OUTBOX, sink=sink).schema.names for sink in ("table:plain", "kafka:out")
    ]
    assert names == [["key", "timestamp", "price", "name"], ["key", "timestamp", "id", "price", "name"]]


def test_state_rows_show_buffered_and_emitted_values(tmp_path: Path) -> None:
    row = {"hash": 1, "key": "a", "live": True, "value": {"price": 2.0, "name": "x"}, "emitted": None}
    (shown,) = seen(tmp_path, [row], STATE, of="state").table().to_pylist()
    assert shown["key"] == "a"
    assert (shown["live"], shown["value.price"], shown["value.name"]) == (True, 2.0, "x")
    assert (shown["emitted.price"], shown["emitted.name"]) == (None, None)


def test_missing_files_give_the_declared_columns(tmp_path: Path) -> None:
    empty = seen(tmp_path, [], OUTBOX)
    assert (empty.table().num_rows, empty.schema.names) == (0, ["key", "timestamp", "id", "price", "name"])
    assert [empty.schema.field(name).type for name in ("id", "price", "name")] == [
        pa.int64(),
        pa.float64(),
        pa.string(),
    ]
