"""A backfill whose runs are active all at once, beside a scheduled run: as if each had been alone."""

from __future__ import annotations

import json
import sqlite3
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka import KafkaProducer
from tests.e2e.kills import FIRST, Line, epoch_ms
from tests.e2e.processes import until
from tests.faults.history import create_topics
from tidegate.app import App
from tidegate.batch import Trigger, run_batch
from tidegate.errors import SetupFailed
from tidegate.ledger import Plan, Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

DAG, TWIN, TOPIC = "backlog", "backlog_in_order", "hours"
HOURS, PER_HOUR = 12, 6
IDLE_HOUR = 5
_LOCKED_S = 60.0
# one interval's records are one batch: whoever comes too early leaves the rest to runs that may not read it
PIPELINE = f"""\
pipeline: {{name}}
{{schedule}}source:
  topics: [{TOPIC}]
  format: json
  columns: "shop string, quantity int"
  key: [shop]
  max_records: {PER_HOUR}
stages:
  - {{{{name: bundle, select: {{{{quantity: quantity}}}}, reduce: collect,
     emit: {{{{on: threshold, count: 3, after: 90m}}}}}}}}
sinks:
  - {{{{kind: sql, table: {{name}}, with_key: true}}}}
"""


def test_ten_run_backfill_equals_the_ordered_one(stack: Line, spark: SparkSession) -> None:
    _send_hours(stack)
    _write_pipeline(stack.scene.folder / "pipelines", DAG, 'schedule: "0 * * * *"\n')
    stack.airflow.wait_dag(DAG)
    _backfill(stack)
    stack.airflow.unpause(DAG)
    until(lambda: _active(stack) >= 10, "ten runs of the backfill are active at once")
    runs = _in_order(_ended_runs(stack))
    assert [run["run_type"] for run in runs[: HOURS + 1]] == ["backfill"] * HOURS + ["scheduled"]
    assert "waits for backfill__" in _plan_logs(stack, runs[HOURS]["dag_run_id"])
    twin = _play_in_order(stack, runs, spark)
    batches = _plans(App.from_environment(stack.scene.environment), DAG)
    assert [batch.run_id for batch in batches] == [batch.run_id for batch in _plans(twin, TWIN)]
    assert [batch.ranges for batch in batches] == [batch.ranges for batch in _plans(twin, TWIN)]
    assert sum(batch.span for batch in batches) == (HOURS - 1) * PER_HOUR
    assert _rows(stack.scene.folder, DAG) == _rows(stack.scene.folder, TWIN) != []


def _send_hours(stack: Line) -> None:
    create_topics(stack.scene.servers, TOPIC)
    producer = KafkaProducer(bootstrap_servers=stack.scene.servers, acks="all")
    try:
        for number in range(HOURS * PER_HOUR):
            hour, minute = divmod(number, PER_HOUR)
            if hour == IDLE_HOUR:
                continue
            at = FIRST + timedelta(hours=hour, minutes=9 * minute)
            body = json.dumps({"shop": f"shop {number % 5}", "quantity": number}).encode()
            producer.send(TOPIC, partition=number % 5 % 2, value=body, timestamp_ms=epoch_ms(at))
        producer.flush()
    finally:
        producer.close()


def _write_pipeline(folder: Path, name: str, schedule: str = "") -> None:
    (folder / f"{name}.yaml").write_text(PIPELINE.format(name=name, schedule=schedule))


def _backfill(stack: Line) -> None:
    """Airflow's own, with its default of active runs; it begins when the DAG is no longer paused."""
    body = {
        "dag_id": DAG,
        "from_date": FIRST.isoformat(),
        "to_date": (FIRST + timedelta(hours=HOURS - 1)).isoformat(),
        "max_active_runs": 10,
    }
    deadline = time.monotonic() + _LOCKED_S
    while True:
        try:
            stack.airflow.api("POST", "/backfills", body)
            return
        except SetupFailed as error:  # its SQLite refuses a write that meets another one: it is asked again
            if "Database is locked" not in str(error) or time.monotonic() > deadline:
                raise


def _runs(stack: Line) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = stack.airflow.api("GET", f"/dags/{DAG}/dagRuns?limit=100")["dag_runs"]
    return runs


def _active(stack: Line) -> int:
    return sum((run["run_type"], run["state"]) == ("backfill", "running") for run in _runs(stack))


def _ended_runs(stack: Line) -> list[dict[str, Any]]:
    """Return all runs when all have succeeded."""

    def succeeded() -> list[dict[str, Any]]:
        runs = _runs(stack)
        failed = [run["dag_run_id"] for run in runs if run["state"] == "failed"]
        assert not failed, _plan_logs(stack, failed[0])
        return runs if all(run["state"] == "success" for run in runs) else []

    return until(succeeded, "all runs have succeeded", 5400)


def _in_order(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(runs, key=lambda run: str(run["data_interval_end"]))


def _plan_logs(stack: Line, run_id: str) -> str:
    """Return the logs of all tries of a run's plan task."""
    folder = stack.airflow.log.parent.parent / "airflow" / "logs" / f"dag_id={DAG}" / f"run_id={run_id}"
    return "".join(path.read_text() for path in sorted((folder / "task_id=plan").glob("*.log")))


def _play_in_order(stack: Line, runs: list[dict[str, Any]], spark: SparkSession) -> App:
    """Play the same triggers in one process, one after the other, into a pipeline that Airflow does not
    see.
    """
    folder = stack.scene.folder / "in_order"
    folder.mkdir()
    _write_pipeline(folder, TWIN)
    app = App.from_environment(stack.scene.environment | {"TIDEGATE_PIPELINES": str(folder)})
    for run in runs:
        end_ms = epoch_ms(datetime.fromisoformat(run["data_interval_end"]))
        backfill = run["run_type"] == "backfill"
        now_ms = epoch_ms(datetime.fromisoformat(run["start_date"]))
        trigger = Trigger(run["dag_run_id"], end_ms, end_ms, now_ms, backfill=backfill)
        run_batch(app, app.pipeline(TWIN), trigger, lambda _: spark)
    return app


def _plans(app: App, name: str) -> list[Plan]:
    """Return the plans of the committed batches in order."""
    stream = Stream(name, 1)
    plans = [app.ledger.plan(stream, seq) for seq, _ in app.ledger.committed(stream)]
    return [plan for plan in plans if plan is not None]


def _rows(folder: Path, table: str) -> list[tuple[Any, ...]]:
    """Return the rows in the order in which they came, without the name of the stream."""
    connection = sqlite3.connect(folder / "sink.db")
    try:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        columns = ", ".join(f'"{name}"' for name in names if name != "stream")
        return list(connection.execute(f"SELECT {columns} FROM {table} ORDER BY rowid"))
    finally:
        connection.close()
