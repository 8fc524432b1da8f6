"""Two of Airflow's runs of one pipeline at once."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.kills import EFFECTS, FIRST, WAVES, Line, go_on, play_calmly
from tests.e2e.processes import until
from tests.faults.databases import sqlite_files
from tests.faults.history import SINGLE, Scene, create_topics, read_topic
from tidegate import inspect
from tidegate.app import App
from tidegate.errors import SetupFailed
from tidegate.ledger import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

HOURLY = "hourly"
HOURS = 3
# it differs where the same records were read in another number of batches
OF_THE_BATCH = {"stream", "batch", "ordinal"}


def test_concurrent_backfill_and_scheduled_run_double_nothing(stack: Line, spark: SparkSession) -> None:
    folder, killed = stack.scene.folder.with_name("twin"), stack.scene
    twin = Scene(folder, killed.servers, "source", sqlite_files(folder), SINGLE)
    twin.create()
    play_calmly(twin, lambda _: spark, WAVES - 1)
    _add_scheduled(stack, twin)
    stack.arm(EFFECTS["compute"])
    _backfill(stack)
    stack.airflow.unpause(HOURLY)
    stands = stack.stand(EFFECTS["compute"])
    until(lambda: _waiting(stack), "the other run waits for the one that computes")
    go_on(stands)
    kinds = sorted(_ended(stack))
    assert kinds.count("backfill") == HOURS
    assert "scheduled" in kinds
    servers = stack.scene.servers
    assert read_topic(servers, f"levels-{HOURLY}") == read_topic(servers, twin.levels)
    assert _rows(stack.scene.folder, HOURLY) == _rows(twin.folder, "levels")
    assert _state(stack.scene, HOURLY) == _state(twin, twin.name)


def _add_scheduled(stack: Line, twin: Scene) -> None:
    """The twin's pipeline as Airflow's, every hour, with topic and table of its own."""
    create_topics(stack.scene.servers, f"levels-{HOURLY}")
    text = (twin.folder / "pipelines" / f"{twin.name}.yaml").read_text()
    text = text.replace(twin.name, HOURLY).replace("table: levels", f"table: {HOURLY}")
    path = stack.scene.folder / "pipelines" / f"{HOURLY}.yaml"
    path.write_text(text.replace("source:\n", 'schedule: "0 * * * *"\nsource:\n', 1))
    stack.airflow.wait_dag(HOURLY)


def _backfill(stack: Line) -> None:
    """Airflow's own, of the first hours of the input; it begins when the DAG is no longer paused."""
    body = {
        "dag_id": HOURLY,
        "from_date": FIRST.isoformat(),
        "to_date": (FIRST + timedelta(hours=HOURS - 1)).isoformat(),
        "max_active_runs": 1,
    }
    until(lambda: _is_created(stack, body), "the backfill")


def _is_created(stack: Line, body: dict[str, Any]) -> bool:
    """Create a backfill. Returns False while another process writes into Airflow's SQLite file, which
    Airflow reports.
    """
    try:
        stack.airflow.api("POST", "/backfills", body)
    except SetupFailed as error:
        if "Database is locked" in str(error):
            return False
        raise
    return True


def _waiting(stack: Line) -> bool:
    instances = stack.airflow.api("GET", f"/dags/{HOURLY}/dagRuns/~/taskInstances?limit=100")[
        "task_instances"
    ]
    return any(
        (instance["task_id"], instance["state"]) == ("plan", "up_for_reschedule") for instance in instances
    )


def _ended(stack: Line) -> list[str]:
    """Return the kinds of all runs when all have succeeded."""

    def runs() -> list[dict[str, Any]]:
        dag_runs: list[dict[str, Any]] = stack.airflow.api("GET", f"/dags/{HOURLY}/dagRuns")["dag_runs"]
        assert not any(run["state"] == "failed" for run in dag_runs)
        return dag_runs if all(run["state"] == "success" for run in dag_runs) else []

    return [run["run_type"] for run in until(runs, "all runs have succeeded")]


def _rows(folder: Path, table: str) -> dict[str, list[tuple[Any, ...]]]:
    """Key -> rows in order."""
    connection = sqlite3.connect(folder / "sink.db")
    try:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        columns = ", ".join(f'"{name}"' for name in names if name not in OF_THE_BATCH)
        rows_by_key: dict[str, list[tuple[Any, ...]]] = {}
        for key, *row in connection.execute(f'SELECT "key", {columns} FROM {table} ORDER BY rowid'):
            rows_by_key.setdefault(key, []).append(tuple(row))
        return rows_by_key
    finally:
        connection.close()


def _state(scene: Scene, name: str) -> dict[str, Any]:
    app = App.from_environment(scene.environment)
    rows = inspect.read_state(app, Stream(name, 1), stage="level").to_pylist()
    return {row["key"]: row["value"] for row in rows}
