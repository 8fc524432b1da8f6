"""Airflow's own notifiers, and classes of them, as what a pipeline file wants to be called."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.model.files import GOOD, problems
from tests.plugins.runs import CREATED, CREATED_JSON
from tidegate.errors import QualityFailed, SettingsInvalid
from tidegate.quality.suite import Severity
from tidegate.quality.verdict import ExpectationResult, Verdict
from tidegate.yaml.load import load_defaults, parse_pipeline

pytestmark = pytest.mark.airflow

ALERTS = """\
from airflow.sdk import BaseNotifier

sent = []

class Pager(BaseNotifier):
    template_fields = ("text", "fields")

    def __init__(self, text="{{ cause }}", fields=None, channel="all", **others):
        super().__init__(**others)
        self.text, self.fields, self.channel = text, fields, channel

    def notify(self, context):
        sent.append((self.channel, self.text, self.fields))

pager = Pager(text="{{ dag.dag_id }}: {{ cause }}")

class Plain:
    pass
"""


@pytest.fixture
def alerts(modules: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the user's own, and what its notifiers have sent: channel, text, fields."""
    (modules / "alerts.py").write_text(ALERTS)
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "alerts")
    return lambda: sys.modules["alerts"].sent if "alerts" in sys.modules else None


@pytest.fixture
def context() -> dict[str, Any]:
    """Return the part of a task's context that templates use."""
    from airflow.sdk import DAG

    return {
        "dag": DAG("orders"),
        "run_id": "run-1",
        "dag_run": SimpleNamespace(run_id="run-1", run_after=CREATED),
    }


def verdict(value: str) -> Verdict:
    result = ExpectationResult(1, "expect_column_to_exist", ("n",), Severity.WARNING, False, observed=value)
    return Verdict("levels", (result,))


def validating(on_quality: Any) -> Any:
    from tidegate_airflow.operators import ValidateOperator

    return ValidateOperator(task_id="validate", python_callable=print, on_quality=on_quality)


def test_each_verdict_gets_its_own_rendered_message(alerts: Any, context: dict[str, Any]) -> None:
    task, verdicts = validating("alerts:pager"), [verdict("1"), verdict("2")]
    for noted in verdicts:
        task.note_verdict(noted, context)
    assert alerts() == [("all", f"orders: {verdict.summary}", None) for verdict in verdicts]
    assert "verdict" not in context


def test_notifier_class_is_built_anew_per_call(alerts: Any, context: dict[str, Any]) -> None:
    fields = {"title": "{{ verdict.title }}", "run": ["{{ run_id }}"]}
    arguments = {"text": "not met", "fields": fields, "channel": "#{{ run_id }}"}
    for on_quality in ("alerts:Pager", {"notifier": "alerts:Pager", "with": arguments}):
        validating(on_quality).note_verdict(verdict("1"), context)
    first, second = alerts()
    assert first == ("all", verdict("1").summary, None)
    assert second == ("#{{ run_id }}", "not met", {"title": "levels", "run": ["run-1"]}), "as the class says"


def test_what_a_notifier_raises_stops_no_batch(
    alerts: Any, context: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    broken = {"notifier": "alerts:Pager", "with": {"text": "{{ 1 / 0 }}"}}
    validating(broken).note_verdict(verdict("1"), context)
    assert "alerts:Pager failed on: levels" in capsys.readouterr().out
    assert alerts() == []


def test_a_class_that_is_no_notifier_is_refused(alerts: Any, context: dict[str, Any]) -> None:
    from tidegate_airflow.notify import call

    with pytest.raises(SettingsInvalid, match="alerts:Plain is not a notifier of Airflow"):
        call({"notifier": "alerts:Plain", "with": {}}, context)


PAGER = '{notifier: "alerts:Pager", with: {text: "{{ dag_run.run_id or dag_run.dag_run_id }}: %s"}}'


@pytest.fixture
def dag(alerts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the DAG of a file in which a notifier is called for every event."""
    from tidegate_airflow import pipeline_dags

    names = ("task_failure", "task_retry", "run_failure", "missed_deadline", "quality")
    callbacks = "".join(f"  on_{name}: {PAGER % '{{ cause }}'}\n" for name in names)
    callbacks += f"  on_run_success: {PAGER % 'done'}\n"
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "levels.yaml").write_text(f"{GOOD}deadline: 1h\nairflow:\n{callbacks}")
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    return pipeline_dags(tmp_path / "pipelines")["levels"]


def test_every_callback_of_a_file_can_be_notifier(alerts: Any, dag: Any, context: dict[str, Any]) -> None:
    assert alerts() is None, "imported when it is called"
    task, failed = dag.get_task("validate"), QualityFailed("Batch 1 does not pass", "Correct the data")
    failures = (task.on_failure_callback[-1], task.on_retry_callback[-1], dag.on_failure_callback)
    for callback in failures:
        callback({**context, "exception": failed})
    dag.on_success_callback(context)
    cause = "run-1: Batch 1 does not pass. Correct the data"
    assert [text for _, text, _ in alerts()] == [cause, cause, cause, "run-1: done"]
    task.note_verdict(verdict("1"), context)
    assert alerts()[-1][1] == f"run-1: {verdict('1').summary}"


def test_stored_notifier_reports_a_missed_deadline(alerts: Any, dag: Any) -> None:
    from tidegate_airflow.failures import log_missed_deadline

    (alert,) = dag.deadline
    stored = json.loads(json.dumps(alert.callback.serialize()))
    log_missed_deadline(
        {"dag_run": {"dag_id": "levels", "dag_run_id": "run-1", "run_after": CREATED_JSON}},
        **stored["kwargs"],
    )
    ((_, text, _),) = alerts()
    assert text.startswith("run-1: ")
    assert len(text) > len("run-1: ")


def test_pipeline_replaces_a_default_notifier_whole(alerts: Any, tmp_path: Path) -> None:
    (tmp_path / "defaults.yaml").write_text(
        f"airflow: {{on_quality: {PAGER % 'x'}, on_task_retry: 'alerts:pager'}}"
    )
    defaults = load_defaults(tmp_path).airflow
    own = parse_pipeline(f"{GOOD}airflow: {{on_quality: {{notifier: 'alerts:Pager'}}}}\n", "p.yaml").airflow
    both = own.over(defaults)
    assert both.on_quality == own.on_quality
    assert both.on_task_retry == "alerts:pager"


@pytest.mark.parametrize(
    ("written", "field", "expected"),
    [
        ("{notifier: 'os:Pager'}", "on_quality.notifier", "TIDEGATE_PYTHON_MODULES=os"),
        ("{notifier: Pager}", "on_quality.notifier", "`module:Class`"),
        ("{with: {}}", "on_quality.notifier", "`notifier` is missing"),
        ("{notifier: 'alerts:Pager', args: {}}", "on_quality.args", "unknown field `args`"),
        ("{notifier: 'alerts:Pager', with: [1]}", "on_quality.with", "a mapping"),
    ],
)
def test_invalid_notifier_is_reported_with_line_and_fix(
    alerts: Any, written: str, field: str, expected: str
) -> None:
    ((line, actual_field, message, fix),) = problems(f"{GOOD}airflow: {{on_quality: {written}}}\n")
    assert (line, actual_field) == (len(GOOD.splitlines()) + 1, f"airflow.{field}")
    assert expected in f"{message}. {fix}"
