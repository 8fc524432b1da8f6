"""The history of each key in a Delta table, by the view that docs/sinks.md shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sinks.table.appending import append
from tests.storage.tables_for_tests import duck

ROOT = Path(__file__).parents[3]
HISTORIES = json.loads((ROOT / "tests" / "conformance" / "dbt" / "histories.json").read_text())
SECOND_US = 1_000_000


@pytest.mark.parametrize("case", HISTORIES)
def test_view_equals_a_snapshot_of_dbt(tmp_path: Path, case: Mapping[str, Any]) -> None:
    table = str(tmp_path / "prices")
    for seq, changes in enumerate(case["steps"], start=1):
        keys, prices, instants = zip(*changes, strict=True)
        times = pa.array([at * SECOND_US for at in instants], pa.timestamp("us", "UTC"))
        columns = {"key": keys, "price": pa.array(prices, pa.int64()), "timestamp": times}
        rows = pa.table({**columns, "seq": pa.array([seq] * len(keys), pa.int64())})
        append(table, "prices", seq, rows.to_reader(), seq - 1)
    _, view = (ROOT / "docs" / "sinks.md").read_text().split("CREATE VIEW history AS\n")
    query = view.partition("```")[0].replace("…/out/prices", table)
    columns = "key, price, epoch(valid_from)::BIGINT, epoch(valid_to)::BIGINT, is_current, deleted"
    versions = [
        (
            row["key"],
            None if row["deleted"] else row["n"],
            row["valid_from"],
            row["valid_to"],
            row["valid_to"] is None and not row["deleted"],
            row["deleted"],
        )
        for row in case["versions"]
    ]
    assert sorted(duck(f"SELECT {columns} FROM ({query})"), key=str) == sorted(versions, key=str)
