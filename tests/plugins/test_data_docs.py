"""Validate in a task, publish to Data Docs, and call back with the verdict."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.quality.suite import Severity
from tidegate.quality.verdict import ExpectationResult, Verdict


@pytest.mark.heavy
def test_validate_task_links_to_data_docs() -> None:
    from tidegate_airflow.operators import DataDocsLink

    run = SimpleNamespace(dag_id="availability", run_id="a/b")
    link = DataDocsLink().get_link(None, ti_key=run)
    assert link == "/plugin/tidegate/tidegate/pipelines/availability/quality/a%2Fb"


@pytest.mark.parametrize(("severity", "calls"), [(Severity.WARNING, 1), (Severity.INFO, 0)])
def test_verdict_reaches_the_quality_callback(
    severity: Severity, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_airflow import operators
    from tidegate_airflow.operators import ValidateOperator

    calls_made: list[Any] = []
    monkeypatch.setattr(operators, "call", lambda name, context: calls_made.append((name, context)))
    task = ValidateOperator(task_id="validate", python_callable=print, on_quality="shop.alerts:quality")
    result = ExpectationResult(1, "expect_column_to_exist", ("n",), severity, False)
    verdict = Verdict("levels", (result,))
    task.note_verdict(verdict, {"run_id": "r"})
    assert task.verdicts == [verdict]
    assert len(calls_made) == calls
    assert calls_made == [] or calls_made[0] == (
        "shop.alerts:quality",
        {"run_id": "r", "verdict": verdict, "cause": verdict.summary},
    )
