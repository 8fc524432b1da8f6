"""What a task that has failed for good says: the cause, and what to do."""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.batch.committed import Committed
from tests.plugins.runs import CREATED, CREATED_JSON, SUFFIX
from tidegate.errors import BufferFull, OffsetsLost, QualityFailed

pytestmark = pytest.mark.airflow

NOTED = "Batch 1 of visitors/1 failed in compute: BufferFull: The buffer is full. Raise the bound."


@pytest.fixture
def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Committed:
    """A batch of run-1 whose step `compute` the ledger has noted as failed."""
    committed = Committed(tmp_path, "  - {kind: table}")
    committed.run_suffix = SUFFIX
    committed.compute(1, {"first": [("1", 10)]})
    committed.lease.note_failure(1, "compute", BufferFull("The buffer is full.", "Raise the bound."))
    committed.lease.release()
    for name, value in committed.environment.items():
        monkeypatch.setenv(name, value)
    return committed


def context(error: BaseException | None, run_id: str = "run-1") -> dict[str, Any]:
    return {
        "exception": error,
        "dag_run": SimpleNamespace(run_id=run_id, run_after=CREATED),
        "dag": SimpleNamespace(dag_id="visitors_v2"),
    }


def message(error: BaseException | None, run_id: str = "run-1") -> str:
    from tidegate_airflow.failures import failure_message

    return failure_message(context(error, run_id), "visitors", 1)


def test_what_the_task_says_itself_counts(failed: Committed) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    error = QualityFailed("Batch 1 does not pass", "Correct the data")
    assert message(error) == "Batch 1 does not pass. Correct the data"
    mapped = AirflowFailException(str(error))
    mapped.__cause__ = error
    assert message(mapped) == str(error)


@pytest.mark.parametrize("error", [TimeoutError("after a day"), None], ids=["a timeout", "a killed process"])
def test_failure_is_attributed_to_its_batch_and_step(failed: Committed, error: BaseException | None) -> None:
    assert message(error) == NOTED


def test_unnoted_failure_is_reported_as_it_is(failed: Committed) -> None:
    assert message(TimeoutError("after a day"), "run-2").startswith("TimeoutError: after a day.")


def test_unreachable_ledger_does_not_stop_failure_reports(
    failed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_LEDGER", "sqlite:////no/such/folder/l.db")
    assert message(TimeoutError("after a day")).startswith("TimeoutError: after a day.")


def test_last_log_line_names_cause_and_remedy(failed: Committed, caplog: pytest.LogCaptureFixture) -> None:
    from tidegate_airflow.failures import log_failure

    with caplog.at_level(logging.ERROR):
        log_failure(context(TimeoutError("after a day")), "visitors", 1)
    assert caplog.messages[-1] == f"visitors_v2, run run-1: {NOTED}"


def test_every_task_reports_failures_and_retries_with_backoff(
    failed: Committed,
) -> None:
    from tidegate_airflow.factory import pipeline_dags

    dag = pipeline_dags()["visitors"]
    for task in dag.tasks:
        callback = task.on_failure_callback[-1]  # the log's last line
        assert (callback.func.__name__, callback.keywords) == (
            "log_failure",
            {"pipeline": "visitors", "generation": 1},
        )
        assert task.execution_timeout is not None
        assert task.retry_exponential_backoff > 1
        assert task.max_retry_delay is not None
    hours = {task.task_id: task.execution_timeout.total_seconds() / 3600 for task in dag.tasks}
    assert hours == {"plan": 1, "compute": 24, "validate": 1, "commit": 1, "publish": 24, "cover": 24}


def test_missed_deadline_is_reported_with_current_work(
    failed: Committed, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow.sdk import DeadlineReference

    from tidegate_airflow import failures
    from tidegate_airflow.factory import pipeline_dags

    assert pipeline_dags()["visitors"].deadline is None
    failed.file.write_text(failed.file.read_text().replace("source:", "deadline: 30m\nsource:", 1))
    (alert,) = pipeline_dags()["visitors"].deadline
    assert (alert.reference, alert.interval) == (DeadlineReference.DAGRUN_QUEUED_AT, timedelta(minutes=30))
    assert alert.callback.path == "tidegate_airflow.failures.log_missed_deadline"
    for run_id, doing in (("run-1", NOTED), ("run-2", "It has planned no batch yet")):
        run = {"dag_id": "visitors_v2", "dag_run_id": run_id, "run_after": CREATED_JSON}
        with caplog.at_level(logging.ERROR):
            failures.log_missed_deadline({"dag_run": run}, **alert.callback.kwargs)
        assert f"visitors_v2, run {run_id} has missed its deadline. {doing}" in caplog.messages[-1]


def test_deadline_function_gets_the_run_and_its_work(
    failed: Committed, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_airflow import failures
    from tidegate_airflow.factory import pipeline_dags

    (modules / "alerts.py").write_text("heard = []\ndef page(context): heard.append(context['cause'])\n")
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "alerts")
    text = "deadline: 30m\nairflow: {on_missed_deadline: 'alerts:page'}\nsource:"
    failed.file.write_text(failed.file.read_text().replace("source:", text, 1))
    (alert,) = pipeline_dags()["visitors"].deadline
    run = {"dag_id": "visitors", "dag_run_id": "run-1", "run_after": CREATED_JSON}
    failures.log_missed_deadline({"dag_run": run}, **alert.callback.kwargs)
    assert sys.modules["alerts"].heard == [NOTED]


def test_deadline_is_reported_without_a_ledger_connection(
    failed: Committed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowSecretsBackendAccessDenied

    from tidegate_airflow import failures

    def refuse(name: str) -> None:
        raise AirflowSecretsBackendAccessDenied(name)

    monkeypatch.setattr(BaseHook, "get_connection", refuse)
    context = {"dag_run": {"dag_id": "visitors_v2", "dag_run_id": "run-1", "run_after": CREATED_JSON}}
    failures.log_missed_deadline(context, "visitors", 1)
    assert caplog.messages[-1].endswith(f"run-1 has missed its deadline. {NOTED}")
    monkeypatch.delenv("TIDEGATE_LEDGER")
    failures.log_missed_deadline(context, "visitors", 1)
    assert "run-1 has missed its deadline. tidegate cannot find out what it is doing" in caplog.messages[-1]
    assert "Set TIDEGATE_LEDGER where its executor runs" in caplog.messages[-1]


def test_failed_plan_is_the_cause_of_its_run(failed: Committed) -> None:
    from tidegate_airflow.failures import run_progress

    lease = failed.app.ledger.acquire(failed.stream, "run-2")
    lease.note_failure(1, "plan", OffsetsLost("Offsets were deleted", "Accept the gap."))
    lease.release()
    cause = "Batch 1 of visitors/1 failed in plan: OffsetsLost: Offsets were deleted. Accept the gap."
    assert message(None, "run-2") == cause
    assert run_progress("visitors", 1, f"run-2{SUFFIX}") == cause
