"""What tasks do besides the steps: databases from connections, many streams."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from tests.batch.aged import STAGE, Aged
from tests.batch.committed import Committed
from tests.generations.two_generations import filled
from tests.storage.tables_for_tests import opened
from tidegate.app.tables import shared_table
from tidegate.ledger import Stream

pytestmark = pytest.mark.airflow


def test_publishing_finds_its_database_in_airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow import tasks

    sinks = "  - {kind: sql, table: seconds, connection: reports}"
    committed = Committed(tmp_path, sinks, f"sqlite:///{tmp_path / 'reports.db'}")
    committed.commit(1, {"first": [], "second": [("1", 11)]})
    committed.lease.release()
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_LEDGER", f"sqlite:///{tmp_path}/l.db")
    monkeypatch.setenv("TIDEGATE_SQL_REPORTS", "")
    connection = {"conn_type": "sqlite", "host": str(tmp_path / "reports.db")}
    monkeypatch.setenv("AIRFLOW_CONN_TIDEGATE_SQL_REPORTS", json.dumps(connection))
    tasks.publish("visitors", 1, "run-1", {})
    assert committed.query("SELECT key, m FROM seconds") == [("1", 11)]


def test_publish_task_says_that_its_batch_is_withheld(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_airflow import tasks

    beside = filled(tmp_path / "home")
    for name, value in beside.old.environment.items():
        monkeypatch.setenv(name, value)
    plan = beside.new.app.ledger.plan(beside.new.stream, 3)
    assert plan is not None
    text = tasks.publish("visitors", 2, plan.run_id, {})
    assert text.startswith("visitors/2 is not in charge: batch 3 is withheld.")


def test_compact_task_folds_due_state_despite_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow import tasks

    aged = Aged(tmp_path)
    for seq in (1, 2):
        aged.batch(seq)
    aged.app.ledger.acquire(aged.stream, "run-3")
    for name, value in aged.environment.items():
        monkeypatch.setenv(name, value)
    assert tasks.compact("visitors", 1).startswith("visitors/1 batch 2: not due")
    monkeypatch.setattr("tidegate.storage.compaction.MOST_CHANGELOGS", 1)
    assert tasks.compact("visitors", 1) == "visitors/1 batch 2: compacted, 2 rows are 2"


def test_clean_task_updates_tables_and_survives_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from tidegate_airflow import tasks

    aged = Aged(tmp_path)
    aged.batch(1)
    for name, value in aged.environment.items():
        monkeypatch.setenv(name, value)
    foreign = aged.lake.store.uri("earlier/g1/first/state")
    write_deltalake(foreign, pa.table({"key": ["k"]}))
    plan = replace(aged.planned(1), stream=Stream("earlier", 1))
    aged.app.ledger.acquire(plan.stream, "test").add_plan(plan)
    with pytest.raises(AirflowFailException, match="was not made by tidegate"):
        tasks.clean()
    assert opened(shared_table(aged.app, aged.stream, "state", STAGE)).file_uris()


@pytest.mark.parametrize("task", ["clean", "publish"])
def test_tables_find_their_iceberg_catalog_in_airflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    from tidegate_airflow import tasks

    aged = Aged(tmp_path, tables="iceberg:lake")
    aged.batch(1)
    catalog = {"conn_type": "sqlite", "host": f"{tmp_path}/catalog.db", "extra": {"warehouse": "/unused"}}
    monkeypatch.setenv("AIRFLOW_CONN_TIDEGATE_ICEBERG_LAKE", json.dumps(catalog))
    for name, value in aged.environment.items():
        monkeypatch.setenv(name, value)
    if task == "clean":
        tasks.clean()
    else:
        tasks.publish("visitors", 1, "run-1", {})
    table = SqlCatalog("default", uri=f"sqlite:///{tmp_path}/catalog.db").load_table(
        "visitors_g1.second_state"
    )
    assert table.scan().to_arrow().num_rows == 1
    assert "TIDEGATE_ICEBERG_LAKE" not in os.environ
