"""Operations under a real Airflow: alerts, deadlines, past intervals, backfills of the UI, approvals."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.e2e.line import Line, running_line
from tests.e2e.processes import until
from tidegate.app import App
from tidegate.errors import SetupFailed
from tidegate.generations import open_generation
from tidegate.ledger import Stream
from tidegate_dev.airflow_client import RunEnd

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

PIPELINE = """\
pipeline: {name}
{more}
tasks: one
source:
  topics: [{name}]
  format: json
  columns: "shop string, n int"
  key: [shop]
  max_records: 4
stages:
  - {{name: newest, select: {{n: {value}}}, emit: {emit}}}
sinks:
  - {{kind: sql, table: {name}}}
"""
DEFAULTS = """\
airflow:
  on_task_failure: "alerts:task_failed"
  on_run_failure: "alerts:run_failed"
"""
ALERTS = """\
import json, os

def task_failed(context):
    note("task", context)

def run_failed(context):
    note("run", context)

def note(what, context):
    line = [what, context["dag"].dag_id, context["cause"]]
    with open(os.environ["ALERTS"], "a") as alerts:
        print(json.dumps(line), file=alerts)
"""
FULL = "{on: time_limit, after: 1h, buffer: {max_bytes: 1, when_full: shut_down}}"
BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime.now(timezone.utc)
HALVES = [datetime(year, month, 1, tzinfo=BERLIN) for year in (NOW.year - 1, NOW.year) for month in (1, 7)]
"""Where intervals begin: each has a change of the clocks in it."""
HOURS = [NOW.replace(minute=0, second=0, microsecond=0) - timedelta(hours=hour) for hour in (99, 98, 97, 96)]
IDLE = 2


def pipeline(name: str, more: str = "", value: str = "n", emit: str = "{on: update}") -> str:
    return PIPELINE.format(name=name, more=more, value=value, emit=emit)


def next_generation(text: str) -> str:
    return text.replace("tasks:", "generation: 2\ntasks:").replace("{n: n}", "{n: n + 100}")


@pytest.fixture(scope="module")
def line(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """One Airflow for all of it; each test has pipelines of its own, which are paused before."""
    home = tmp_path_factory.mktemp("operations")
    for folder in ("pipelines", "modules"):
        (home / folder).mkdir()
    (home / "pipelines" / "defaults.yaml").write_text(DEFAULTS)
    (home / "modules" / "alerts.py").write_text(ALERTS)
    halves = f'schedule: "0 0 1 1,7 *"\ntimezone: {BERLIN}\nstart_date: {HALVES[0]:%Y-%m-%d}\ncatchup: true'
    approved = pipeline("approved", "airflow: {approve_promotion: true}")
    pipelines = {
        "full": pipeline("full", emit=FULL),
        "late": pipeline("late", "deadline: 5s"),
        "halves": pipeline("halves", halves),
        "hours": pipeline("hours", 'schedule: "0 * * * *"'),
        "approved": approved,
        "approved_g2": next_generation(approved),
    }
    paths = [str(home / "modules"), os.environ.get("PYTHONPATH", "")]
    env = {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TIDEGATE_PYTHON_MODULES": "alerts",
        "ALERTS": str(home / "alerts"),
    }
    with running_line(installed, home, pipelines, env) as line:
        for dag_id in pipelines:
            line.airflow.wait_dag(dag_id)
        yield line


def task_state(line: Line, dag_id: str, run_id: str, task_id: str) -> str | None:
    path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
    return str(line.airflow.api("GET", path)["state"])


def busy_slots(line: Line) -> int:
    """Return how many of Airflow's workers have a task."""
    return int(line.airflow.api("GET", "/pools/default_pool")["occupied_slots"])


def test_permanent_failure_calls_callbacks_with_noted_cause(
    line: Line,
) -> None:
    line.send("full", *range(4))
    line.airflow.unpause("full")
    end = line.run("full", "overflow")
    assert end.state == "failed"
    assert [task.try_number for task in end.tasks] == [1]
    failure = line.ledger.failure(Stream("full", 1), 1)
    assert failure is not None
    alerts = until(lambda: _alerts(line, number=2), "both callbacks were called")
    assert [alert[:2] for alert in alerts] == [["task", "full"], ["run", "full"]]
    for _, _, cause in alerts:
        assert failure.what.rstrip(".") in cause
        assert cause.endswith(failure.fix)
        assert "\n" not in cause


def _alerts(line: Line, number: int) -> list[list[str]]:
    """Return the alerts of the callbacks, once there are `number` of them."""
    path = line.folder / "alerts"
    alerts = [json.loads(alert) for alert in path.read_text().splitlines()] if path.exists() else []
    return alerts if len(alerts) >= number else []


