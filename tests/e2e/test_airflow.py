"""The line under a real Airflow: scheduled, killed, cleared; on a real broker, in a Spark that the task or
spark-submit starts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kills import SHORT_LIVED, SUBMITTED
from tests.e2e.processes import until
from tests.e2e.site import Site
from tests.faults import history
from tidegate.ledger import Ledger, Stream
from tidegate_dev.airflow import AirflowStack
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.demo.events import stock_events
from tidegate_dev.demo.expected import expected_availability
from tidegate_dev.demo.topics import STOCK, create_topics, read_published, send
from tidegate_dev.stack import environment

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.spark]

REPOSITORY = Path(__file__).resolve().parents[2]
# the messages are sent and not committed when the publisher dies
KILLS = ("ledger.add_attempt=kill", "publish.send=kill_after@2")
EVENTS = tuple(islice(stock_events(0), 20_000))
STREAM = Stream("availability", 1)
# appended to the DAG file of the checkout: what is tried again does not wait for it
AT_ONCE = """
from datetime import timedelta

for dag in pipeline_dags().values():
    for task in dag.tasks:
        task.retry_delay = timedelta(seconds=1)
    globals()[dag.dag_id] = dag
"""


@dataclass
class Line:
    """Airflow, the broker, and a file that names the failpoints that fired."""

    airflow: AirflowStack
    servers: str
    fired: Path
    ledger: Ledger

    def run(self, run_id: str, dag_id: str = "availability") -> dict[str, str | None]:
        """Trigger a run and wait for its end; task -> state."""
        self.airflow.trigger(dag_id, run_id)
        return self.wait(run_id, dag_id)

    def wait(self, run_id: str, dag_id: str = "availability") -> dict[str, str | None]:
        end = self.airflow.wait_run(dag_id, run_id)
        assert end.state == "success", end.log_tail
        return {task.task_id: task.state for task in end.tasks}

    def tries(self, run_id: str) -> dict[str, int]:
        end = self.airflow.wait_run("availability", run_id)
        return {task.task_id: task.try_number for task in end.tasks}


@pytest.fixture(scope="module")
def line(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """The sample pipeline in a stack of its own, where the driver and the publisher get killed once."""
    home = tmp_path_factory.mktemp("airflow")
    (home / "jars").symlink_to(installed / "jars", target_is_directory=True)
    fired = home / "fired"
    sample = (REPOSITORY / "include" / "pipelines" / "availability.yaml").read_text()
    (home / "pipelines").mkdir()
    (home / "dags").mkdir()
    for file in (REPOSITORY / "dags").glob("*.py"):
        more = AT_ONCE if file.name == "pipelines.py" else ""
        (home / "dags" / file.name).write_text(file.read_text() + more)
    triggered = sample.replace('"*/5 * * * *"', "null")
    (home / "pipelines" / "availability.yaml").write_text(triggered)
    by_spark_submit = triggered.replace("topic: availability", "topic: submitted").replace(
        "pipeline: availability", "pipeline: submitted\nairflow: {spark: {connection: submit}}"
    )
    (home / "pipelines" / "submitted.yaml").write_text(by_spark_submit)
    (home / "pipelines" / "typo.yaml").write_text(sample.replace("reduce: latest", "reduce: lastest"))
    with KafkaBroker(home) as broker:
        env = environment(home, REPOSITORY, broker.bootstrap_servers) | {
            "TIDEGATE_PIPELINES": str(home / "pipelines"),
            "TIDEGATE_EXPECTATIONS": str(REPOSITORY / "include" / "expectations"),
            "TIDEGATE_LEDGER": f"sqlite:///{home / 'ledger.db'}",
            "AIRFLOW_CONN_SUBMIT": SUBMITTED,
            "TIDEGATE_FAILPOINTS": ",".join(KILLS),
            "TIDEGATE_FAILPOINTS_FIRED": str(fired),
            **SHORT_LIVED,
        }
        airflow = AirflowStack(home, home / "dags", REPOSITORY / "plugins", env)
        with ExitStack() as end:
            end.callback(airflow.stop)
            airflow.start()
            create_topics(broker.bootstrap_servers)
            history.create_topics(broker.bootstrap_servers, "submitted")
            send(broker.bootstrap_servers, STOCK, EVENTS)
            airflow.wait_ready()
            for dag_id in ("availability", "submitted"):
                airflow.wait_dag(dag_id)
                airflow.unpause(dag_id)
            ledger = Ledger.open(env["TIDEGATE_LEDGER"])
            yield Line(airflow, broker.bootstrap_servers, fired, ledger)


@pytest.fixture(scope="module")
def killed(line: Line) -> Line:
    """After a run whose Spark driver and whose publisher were killed with SIGKILL in the middle."""
    line.run("killed")
    return line


def test_killed_driver_and_publisher_change_no_output(killed: Line) -> None:
    assert tuple(killed.fired.read_text().split()) == KILLS
    tries = killed.tries("killed")
    assert (tries["compute"], tries["publish"]) == (2, 2)
    assert read_published(killed.servers) == expected_availability(EVENTS)


def test_run_without_records_skips_the_other_steps(killed: Line) -> None:
    states = killed.run("idle")
    assert states["plan"] == "success"
    assert {states[step] for step in ("compute", "validate", "commit", "publish")} == {"skipped"}


def test_cleared_finished_run_sends_nothing_again(killed: Line) -> None:
    before = read_published(killed.servers)
    commits = killed.ledger.committed(STREAM)
    body: dict[str, Any] = {
        "dry_run": False,
        "dag_run_id": "killed",
        "only_failed": False,
        "reset_dag_runs": True,
    }
    killed.airflow.api("POST", "/dags/availability/clearTaskInstances", body)
    _until_running_again(killed)
    states = killed.wait("killed")
    assert states.pop("cover") == "skipped"
    assert set(states.values()) == {"success"}
    assert read_published(killed.servers) == before
    assert killed.ledger.committed(STREAM) == commits


def test_console_shows_the_run_behind_the_login(killed: Line) -> None:
    site = Site(killed.airflow)
    assert site.get("/tidegate/").status_code == 303
    for path in ("", "pipelines/availability", "pipelines/availability/batches/1"):
        page = site.get(f"/tidegate/{path}", site.token("admin"))
        assert page.status_code == 200
        assert "availability" in page.text


def test_broken_file_keeps_its_failing_dag(line: Line) -> None:
    line.airflow.wait_dag("typo")
    assert "reduce" in line.airflow.api("GET", "/dags/typo/details")["doc_md"]
    assert line.airflow.api("GET", "/importErrors")["import_errors"] == []
    line.airflow.unpause("typo")
    try:
        run = until(lambda: _scheduled_run(line, "typo"), "the DAG's schedule makes a run")
        end = line.airflow.wait_run("typo", run)
    finally:
        line.airflow.pause("typo")
    assert end.state == "failed"
    assert {task.task_id: task.state for task in end.tasks}["plan"] == "failed"
    assert "lastest" in end.log_tail
    assert [task.try_number for task in end.tasks if task.task_id == "plan"] == [1]


def _scheduled_run(line: Line, dag_id: str) -> str | None:
    runs = line.airflow.api("GET", f"/dags/{dag_id}/dagRuns")["dag_runs"]
    return next((run["dag_run_id"] for run in runs if run["run_type"] == "scheduled"), None)


@pytest.mark.long
def test_spark_submit_computes_the_same_without_secrets(killed: Line) -> None:
    killed.run("submitted", "submitted")
    assert read_published(killed.servers, "submitted") == expected_availability(EVENTS)
    logs = killed.airflow.log.parent.parent.rglob("dag_id=submitted/**/task_id=compute/*.log")
    commands = [line for log in logs for line in log.read_text().splitlines() if "Spark-Submit cmd" in line]
    assert commands
    assert not any(killed.servers in command for command in commands)


def _until_running_again(line: Line) -> None:
    """Clearing answers before the run's state has changed."""
    deadline = time.monotonic() + 30
    path = "/dags/availability/dagRuns/killed"
    while line.airflow.api("GET", path)["state"] == "success":
        assert time.monotonic() < deadline, "the run was not cleared"
        time.sleep(0.2)
