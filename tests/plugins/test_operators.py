"""Where a batch computes, by the connection's type; and a batch that is one task."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
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
    from tidegate_airflow import tasks

    called: Calls = []

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
        task_id="t", application="x.py", application_args=["orders", "2", "run-1"], durable=False, **more
    )


def test_with_a_connection_to_a_server_the_task_itself_computes(calls: Calls) -> None:
    operator("ComputeOperator").execute(CONTEXT)
    url = "sc://spark.example:15002/;token=word"
    assert calls == [("compute", ("orders", 2, "run-1", url), {"preload": False})]


def test_a_batch_in_one_task_is_the_five_steps_in_their_order(calls: Calls) -> None:
    operator("BatchOperator", pipeline_file="orders_v2").execute(CONTEXT)
    assert [step for step, *_ in calls] == list(STEPS)
    assert calls[0][1] == ("orders_v2", CONTEXT["dag_run"])
    assert {arguments[:3] for _, arguments, _ in calls[1:]} == {("orders", 2, "run-1")}


def test_a_batch_in_one_task_that_has_nothing_to_do_is_skipped(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from tidegate_airflow import tasks

    monkeypatch.setattr(tasks, "plan", lambda *_: False)
    with pytest.raises(AirflowSkipException):
        operator("BatchOperator", pipeline_file="orders").execute(CONTEXT)
    assert calls == []


def test_what_a_pipeline_says_makes_five_tasks_or_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_airflow.factory import pipeline_dags

    text = (REPOSITORY / "include" / "pipelines" / "availability.yaml").read_text()
    (tmp_path / "five.yaml").write_text(text)
    (tmp_path / "one.yaml").write_text(re.sub("(?m)^generation:.*$", "generation: 2\ntasks: one", text))
    monkeypatch.setenv("TIDEGATE_PIPELINES", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    dags = pipeline_dags()
    assert sorted(dags["five"].task_ids) == sorted(STEPS)
    (batch,) = dags["one"].tasks
    assert (batch.task_id, batch.pipeline_file, batch.application_args) == (
        *("batch", "one"),
        ["availability", "2", "{{ run_id }}"],
    )
