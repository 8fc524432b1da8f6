"""The alerts on a batch that puts too many records into quarantine, or whose emissions are out too late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.model.files import GOOD

pytestmark = pytest.mark.airflow

CAUSE = "Batch 1 of visitors/1 got 100 records and put 3 into quarantine: malformed 3"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    from tidegate_airflow import operators

    noted: list[Any] = []
    monkeypatch.setattr(operators, "call", lambda name, context: noted.append((name, context)))
    return noted


def test_quarantine_callback_gets_context_and_cause(calls: list[Any]) -> None:
    from tidegate_airflow.operators import ValidateOperator

    def validate(report: Any, alert: Any) -> None:
        alert(CAUSE)

    task = ValidateOperator(
        task_id="validate", python_callable=validate, on_quarantine="shop.alerts:page", op_args=[]
    )
    task.execute({"run_id": "r"})
    ((function, context),) = calls
    assert (function, context["run_id"], context["cause"]) == ("shop.alerts:page", "r", CAUSE)


def test_freshness_callback_gets_context_and_cause(calls: list[Any]) -> None:
    from tidegate_airflow.operators import PublishOperator

    def publish(alert: Any) -> bool:
        alert(CAUSE)
        return True

    task = PublishOperator(task_id="publish", python_callable=publish, on_freshness="shop.alerts:page")
    task.execute({"run_id": "r"})
    ((function, context),) = calls
    assert (function, context["run_id"], context["cause"]) == ("shop.alerts:page", "r", CAUSE)


def test_nobody_is_called_where_no_function_is_named(calls: list[Any]) -> None:
    from tidegate_airflow.operators import ValidateOperator

    ValidateOperator(task_id="validate", python_callable=print).note_alert(None, {}, CAUSE)
    assert calls == []


def test_a_function_that_fails_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.operators import BatchOperator

    task = BatchOperator(task_id="batch", pipeline_file="p", on_quarantine="nobody.has:this")
    task.reports({})["alert"](CAUSE)


@pytest.mark.parametrize(
    ("callback", "tasks", "ids"),
    [
        ("on_quarantine", "five", {"validate", "cover"}),
        ("on_quarantine", "one", {"batch"}),
        ("on_freshness", "five", {"publish", "cover"}),
        ("on_freshness", "one", {"batch"}),
    ],
)
def test_every_task_that_alerts_knows_whom_to_call(
    callback: str, tasks: str, ids: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_airflow.factory import pipeline_dags

    text = GOOD.split("quality:")[0] + f"tasks: {tasks}\nairflow: {{{callback}: 'shop.alerts:page'}}\n"
    (tmp_path / "levels.yaml").write_text(text)
    monkeypatch.setenv("TIDEGATE_PIPELINES", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "shop")
    dag = pipeline_dags()["levels"]
    task_ids = {task.task_id for task in dag.tasks if getattr(task, callback, None) == "shop.alerts:page"}
    assert ids <= task_ids
