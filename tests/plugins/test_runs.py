"""A DagRun with an id that was used before is another run, and one that is cleared is the same."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.batch.committed import Committed
from tests.plugins.runs import CREATED, SUFFIX

pytestmark = pytest.mark.airflow

LATER = CREATED + timedelta(days=1)


@pytest.fixture
def committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Committed:
    """Batch 1 of the run run-1 is committed and published."""
    from tidegate_airflow import tasks

    committed = Committed(tmp_path, "  - {kind: sql, table: seconds}", f"sqlite:///{tmp_path}/sink.db")
    committed.run_suffix = SUFFIX
    committed.commit(1, {"first": [("1", 1)], "second": [("1", 1)]})
    committed.publish(1)
    committed.lease.release()
    for name, value in committed.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tasks, "run_ahead", lambda _: None)
    return committed


def context(run_after: datetime = CREATED, run_type: str = "manual", clear_number: int = 0) -> dict[str, Any]:
    from airflow.sdk import DAG

    from tidegate_airflow.triggers import run_params

    run = SimpleNamespace(
        run_id="run-1",
        run_type=run_type,
        run_after=run_after,
        clear_number=clear_number,
        logical_date=None,
        data_interval_start=None,
        data_interval_end=None,
    )
    params = {name: param.resolve() for name, param in run_params().items()}
    return {"dag_run": run, "dag": DAG("visitors", schedule=None), "params": params}


def test_ledger_run_id_includes_the_run_instant() -> None:
    from tidegate_airflow.runs import airflow_run_id, ledger_run_id

    assert ledger_run_id("nightly", CREATED) == f"nightly{SUFFIX}"
    assert ledger_run_id("nightly", CREATED) != ledger_run_id("nightly", LATER)
    in_another_zone = CREATED.astimezone(timezone(timedelta(hours=2)))
    assert ledger_run_id("nightly", in_another_zone) == f"nightly{SUFFIX}"
    for run_id in (f"scheduled__{CREATED.isoformat()}", f"manual__{CREATED.isoformat()}_a1B2"):
        assert ledger_run_id(run_id, CREATED) == run_id  # ids that Airflow makes up have it
    for run_id in ("nightly", "n@x", f"scheduled__{CREATED.isoformat()}"):
        assert airflow_run_id(ledger_run_id(run_id, CREATED)) == run_id
        assert airflow_run_id(f"{ledger_run_id(run_id, CREATED)}#12") == run_id


def test_steps_are_given_the_id_of_the_ledger(committed: Committed) -> None:
    from tidegate_airflow.factory import pipeline_dags

    dag = pipeline_dags()["visitors"]
    task = dag.get_task("validate")
    of_run = {"run_id": "run-1", "dag_run": SimpleNamespace(run_after=CREATED)}
    rendered = task.render_template(task.op_args, of_run | task.get_dag().user_defined_macros)
    assert tuple(rendered) == ("visitors", 1, f"run-1{SUFFIX}")


def test_cleared_run_finds_its_planned_batch(committed: Committed, caplog: pytest.LogCaptureFixture) -> None:
    from tidegate_airflow import tasks

    with caplog.at_level("INFO"):
        assert tasks.plan("visitors", context(clear_number=3))
    assert "batch 1 was planned before" in caplog.text


def test_new_run_with_an_old_id_plans_anew(committed: Committed, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate import batch
    from tidegate.batch import Outcome
    from tidegate_airflow import tasks

    planned: list[str] = []

    def plan_batch(app: Any, pipeline: Any, trigger: Any) -> Outcome:
        planned.append(trigger.run_id)
        return Outcome(None, "nothing new to read")

    monkeypatch.setattr(batch, "plan_batch", plan_batch)
    assert not tasks.plan("visitors", context(LATER))
    (run_id,) = planned
    assert run_id == f"run-1@{LATER.isoformat()}"
    assert committed.app.ledger.run(committed.stream, run_id) is None
    assert committed.app.ledger.run(committed.stream, f"run-1{SUFFIX}") is not None


def test_operator_that_clears_an_old_run_fails(committed: Committed) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from tidegate_airflow import tasks

    again = context(run_type="operator_triggered", clear_number=1)
    with pytest.raises(AirflowFailException, match=r"run-1 is done.*Leave `trigger_run_id` out"):
        tasks.plan("visitors", again)
    with pytest.raises(AirflowFailException, match="run-1 is done"):
        next(tasks.planned_batches("visitors", committed.stream.pipeline, 1, again))


def test_cleared_failed_operator_run_continues(committed: Committed) -> None:
    from tidegate_airflow import tasks

    committed.lease = committed.app.ledger.acquire(committed.stream, "test")
    committed.compute(2, {"first": [], "second": []})
    committed.lease.release()
    again = context(run_type="operator_triggered", clear_number=1)
    again["dag_run"].run_id = "run-2"
    assert tasks.plan("visitors", again)
