"""Where a batch computes, by the connection's type; and a batch that is one task."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.airflow

STEPS = ("plan", "compute", "validate", "commit", "publish")
CONTEXT = {"dag_run": SimpleNamespace(run_id="run-1")}
Calls = list[tuple[str, Any, Any]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The steps that were called, with what they were given; none of them does anything."""
    from tidegate_airflow import operators, tasks

    called: Calls = []
    monkeypatch.setattr(operators, "event_emitted", lambda *_: nullcontext())
    monkeypatch.setattr(operators, "has_event", lambda *_: False)

    def noted(step: str) -> Callable[..., bool]:
        def call(*arguments: Any, **options: Any) -> bool:
            called.append((step, arguments, options))
            return True

        return call

    for step in STEPS:
        monkeypatch.setattr(tasks, step, noted(step))
    server = {"conn_type": "spark_connect", "host": "spark.example", "port": 15002, "password": "word"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(server))
    return called


def operator(name: str, **more: Any) -> Any:
    from tidegate_airflow import operators

    return getattr(operators, name)(
        task_id="t",
        application="x.py",
        application_args=["orders", "2", "run-1"],
        conn_id="spark_default",
        name="tidegate-orders-g2",
        durable=False,
        **more,
    )


def test_task_with_a_server_connection_computes_itself(calls: Calls) -> None:
    operator("ComputeOperator").execute(CONTEXT)
    (step, arguments, _) = calls[0]
    assert (step, *arguments[:3]) == ("compute", "orders", 2, "run-1")
    assert arguments[3].master == "sc://spark.example:15002/;token=word"
    assert len(calls) == 1


def test_task_with_a_local_master_is_the_driver(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.submission import TaskSpark

    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    settings = {"driver_memory": "2g", "conf": {"spark.ui.enabled": "true"}}
    operator("ComputeOperator", **settings).execute(CONTEXT)
    conf = {"spark.app.name": "tidegate-orders-g2", "spark.ui.enabled": "true"}
    assert calls == [("compute", ("orders", 2, "run-1", TaskSpark("local[2]", "2g", conf)), {})]


@pytest.mark.parametrize(
    ("connection", "master"),
    [
        ({"conn_type": "spark", "host": "local"}, "local"),
        ({"conn_type": "spark", "host": "local[*]", "extra": "{}"}, "local[*]"),
        ({"conn_type": "spark", "host": "local[4, 2]"}, "local[4, 2]"),
        ({"conn_type": "spark_connect", "host": "spark", "port": 15002}, "sc://spark:15002/"),
        ({"conn_type": "spark", "host": "local[*]", "extra": {"deploy-mode": "client"}}, None),
        ({"conn_type": "spark", "host": "local", "port": 7077}, None),
        ({"conn_type": "spark", "host": "localhost"}, None),
        ({"conn_type": "spark", "host": "local-cluster[2,1,1024]"}, None),
        ({"conn_type": "spark", "host": "spark://master", "port": 7077}, None),
        ({"conn_type": "spark", "host": "yarn"}, None),
        ({"conn_type": "spark"}, None),
        (None, None),
    ],
)
def test_connection_decides_whether_spark_submit_is_needed(
    connection: dict[str, Any] | None, master: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_airflow.connections import task_master

    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    if connection is not None:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    assert task_master("spark_default") == master


def test_single_task_run_finishes_each_batch_in_turn(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow import tasks

    def planned(*arguments: Any) -> Iterator[str]:
        for run_id in ("run-1", "run-1#2"):
            calls.append(("plan", arguments, {}))
            yield run_id

    monkeypatch.setattr(tasks, "planned_batches", planned)
    operator("BatchOperator", pipeline_file="orders_v2").execute(CONTEXT)
    assert [step for step, *_ in calls] == 2 * list(STEPS)
    assert calls[0][1] == ("orders_v2", "orders", 2, CONTEXT, 1)
    batches = [arguments[:3] for step, arguments, _ in calls if step != "plan"]
    assert batches == 4 * [("orders", 2, "run-1")] + 4 * [("orders", 2, "run-1#2")]


def test_spark_submit_gets_the_batch_of_its_run(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from tidegate_airflow import tasks

    submitted: list[Any] = []
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", "spark://master:7077")
    monkeypatch.setattr(tasks, "planned_batches", lambda *_: iter(("run-1", "run-1#2")))
    monkeypatch.setattr(tasks, "computed_before", lambda *_: None)
    monkeypatch.setattr(tasks, "export_for_driver", lambda *_: None)
    monkeypatch.setattr(SparkSubmitHook, "submit", lambda hook, _: submitted.append(hook._application_args))
    operator("BatchOperator", pipeline_file="orders_v2").execute(CONTEXT)
    assert submitted == [["orders", "2", "run-1"], ["orders", "2", "run-1#2"]]


def test_single_task_batch_without_work_is_skipped(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from tidegate_airflow import tasks

    monkeypatch.setattr(tasks, "planned_batches", lambda *_: iter(()))
    with pytest.raises(AirflowSkipException):
        operator("BatchOperator", pipeline_file="orders").execute(CONTEXT)
    assert operator("BatchOperator", pipeline_file="orders", first=2).execute(CONTEXT) is None
    assert calls == []


def test_pipeline_chooses_five_tasks_or_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.factory import pipeline_dags

    text = (REPOSITORY / "include" / "pipelines" / "availability.yaml").read_text()
    (tmp_path / "five.yaml").write_text(text)
    (tmp_path / "one.yaml").write_text(re.sub("(?m)^generation:.*$", "generation: 2\ntasks: one", text))
    monkeypatch.setenv("TIDEGATE_PIPELINES", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    dags = pipeline_dags()
    assert [task.task_id for task in dags["five"].topological_sort()] == [*STEPS, "cover"]
    assert dags["five"].get_task("cover").first == 2
    (batch,) = dags["one"].tasks
    assert (batch.task_id, batch.pipeline_file, batch.application_args) == (
        *("batch", "one"),
        ["availability", "2", "{{ ledger_run_id(run_id, dag_run.run_after) }}"],
    )


def test_killed_task_gives_its_lease_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate.signals import Terminated
    from tidegate_airflow.factory import pipeline_dags

    monkeypatch.setattr("signal.signal", lambda *_: None)
    submit = "airflow.providers.apache.spark.operators.spark_submit.SparkSubmitOperator.on_kill"
    monkeypatch.setattr(submit, lambda _: None)
    dag = pipeline_dags()["availability"]
    assert len(dag.tasks) == 6
    for task in dag.tasks:
        with pytest.raises(Terminated):
            task.on_kill()