def test_waiting_run_occupies_no_worker(
    line: Line,
) -> None:
    line.send("late", 1)
    lease = line.ledger.acquire(Stream("late", 1), "somebody")
    line.airflow.unpause("late")
    line.trigger_by_form("late", "waits")

    def waits() -> bool:
        lease.renew()
        return task_state(line, "late", "waits", "batch") == "up_for_reschedule" and not busy_slots(line)

    def missed() -> list[str]:
        lease.renew()
        lines = line.airflow.log.read_text(errors="replace").splitlines()
        return [entry for entry in lines if "late, run waits has missed its deadline" in entry]

    until(waits, "the run waits, and nobody is at work")
    alert = until(missed, "the deadline's alert")
    assert "It has planned no batch yet" in alert[0]
    lease.release()
    assert line.airflow.wait_run("late", "waits").state == "success"
    assert line.rows("late") == [1]


def test_catchup_runs_follow_local_midnights(
    line: Line,
) -> None:
    ends = [half for half in [*HALVES[1:], datetime(NOW.year + 1, 1, 1, tzinfo=BERLIN)] if half <= NOW]
    intervals = list(zip(HALVES, ends, strict=False))
    instant = timedelta(milliseconds=1)
    for number, (start, end) in enumerate(intervals):
        line.send("halves", 2 * number, at=start.astimezone(timezone.utc))
        line.send("halves", 2 * number + 1, at=end.astimezone(timezone.utc) - instant)
    line.airflow.unpause("halves")
    runs = succeeded_runs(line, "halves", len(intervals))
    assert [(run["data_interval_start"], run["data_interval_end"]) for run in runs] == [
        (_utc(start), _utc(end)) for start, end in intervals
    ]
    assert {start.utcoffset() for start in HALVES} == {timedelta(hours=1), timedelta(hours=2)}
    plans = [(plan.run_id, plan.span) for plan in line.plans("halves")]
    assert plans == [(run["dag_run_id"], 2) for run in runs]
    assert line.rows("halves") == list(range(2 * len(intervals)))


def _utc(instant: datetime) -> str:
    """Return an instant as Airflow writes it."""
    return f"{instant.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def succeeded_runs(line: Line, dag_id: str, number: int) -> list[dict[str, Any]]:
    """A DAG's runs by their intervals, when there are so many, and all have succeeded."""

    def ended() -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = line.airflow.api("GET", f"/dags/{dag_id}/dagRuns?limit=100")["dag_runs"]
        assert not any(run["state"] == "failed" for run in runs)
        done = all(run["state"] == "success" for run in runs)
        return runs if done and len(runs) >= number else []

    runs = until(ended, f"{number} runs of {dag_id} have succeeded")
    return sorted(runs, key=lambda run: str(run["data_interval_start"]))


def backfill(line: Line, first: datetime, last: datetime) -> list[str]:
    """Create a backfill as the form of the UI does if only the dates are set. Returns the dates of the
    runs that it would make.
    """
    body = {
        "dag_id": "hours",
        "dag_run_conf": None,
        "from_date": f"{first:%Y-%m-%dT%H:%M:%S.000Z}",
        "to_date": f"{last:%Y-%m-%dT%H:59:59.000Z}",
        "max_active_runs": 1,
        "reprocess_behavior": "none",
        "run_backwards": False,
        "run_on_latest_version": True,
    }
    foreseen = line.airflow.api("POST", "/backfills/dry_run", body)["backfills"]
    until(lambda: _is_accepted(line, body), "the backfill is accepted")
    return [str(run["logical_date"]) for run in foreseen]


def _is_accepted(line: Line, body: dict[str, Any]) -> bool:
    """Create a backfill. Returns False while Airflow's SQLite is locked, or Airflow has not noticed that
    the last one is over.
    """
    try:
        line.airflow.api("POST", "/backfills", body)
    except SetupFailed as error:
        if not any(early in str(error) for early in ("atabase is locked", "answered 409")):
            raise
        return False
    return True


