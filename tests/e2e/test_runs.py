"""Runs under a real Airflow: triggered by hand, with parameters, over several batches, killed and cleared."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.line import Line, running_line
from tests.e2e.processes import until
from tidegate.errors import SetupFailed
from tidegate.ledger import Stream
from tidegate_dev.airflow_client import RunEnd

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

PIPELINE = """\
pipeline: {name}
schedule: "{schedule}"
tasks: {tasks}
source:
  topics: [{name}]
  format: json
  columns: "shop string, n int"
  key: [shop]
  max_records: 4
stages:
  - {{name: newest, select: {{n: n}}, emit: {{on: update}}}}
sinks:
  - {{kind: sql, table: {name}}}
"""
RECORDS = 10
# in `cover` the second batch is the first that its process commits: the run's third is killed there
KILLS = ("ledger.commit=kill@2",)
STEPS = ("compute", "validate", "commit", "publish")


@pytest.fixture(scope="module")
def line(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """Pipelines whose batches read four records, one of them with a task for each step; and a kept server."""
    pipelines = {
        name: PIPELINE.format(name=name, schedule=schedule, tasks=tasks)
        for name, schedule, tasks in (
            ("steps", "0 0 1 1 *", "five"),
            ("whole", "0 0 1 1 *", "one"),
            ("hours", "0 * * * *", "one"),
        )
    }
    home = tmp_path_factory.mktemp("runs")
    failpoints = {
        "TIDEGATE_FAILPOINTS": ",".join(KILLS),
        "TIDEGATE_FAILPOINTS_FIRED": str(home / "fired"),
    }
    with running_line(installed, home, pipelines, failpoints) as line:
        for dag_id in ("steps", "whole"):
            line.send(dag_id, *range(RECORDS))
            line.airflow.wait_dag(dag_id)
            line.airflow.unpause(dag_id)
        yield line


def states(end: RunEnd) -> dict[str, str | None]:
    return {task.task_id: task.state for task in end.tasks}


@pytest.fixture(scope="module")
def killed(line: Line) -> Line:
    """After a run by hand over three batches, of which the third was killed in the middle of `cover`."""
    end = line.run("steps", "now")
    assert end.state == "success", end.log_tail
    assert (line.folder / "fired").read_text().split() == list(KILLS)
    tries = {task.task_id: task.try_number for task in end.tasks}
    assert tries == {"plan": tries["plan"], **dict.fromkeys(STEPS, 1), "cover": 2}
    return line


def test_manual_run_reads_everything_despite_kills(
    killed: Line,
) -> None:
    plans = killed.plans("steps")
    assert [plan.run_id for plan in plans] == ["now", "now#2", "now#3"]
    assert [plan.span for plan in plans] == [4, 4, 2]
    assert killed.rows("steps") == list(range(RECORDS))
    logged = datetime.fromtimestamp(plans[-1].clock_ms / 1000, timezone.utc)
    assert datetime.now(timezone.utc) - logged < timedelta(minutes=10)


def test_cleared_run_of_several_batches_is_no_op(killed: Line) -> None:
    commits = killed.ledger.committed(Stream("steps", 1))
    body = {"dry_run": False, "dag_run_id": "now", "only_failed": False, "reset_dag_runs": True}
    killed.airflow.api("POST", "/dags/steps/clearTaskInstances", body)
    path = "/dags/steps/dagRuns/now"
    until(lambda: killed.airflow.api("GET", path)["state"] != "success" or None, "it is cleared")
    end = killed.airflow.wait_run("steps", "now")
    assert end.state == "success", end.log_tail
    assert set(states(end).values()) == {"success"}
    assert killed.ledger.committed(Stream("steps", 1)) == commits
    assert killed.rows("steps") == list(range(RECORDS))
    seq = commits[-1][0]
    assert f"batch {seq} was planned before; nothing is planned again" in killed.log("steps", "now", "cover")
    assert f"batch {seq} is committed already" in killed.log("steps", "now", "cover")
    assert "was planned before; nothing is planned again" in killed.log("steps", "now", "plan")
    assert "nothing is computed again" in killed.log("steps", "now", "compute")
    assert "is committed already" in killed.log("steps", "now", "commit")
    assert "nothing is published again" in killed.log("steps", "now", "publish")


def test_a_run_of_one_batch_skips_cover(killed: Line) -> None:
    killed.send("steps", 10)
    end = killed.run("steps", "one_batch")
    assert states(end) == {"plan": "success", **dict.fromkeys(STEPS, "success"), "cover": "skipped"}
    assert killed.rows("steps") == list(range(RECORDS + 1))


def test_dry_run_shows_plan_and_writes_nothing(line: Line) -> None:
    end = line.run("whole", "dry", dry_run=True)
    assert (end.state, states(end)) == ("success", {"batch": "skipped"})
    log = line.log("whole", "dry", "batch")
    assert "would be:" in log
    assert "whole[0]: 0 to 3, not to the interval's end" in log
    assert line.plans("whole") == []


def test_mistyped_parameter_fails_and_reads_nothing(line: Line) -> None:
    end = line.run("whole", "typo", dryrun=True)
    assert end.state == "failed"
    assert "triggered with dryrun, which tidegate does not know" in end.log_tail
    with pytest.raises(SetupFailed, match="max_records"):
        line.trigger_by_form("whole", "refused", max_records=0)
    assert line.plans("whole") == []


def test_run_follows_its_parameters_later_run_continues(line: Line) -> None:
    assert line.run("whole", "offsets", until_offsets={"whole": {"0": 5}}).state == "success"
    assert line.run("whole", "few", max_records=2).state == "success"
    long_ago = "2026-01-01T00:00:00Z"
    assert states(line.run("whole", "earlier", until=long_ago)) == {"batch": "skipped"}
    assert line.run("whole", "rest").state == "success"
    batches = [(plan.run_id, plan.ranges[0].start, plan.ranges[0].end) for plan in line.plans("whole")]
    assert batches == [("offsets", 0, 4), ("offsets#2", 4, 5), ("few", 5, 7), ("rest", 7, 10)]
    assert line.rows("whole") == list(range(RECORDS))
    assert line.run("whole", "drained", drain=True).state == "success"
    stream = Stream("whole", 1)
    drained = line.ledger.plan(stream, line.ledger.head(stream).seq)
    assert drained is not None
    assert (drained.drain, drained.span) == (True, 0)
    assert drained.run_id.startswith("drained@")


HOURS = [datetime(2026, 11, 1, hour, tzinfo=timezone.utc) for hour in range(4)]
IDLE = 2


def create_backfill(line: Line, last: datetime, *options: str) -> None:
    """Create a backfill by Airflow's command, with its defaults, from the first hour on."""
    dates = ("--from-date", HOURS[0].isoformat(), "--to-date", last.isoformat())
    command = [sys.executable, "-m", "airflow", "backfill", "create", "--dag-id", "hours", *dates, *options]
    until(lambda: _succeeds(command, line.airflow.environment()), "the backfill is created")


