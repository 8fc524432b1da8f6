"""Assets under a real Airflow: another DAG runs on what a pipeline publishes, and knows what that was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.e2e.processes import until
from tests.faults.history import create_topics
from tidegate.local.airflow import AirflowStack
from tidegate.local.broker import KafkaBroker
from tidegate.local.spark_server import SparkServer
from tidegate.local.stack import environment

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

REPOSITORY = Path(__file__).resolve().parents[2]
PIPELINE = """\
pipeline: newest
source:
  topics: [seen]
  format: json
  columns: "shop string, n int"
  key: [shop]
  max_records: 4
stages:
  - {name: newest, select: {n: n}, emit: {on: change}}
sinks:
  - {kind: kafka, topic: changes}
"""
CONSUMER = """\
import json, os
from airflow.sdk import Asset, dag, task

@dag(schedule=[Asset("tidegate://newest")], max_active_runs=1)
def consumer():
    @task
    def look(triggering_asset_events):
        with open(os.environ["SEEN_EVENTS"], "a") as file:
            for event in triggering_asset_events[Asset("tidegate://newest")]:
                print(json.dumps(event.extra), file=file)
    look()

consumer()
"""
KILL = "ledger.add_publication=kill_after"


@dataclass
class Line:
    """Airflow, the broker, and what the consumer saw."""

    airflow: AirflowStack
    servers: str
    folder: Path

    def send(self, *numbers: int) -> None:
        producer = KafkaProducer(bootstrap_servers=self.servers, acks="all")
        for number in numbers:
            producer.send("seen", value=json.dumps({"shop": "s", "n": number}).encode(), partition=0)
        producer.flush()
        producer.close()

    def run(self, run_id: str) -> dict[str, tuple[str | None, int]]:
        """Task -> its state and the number of its last try, when a run has succeeded."""
        self.airflow.trigger("newest", run_id)
        end = self.airflow.wait_run("newest", run_id, timeout_s=400)
        assert end.state == "success", end.log_tail
        return {task.task_id: (task.state, task.try_number) for task in end.tasks}

    def seen(self) -> list[dict[str, Any]]:
        path = self.folder / "seen.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def events(self) -> list[int]:
        """The batches of all events that Airflow has of the asset, as they came."""
        events = self.airflow.api("GET", "/assets/events?limit=100&order_by=timestamp")["asset_events"]
        return [event["extra"]["seq"] for event in events if event["name"] == "tidegate://newest"]


@pytest.fixture(scope="module")
def line(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """A pipeline whose batches read four records, and a DAG that runs on its asset."""
    home = tmp_path_factory.mktemp("assets")
    (home / "jars").symlink_to(installed / "jars", target_is_directory=True)
    for name, text in (
        ("pipelines/newest.yaml", PIPELINE),
        ("dags/consumer.py", CONSUMER),
        ("dags/pipelines.py", (REPOSITORY / "dags" / "pipelines.py").read_text()),
    ):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text(text)
    with ExitStack() as end:
        broker = end.enter_context(KafkaBroker(home))
        spark = end.enter_context(SparkServer(home))
        env = environment(home, REPOSITORY, broker.bootstrap_servers, spark) | {
            "TIDEGATE_PIPELINES": str(home / "pipelines"),
            "TIDEGATE_LEDGER": f"sqlite:///{home / 'ledger.db'}",
            "TIDEGATE_FAILPOINTS": KILL,
            "TIDEGATE_FAILPOINTS_FIRED": str(home / "fired"),
            "SEEN_EVENTS": str(home / "seen.jsonl"),
        }
        create_topics(broker.bootstrap_servers, "seen", "changes")
        airflow = AirflowStack(home, home / "dags", REPOSITORY / "plugins", env)
        end.callback(airflow.stop)
        airflow.start()
        airflow.wait_ready()
        for dag_id in ("newest", "consumer"):
            airflow.wait_dag(dag_id)
            airflow.unpause(dag_id)
        yield Line(airflow, broker.bootstrap_servers, home)


def test_a_dag_runs_on_each_published_batch_also_where_the_task_was_killed_and_sees_seq_and_offsets(
    line: Line,
) -> None:
    line.send(*range(6))
    tasks = line.run("two_batches")
    assert (line.folder / "fired").read_text().split() == [KILL]
    assert (tasks["publish"], tasks["cover"]) == (("success", 2), ("success", 1))
    seen = until(lambda: line.seen() if len(line.seen()) >= 2 else None, "the consumer has run", 120)
    batches = [(event["seq"], event["run_id"], event["offsets"], event["published"]) for event in seen]
    assert batches == [
        (1, "two_batches", {"seen": {"0": [0, 4]}}, {"kafka:changes": 4}),
        (2, "two_batches#2", {"seen": {"0": [4, 6]}}, {"kafka:changes": 2}),
    ]
    assert seen[0]["counts"]["used"] == 4

    assert line.run("nothing_new")["publish"] == ("skipped", 0)
    line.send(5)  # is no change
    line.run("nothing_goes_out")
    line.send(6)
    line.run("one_more")
    until(lambda: len(line.seen()) == 3 or None, "the consumer has run again", 120)
    assert line.events() == [1, 2, 4]
