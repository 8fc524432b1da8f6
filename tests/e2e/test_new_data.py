"""Runs that new records start, in a real Airflow: its triggerer watches the broker."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.line import Line, running_line
from tests.e2e.processes import until

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

PIPELINE = """\
pipeline: {name}
schedule: {{on_data: {{records: {records}, or_after: {or_after}}}}}
tasks: one
source:
  topics: [{name}]
  format: json
  columns: "shop string, n int"
  key: [shop]
stages:
  - {{name: newest, select: {{n: n}}, emit: {{on: update}}}}
sinks:
  - {{kind: sql, table: {name}}}
"""
PIPELINES = {"many": (5, "1h"), "soon": (1_000_000, "5s"), "idle": (1, "1s")}


@pytest.fixture(scope="module")
def line(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    texts = {
        name: PIPELINE.format(name=name, records=records, or_after=or_after)
        for name, (records, or_after) in PIPELINES.items()
    }
    with running_line(installed, tmp_path_factory.mktemp("new-data"), texts) as line:
        for dag_id in PIPELINES:
            line.airflow.wait_dag(dag_id)
            line.airflow.unpause(dag_id)
        yield line


def runs_of(line: Line, dag_id: str) -> list[str]:
    answer = line.airflow.api("GET", f"/dags/{dag_id}/dagRuns")
    return [run["run_type"] for run in answer["dag_runs"]]


def wait_published(line: Line, dag_id: str, *numbers: int) -> None:
    def are_published() -> bool:
        try:
            return line.rows(dag_id) == [*numbers]
        except sqlite3.OperationalError:  # the first batch creates the table
            return False

    until(are_published, f"{dag_id} published {numbers}")


def test_enough_records_start_a_run(line: Line) -> None:
    line.send("many", 0, 1, 2, 3, 4)
    wait_published(line, "many", 0, 1, 2, 3, 4)
    line.send("many", 5, 6)
    time.sleep(10)
    assert line.rows("many") == [0, 1, 2, 3, 4]
    line.send("many", 7, 8, 9)
    wait_published(line, "many", *range(10))
    assert set(runs_of(line, "many")) == {"asset_triggered"}


def test_few_records_start_a_run_in_time(line: Line) -> None:
    line.send("soon", 1)
    wait_published(line, "soon", 1)
    line.send("soon", 2, 3)
    wait_published(line, "soon", 1, 2, 3)


def test_idle_topic_starts_no_run(line: Line) -> None:
    assert runs_of(line, "idle") == []