def _succeeds(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a command has; not where Airflow's SQLite refuses a write that meets another one, nor while
    Airflow has not noticed that the backfill before is complete.
    """
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    is_early = any(error in done.stderr for error in ("database is locked", "AlreadyRunningBackfill"))
    assert done.returncode == 0 or is_early, done.stdout + done.stderr
    return done.returncode == 0


def runs_of_hours(line: Line, number: int) -> dict[str, str]:
    """Interval's start -> run id, when there are so many runs, and all have succeeded."""

    def ended() -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = line.airflow.api("GET", "/dags/hours/dagRuns?limit=100")["dag_runs"]
        assert not any(run["state"] == "failed" for run in runs)
        done = all(run["state"] == "success" for run in runs)
        return runs if done and len(runs) >= number else []

    runs = until(ended, f"{number} runs of hours have succeeded")
    starts = [datetime.fromisoformat(run["data_interval_start"]) for run in runs]
    return {start.isoformat(): run["dag_run_id"] for start, run in zip(starts, runs, strict=True)}


def test_backfill_create_reads_history_in_order(
    line: Line,
) -> None:
    busy = [hour for hour in HOURS if hour != HOURS[IDLE]]
    for number, hour in enumerate(busy):
        line.send("hours", *range(6 * number, 6 * number + 6), at=hour + timedelta(minutes=5))
    line.airflow.wait_dag("hours")
    create_backfill(line, HOURS[1])
    line.airflow.unpause("hours")
    runs = runs_of_hours(line, 3)  # the schedule's own waits for those two, and reads the rest
    scheduled = next(run_id for run_id in runs.values() if run_id.startswith("scheduled"))
    readers = [*(runs[hour.isoformat()] for hour in HOURS[:2]), scheduled]
    batches = [(plan.run_id, plan.span) for plan in line.plans("hours")]
    assert batches == [batch for run_id in readers for batch in ((run_id, 4), (f"{run_id}#2", 2))]
    assert line.rows("hours") == list(range(18))
    commits = line.ledger.committed(Stream("hours", 1))

    create_backfill(line, HOURS[-1])  # of the last two hours no run was there
    runs = runs_of_hours(line, 5)
    first = next(plan.seq for plan in line.plans("hours") if plan.run_id == scheduled)
    read = f"batches {first} to {first + 1} of hours/1 read the interval's records already"
    assert read in line.log("hours", runs[HOURS[-1].isoformat()], "batch")
    assert "the interval has no records" in line.log("hours", runs[HOURS[IDLE].isoformat()], "batch")

    create_backfill(line, HOURS[-1], "--reprocess-behavior", "completed")  # clears them
    tried = "was planned before; nothing is planned again"
    cleared = runs[HOURS[0].isoformat()]
    until(lambda: line.log("hours", cleared, "batch").count(tried) or None, "it is done again")
    runs_of_hours(line, 5)
    assert line.ledger.committed(Stream("hours", 1)) == commits
    assert line.rows("hours") == list(range(18))
