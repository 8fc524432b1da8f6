"""What Spark SQL sees of a table for others, by Delta's own connector, without tidegate.

Connectors before 4.3 fail at a checkpoint on Spark from 4.1.2 on (delta-io/delta#6867).
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks import peers
from tests.conftest import REPOSITORY
from tests.storage import spark_reader
from tests.storage.files_for_tests import row
from tests.storage.tables_for_tests import (
    VALUES,
    WIDENED,
    batch,
    catch_up,
    change_of,
    newest_rows_sql,
    put_several_rows_of_an_entry,
    put_widened_rows,
    put_wider_rows,
    shared_table,
    written,
)
from tidegate.storage.delta_tables import SharedDeltaTable
from tidegate.storage.store import Store
from tidegate_dev.jars import ensure_jars

pytestmark = [pytest.mark.spark, pytest.mark.long]

Rows = list[dict[str, Any]]


def _put_an_attempt_that_is_not_committed(table: SharedDeltaTable) -> None:
    written(table, "attempt-9", [row(9, 9)])
    catch_up(table, [batch(table, 1), batch(table, 2)])


def _put_so_many_batches_that_there_is_a_checkpoint(table: SharedDeltaTable) -> None:
    catch_up(table, [batch(table, seq) for seq in range(1, 32)])


def _put_values_of_every_type(table: SharedDeltaTable) -> None:
    schema = pa.schema([pa.field("value", pa.struct([pa.field(name, VALUES[name][0]) for name in VALUES]))])
    rows = [{"value": {name: VALUES[name][1] for name in VALUES}}]
    catch_up(table, [change_of(1, written(table, "a1", rows, schema))])


TABLES: dict[str, tuple[Callable[[SharedDeltaTable], object], str]] = {
    "uncommitted": (
        _put_an_attempt_that_is_not_committed,
        "SELECT hash, updated_seq FROM {table} ORDER BY hash",
    ),
    "checkpoint": (
        _put_so_many_batches_that_there_is_a_checkpoint,
        "SELECT hash, updated_seq FROM {table} ORDER BY hash",
    ),
    "several": (
        put_several_rows_of_an_entry,
        "SELECT hash, window_start, updated_seq FROM ({view}) ORDER BY hash, window_start",
    ),
    "wider": (put_wider_rows, "SELECT value.more, bytes FROM {table} ORDER BY hash"),
    "widened": (put_widened_rows, "SELECT value FROM {table} ORDER BY hash"),
    "values": (_put_values_of_every_type, "SELECT value FROM {table}"),
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """Return Spark's answers by table."""
    folder = tmp_path_factory.mktemp("spark sql")
    home = Path(os.environ.get("TIDEGATE_HOME", REPOSITORY / ".tidegate"))
    jars = ensure_jars("spark", home, peers.SPARK_LOCK)
    queries = []
    for name, (fill, query) in TABLES.items():
        table = shared_table(Store(str(folder / name)))
        fill(table)
        source = f"delta.`{table.store.uri(table.folder)}`"
        queries.append(query.format(table=source, view=newest_rows_sql(source).replace('"', "`")))
    asked, results = folder / "queries.json", folder / "results"
    asked.write_text(json.dumps(queries))
    arguments = [",".join(map(str, jars)), str(asked), str(results)]
    command = [sys.executable, "-m", spark_reader.__name__, *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    answers: list[Rows] = pickle.loads(results.read_bytes())
    return dict(zip(TABLES, answers, strict=True))


def test_spark_sees_rows_of_committed_batches_only(seen: dict[str, Rows]) -> None:
    assert seen["uncommitted"] == [{"hash": seq, "updated_seq": seq} for seq in (1, 2)]


def test_it_goes_by_the_logs_checkpoints(seen: dict[str, Rows]) -> None:
    assert seen["checkpoint"] == [{"hash": seq, "updated_seq": seq} for seq in range(1, 32)]


def test_page_view_has_one_row_per_live_entry(seen: dict[str, Rows]) -> None:
    rows = [tuple(row.values()) for row in seen["several"]]
    assert rows == [(1, None, 2), (3, 0, 1), (3, 10, 2)]


def test_added_columns_are_null_for_spark(seen: dict[str, Rows]) -> None:
    assert [tuple(row.values()) for row in seen["wider"]] == [(None, None), ("x", 7)]


def test_widened_columns_are_wider_for_spark(seen: dict[str, Rows]) -> None:
    expected = [{**value, "pairs": dict(value["pairs"])} for value in WIDENED]
    assert [row["value"] for row in seen["widened"]] == expected


@pytest.mark.parametrize("name", VALUES)
def test_spark_reads_values_of_every_type(seen: dict[str, Rows], name: str) -> None:
    (read,) = seen["values"]
    _, value = VALUES[name]
    expected = dict(value) if name == "pairs" else value
    if isinstance(expected, datetime):
        expected = expected.replace(tzinfo=None)  # PySpark's instants are naive, in the process's zone
    assert read["value"][name] == expected