def test_ui_backfill_reads_history_in_order(
    line: Line,
) -> None:
    busy = [hour for hour in HOURS if hour != HOURS[IDLE]]
    for number, hour in enumerate(busy):
        line.send("hours", *range(6 * number, 6 * number + 6), at=hour + timedelta(minutes=5))
    assert backfill(line, HOURS[0], HOURS[1]) == [_utc(hour) for hour in HOURS[:2]]
    line.airflow.unpause("hours")
    runs = succeeded_runs(line, "hours", 3)
    kinds = [run["run_type"] for run in runs]
    assert kinds[:3] == ["backfill", "backfill", "scheduled"]
    # the schedule's own run waits for those two, and reads what is left
    batches = [(plan.run_id, plan.span) for plan in line.plans("hours")]
    readers = [run["dag_run_id"] for run in runs[:3]]
    assert batches == [batch for run_id in readers for batch in ((run_id, 4), (f"{run_id}#2", 2))]
    assert line.rows("hours") == list(range(18))
    commits = line.ledger.committed(Stream("hours", 1))

    backfill(line, HOURS[0], HOURS[-1])  # of the last two hours there was no run
    by_start = {run["data_interval_start"]: run["dag_run_id"] for run in succeeded_runs(line, "hours", 5)}
    first = next(plan.seq for plan in line.plans("hours") if plan.run_id == readers[-1])
    read = f"batches {first} to {first + 1} of hours/1 read the interval's records already"
    assert read in line.log("hours", by_start[_utc(HOURS[-1])], "batch")
    assert "the interval has no records" in line.log("hours", by_start[_utc(HOURS[IDLE])], "batch")
    read_by = [plan.seq for plan in line.plans("hours")]
    assert len(read_by) == len(batches)
    assert line.rows("hours") == list(range(18))
    assert line.ledger.committed(Stream("hours", 1))[: len(commits)] == commits


DECIDED = list(range(3))


@pytest.fixture(scope="module")
def generations(line: Line) -> Line:
    """A generation that withholds what it decides, beside the one in charge; both have read all."""
    line.send("approved", *DECIDED)
    line.airflow.unpause("approved")
    assert line.run("approved", "first").state == "success"
    app = App.from_environment({**os.environ, **line.environment})
    open_generation(app, app.pipeline("approved_g2"))
    line.airflow.unpause("approved_g2")
    assert line.run("approved_g2", "second").state == "success"
    assert line.rows("approved") == DECIDED
    line.airflow.wait_dag("approved.promote")
    line.airflow.unpause("approved.promote")
    return line


def answer(line: Line, run_id: str, option: str) -> tuple[str, RunEnd]:
    """Trigger a promotion, and answer what it asks; the text that it asks with, and its end."""
    dag_id = "approved.promote"
    line.airflow.trigger(dag_id, run_id, conf={"generation": 2})
    request = until(lambda: _request(line, dag_id, run_id), "the run asks for approval")
    assert request["subject"] == "Promote generation 2 of approved?"
    until(lambda: not busy_slots(line), "who waits for a person occupies no worker")
    until(lambda: _answered_to_the_end(line, dag_id, run_id, option), "the answered run ends")
    return request["body"], line.airflow.wait_run(dag_id, run_id)


def _answered_to_the_end(line: Line, dag_id: str, run_id: str, option: str) -> bool:
    """Answer what is asked, and return whether the run has ended.

    Airflow asks again if an answer comes before its scheduler has noted that the try which asked has ended:
    then it takes the task for a lost one. No person is so quick.
    """
    request = _request(line, dag_id, run_id)
    if request is not None and not request["response_received"]:
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/approve/-1/hitlDetails"
        line.airflow.api("PATCH", path, {"chosen_options": [option], "params_input": {}})
    return line.airflow.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"] in ("success", "failed")


def _request(line: Line, dag_id: str, run_id: str) -> dict[str, Any] | None:
    runs = line.airflow.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}/hitlDetails")["hitl_details"]
    return runs[0] if runs else None


def promotions(line: Line) -> list[tuple[int, str, str | None]]:
    charge = line.ledger.charge("approved")
    promotions = charge.promotions[1:]
    return [
        (promotion.generation, promotion.run_id.partition("@")[0], promotion.approved_by)
        for promotion in promotions
    ]


def test_a_rejected_promotion_switches_nothing(generations: Line) -> None:
    shown, end = answer(generations, "rejected", "Reject")
    assert "| sql:approved | 0 | 1 | 0 | 0 |" in shown
    assert end.state == "success"
    assert {task.task_id: task.state for task in end.tasks}["promote"] == "skipped"
    assert promotions(generations) == []
    assert generations.rows("approved") == DECIDED


def test_approved_promotion_switches_and_is_noted(generations: Line) -> None:
    _, end = answer(generations, "accepted", "Approve")
    assert end.state == "success", end.log_tail
    assert promotions(generations) == [(2, "accepted", "admin")]
    assert generations.rows("approved") == [*DECIDED, *(number + 100 for number in DECIDED)]
