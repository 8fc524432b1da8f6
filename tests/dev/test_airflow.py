"""A real Airflow, started once for these tests."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tidegate.errors import SetupFailed
from tidegate_dev.airflow import AirflowStack
from tidegate_dev.airflow_client import AirflowClient

# The Airflow of tests/e2e shows in `make test` that the stack starts; `make e2e` asks it for the rest.
pytestmark = [pytest.mark.airflow, pytest.mark.long]

DAGS = """
import os
from datetime import datetime
from airflow.sdk import DAG, task

@task
def good(data_interval_end=None):
    print(data_interval_end, os.environ["GREETING"])

@task
def bad():
    raise ValueError("this is why")

for name, work in (("works", good), ("fails", bad)):
    with DAG(name, schedule=None, start_date=datetime(2024, 1, 1)):
        work()
"""


@pytest.fixture(scope="module")
def dags_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dags")
    (folder / "trivial.py").write_text(DAGS)
    return folder


@pytest.fixture(scope="module")
def airflow(module_home: Path, dags_folder: Path, nothing_left: None) -> Iterator[AirflowStack]:
    with AirflowStack(module_home, dags_folder, env={"GREETING": "hello"}) as running:
        yield running


def test_it_serves_its_page_to_this_machine_only(airflow: AirflowStack) -> None:
    assert airflow.url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(airflow.url, timeout=60) as page:
        assert b"Airflow" in page.read()


def test_its_api_asks_for_a_password(airflow: AirflowStack) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{airflow.url}/api/v2/dags", timeout=60)
    with pytest.raises(SetupFailed, match="refused to log in admin"):
        AirflowClient(airflow.url, "admin", "wrong").api("GET", "/dags")


def test_a_run_with_a_data_interval_ends_well(airflow: AirflowStack) -> None:
    start = datetime(2025, 1, 1, tzinfo=timezone.utc)
    airflow.wait_dag("works")
    airflow.unpause("works")
    run_id = airflow.trigger("works", "run_1", data_interval=(start, start + timedelta(minutes=5)))
    end = airflow.wait_run("works", run_id)
    assert (end.run_id, end.state, end.log_tail) == ("run_1", "success", "")
    assert [(task.task_id, task.state) for task in end.tasks] == [("good", "success")]
    run = airflow.api("GET", "/dags/works/dagRuns/run_1")
    assert run["data_interval_end"] == "2025-01-01T00:05:00Z"


def test_failed_run_shows_the_failed_tasks_log(airflow: AirflowStack) -> None:
    airflow.wait_dag("fails")
    airflow.unpause("fails")
    end = airflow.wait_run("fails", airflow.trigger("fails"))
    assert end.state == "failed"
    assert "ValueError: this is why" in end.log_tail


def test_refused_api_call_gives_its_reason(airflow: AirflowStack) -> None:
    with pytest.raises(SetupFailed, match=r"404 to GET /dags/none"):
        airflow.api("GET", "/dags/none")


def test_dag_file_import_error_is_shown(airflow: AirflowStack, dags_folder: Path) -> None:
    broken = dags_folder / "broken.py"
    broken.write_text("from airflow.sdk import DAG\nraise RuntimeError('broken on purpose')\n")
    with pytest.raises(SetupFailed, match=r"(?s)broken\.py.*broken on purpose"):
        airflow.wait_dag("not_there")
    broken.unlink()
