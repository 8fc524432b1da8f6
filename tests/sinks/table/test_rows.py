"""The rows of a Delta table: what readers without tidegate see of an emission."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.batch.committed import Committed
from tidegate.errors import SinkRefused
from tidegate.sinks.outbox import check_names

ALL = "  - {kind: table, path: out/all, stage: first, with_key: true}"


def published(folder: Path) -> pa.Table:
    """The rows of a batch of an emission and a deletion."""
    committed = Committed(folder, ALL)
    committed.commit(1, {"first": [("abc", 5), ("de", None)]})
    committed.lease.release()
    committed.publish(1)
    path = committed.app.lake(committed.stream).table_sink("out/all")
    return DeltaTable(path).to_pyarrow_table()


def test_time_of_an_emission_is_an_instant(tmp_path: Path) -> None:
    rows = published(tmp_path)
    assert rows.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    times = rows.sort_by("key")["timestamp"].to_pylist()
    assert times == [datetime.fromtimestamp(ms / 1000, timezone.utc) for ms in (0, 1)]


def test_window_is_two_instants(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: table, path: out/all, stage: first}")
    text = committed.file.read_text()
    committed.file.write_text(text.replace("- {name: first,", "- {name: first, window: {tumbling: 1h},", 1))
    committed.commit(1, {"first": [("abc", 5)]})
    committed.lease.release()
    committed.publish(1)
    table = DeltaTable(committed.app.lake(committed.stream).table_sink("out/all")).to_pyarrow_table()
    types = {field.type for field in table.schema if field.name.startswith("window_")}
    assert types == {pa.timestamp("us", "UTC")}


def test_deletion_has_its_key_columns(tmp_path: Path) -> None:
    rows = published(tmp_path).sort_by("key").select(["key", "customerId", "n"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [("abc", 3, 5), ("de", 2, None)]


@pytest.mark.parametrize("emitted", [["n", "Reason"], ["id", "ID"]])
def test_name_with_two_meanings_is_refused(emitted: list[str]) -> None:
    """Columns that only Spark knows are checked before the batch is decided."""
    with pytest.raises(SinkRefused, match=f"The column {emitted[1]} is emitted to the table of table:t"):
        check_names("table of table:t", ["key", "reason"], emitted)
