"""Each wait of a task gives its worker back: Airflow starts the task again when the wait may be over.

What waits outside of a task is tested elsewhere: a person's answer in `test_promotion`, new records in
`test_new_data`, and a task whose pool is missing in `test_ui`. `e2e/test_operations` counts the
busy slots of a real Airflow while a run waits.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.batch.committed import Committed
from tests.plugins.runs import CREATED, SUFFIX
from tidegate.errors import SinkBusy, SinkUnavailable

pytestmark = pytest.mark.airflow

RUN = f"run-2{SUFFIX}"
Step = Callable[[], object]


@pytest.fixture
def batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Committed:
    """Batch 1 is published."""
    from tidegate_airflow import tasks

    batches = Committed(tmp_path, "  - {kind: sql, table: seconds}", f"sqlite:///{tmp_path}/sink.db")
    batches.run_suffix = SUFFIX
    batches.commit(1, {"first": [], "second": [("1", 1)]})
    batches.publish(1)
    for name, value in batches.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tasks, "run_ahead", lambda _: None)
    return batches


def begin_batch(batches: Committed, done: str) -> None:
    """Bring batch 2 as far as the step `done`."""
    rows = {"first": [], "second": [("1", 2)]}
    if done == "plan":
        batches.lease = batches.app.ledger.acquire(batches.stream, "test")  # a step has raised the epoch
        batches.lease.add_plan(batches.planned(2))
    elif done == "compute":
        batches.compute(2, rows)
    elif done == "commit":
        batches.commit(2, rows)


def context(run_id: str = "run-2", **params: Any) -> dict[str, Any]:
    """Return the context of a task; run-2 has batch 2."""
    from airflow.sdk import DAG

    from tidegate_airflow.triggers import run_params

    run = SimpleNamespace(
        dag_id="visitors",
        run_id=run_id,
        run_type="manual",
        run_after=CREATED,
        clear_number=0,
        logical_date=None,
        data_interval_start=None,
        data_interval_end=None,
        triggering_user_name="ada",
    )
    defaults = {name: param.resolve() for name, param in run_params().items()}
    return {"dag_run": run, "dag": DAG("visitors", schedule=None), "params": defaults | params}


def _plan(run_id: str, **params: Any) -> object:
    from tidegate_airflow import tasks

    return tasks.plan("visitors", context(run_id, **params))


def _whole_batches() -> object:
    from tidegate_airflow import tasks

    return list(tasks.planned_batches("visitors", "visitors", 1, context("run-3")))


def _compute() -> object:
    from tidegate_airflow import tasks
    from tidegate_airflow.submission import TaskSpark

    return tasks.compute("visitors", 1, RUN, TaskSpark("local[1]", None, {}))


def _step(name: str, *arguments: Any) -> Step:
    def step() -> object:
        from tidegate_airflow import tasks

        return getattr(tasks, name)("visitors", 1, RUN, *arguments)

    return step


STEPS: dict[str, tuple[str, Step]] = {
    "plan": ("", lambda: _plan("run-3")),
    "compute": ("plan", _compute),
    "compute by spark-submit": ("plan", _step("computed_before")),
    "validate": ("compute", _step("validate")),
    "commit": ("compute", _step("commit")),
    "publish": ("commit", _step("publish", {})),
    "batch": ("", _whole_batches),
    "action": ("", lambda: _plan("run-3", action="discard", replay_because="test", replay_reasons=["late"])),
}
"""The step -> how far batch 2 is, and what calls the step."""


def wait_of(step: Step) -> timedelta:
    """Return after how long Airflow starts a step again that gives its worker back."""
    from airflow.sdk.exceptions import AirflowRescheduleException

    asked_at = datetime.now(timezone.utc)
    with pytest.raises(AirflowRescheduleException) as waits:
        step()
    return waits.value.reschedule_date - asked_at


@pytest.mark.parametrize("name", STEPS)
def test_step_returns_worker_while_another_run_leases(batches: Committed, name: str) -> None:
    done, step = STEPS[name]
    begin_batch(batches, done)
    batches.lease.release()
    batches.app.ledger.acquire(batches.stream, "somebody")
    assert timedelta(seconds=15) <= wait_of(step) < timedelta(seconds=25)
    assert batches.query("SELECT m FROM seconds") == [(1,)]
    assert batches.app.ledger.lease_holder(batches.stream) == "somebody"


def test_plan_returns_worker_while_earlier_runs_work(
    batches: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_airflow import tasks
    from tidegate_airflow.runs import RunAhead

    batches.lease.release()
    monkeypatch.setattr(tasks, "run_ahead", lambda _: RunAhead("backfill-1", "running", 4))
    assert timedelta(seconds=120) <= wait_of(lambda: _plan("run-3")) < timedelta(seconds=130)
    assert batches.app.ledger.plan(batches.stream, 2) is None


def _busy() -> object:
    from tidegate_airflow.connections import run_step

    def work() -> object:
        raise SinkBusy("The endpoint answers 429, and asks for 120 s", "Run again.", 120)

    return run_step(work)


def test_publisher_returns_worker_for_a_long_pause() -> None:
    assert timedelta(seconds=120) <= wait_of(_busy) < timedelta(seconds=130)


def test_pauses_of_an_hour_use_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow import connections

    def since(minutes: int) -> dict[str, Any]:
        first = datetime.now(timezone.utc) - timedelta(minutes=minutes)
        return {"ti": SimpleNamespace(get_first_reschedule_date=lambda _: first)}

    monkeypatch.setattr(connections, "get_current_context", lambda: since(57))
    assert wait_of(_busy)
    monkeypatch.setattr(connections, "get_current_context", lambda: since(59))
    with pytest.raises(SinkUnavailable, match="asks for 120 s"):
        _busy()
