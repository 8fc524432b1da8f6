"""What a real Airflow tells others of batches: assets, on which DAGs run; metrics; lineage."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafka import KafkaProducer
from tests.docs.test_metrics import DOCUMENTED
from tests.e2e.processes import until
from tests.faults.history import create_topics
from tests.plugins.statsd import StatsD, listening
from tidegate.ledger import Ledger, Stream
from tidegate_dev.airflow import AirflowStack
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.spark_server import SparkServer
from tidegate_dev.stack import environment

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
DOWNSTREAM = """\
pipeline: downstream
schedule: {assets: ["tidegate://newest"]}
tasks: one
source: {topics: [changes], format: json, columns: "n int"}
stages:
  - {name: doubled, select: {twice: "n * 2"}, emit: {on: update}}
sinks:
  - {kind: table}
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
# the run's third batch fails once in `cover`, as the second one of its process
FAULTS = ("ledger.add_publication=kill_after", "validate.sinks=raise@2")
TAGS = "pipeline=newest,generation=1"


@dataclass
class Line:
    """Airflow, the broker, and what the consumer saw."""

    airflow: AirflowStack
    servers: str
    folder: Path
    statsd: StatsD
    ledger: Ledger

    def send(self, *numbers: int) -> None:
        producer = KafkaProducer(bootstrap_servers=self.servers, acks="all")
        for number in numbers:
            producer.send("seen", value=json.dumps({"shop": "s", "n": number}).encode(), partition=0)
        producer.flush()
        producer.close()

    def run(self, run_id: str) -> dict[str, tuple[str | None, int]]:
        """Task -> its state and the number of its last try, when a run has succeeded."""
        self.airflow.trigger("newest", run_id)
        end = self.airflow.wait_run("newest", run_id)
        assert end.state == "success", end.log_tail
        return {task.task_id: (task.state, task.try_number) for task in end.tasks}

    def seen(self) -> list[dict[str, Any]]:
        path = self.folder / "seen.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def lineage(self, job: str) -> list[dict[str, Any]]:
        """The events of OpenLineage of a task that has succeeded."""
        lines = (self.folder / "lineage.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        return [event for event in events if (event["job"]["name"], event["eventType"]) == (job, "COMPLETE")]

    def events(self) -> list[int]:
        """The newest batches of all events that Airflow has of the asset, as they came."""
        events = self.airflow.api("GET", "/assets/events?limit=100&order_by=timestamp")["asset_events"]
        return [event["extra"]["seq"] for event in events if event["name"] == "tidegate://newest"]


@pytest.fixture(scope="module")
def line(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """A pipeline whose batches read four records, and a DAG that runs on its asset."""
    home = tmp_path_factory.mktemp("assets")
    (home / "jars").symlink_to(installed / "jars", target_is_directory=True)
    for name, text in (
        ("pipelines/newest.yaml", PIPELINE),
        ("pipelines/downstream.yaml", DOWNSTREAM),
        ("dags/consumer.py", CONSUMER),
        ("dags/pipelines.py", (REPOSITORY / "dags" / "pipelines.py").read_text()),
    ):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text(text)
    with ExitStack() as end:
        broker = end.enter_context(KafkaBroker(home))
        spark = end.enter_context(SparkServer(home))
        statsd = end.enter_context(listening())
        env = environment(home, REPOSITORY, broker.bootstrap_servers, spark) | {
            "TIDEGATE_PIPELINES": str(home / "pipelines"),
            "TIDEGATE_LEDGER": f"sqlite:///{home / 'ledger.db'}",
            "TIDEGATE_FAILPOINTS": ",".join(FAULTS),
            "TIDEGATE_FAILPOINTS_FIRED": str(home / "fired"),
            "SEEN_EVENTS": str(home / "seen.jsonl"),
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
                {"type": "file", "log_file_path": str(home / "lineage.jsonl"), "append": True}
            ),
            **statsd.settings,
        }
        create_topics(broker.bootstrap_servers, "seen", "changes")
        airflow = AirflowStack(home, home / "dags", REPOSITORY / "plugins", env)
        end.callback(airflow.stop)
        airflow.start()
        airflow.wait_ready()
        for dag_id in ("newest", "consumer", "downstream"):
            airflow.wait_dag(dag_id)
            airflow.unpause(dag_id)
        yield Line(airflow, broker.bootstrap_servers, home, statsd, Ledger.open(env["TIDEGATE_LEDGER"]))


@pytest.fixture(scope="module")
def published(line: Line) -> Line:
    """After a run of three batches: the first is killed once it is published, and the last one fails once."""
    line.send(*range(10))
    tasks = line.run("three_batches")
    assert sorted((line.folder / "fired").read_text().split()) == sorted(FAULTS)
    assert (tasks["publish"], tasks["cover"]) == (("success", 2), ("success", 2))
    return line


def test_asset_run_sees_offsets_after_kills_and_failures(
    published: Line,
) -> None:
    line = published
    seen = until(lambda: line.seen() if len(line.seen()) >= 2 else None, "the consumer has run")
    assert [(event["seq"], event["offsets"], event["published"]) for event in seen] == [
        (1, {"seen": {"0": [0, 4]}}, {"kafka:changes": 4}),
        (3, {"seen": {"0": [4, 10]}}, {"kafka:changes": 6}),
    ]
    batches = [batch for event in seen for batch in event["batches"]]
    assert [(batch["seq"], batch["counts"]["used"]) for batch in batches] == [(1, 4), (2, 4), (3, 2)]
    first = batches[0]["run_id"]
    assert first.startswith("three_batches@")
    assert [batch["run_id"] for batch in batches] == [first, f"{first}#2", f"{first}#3"]
    assert line.run("nothing_new")["publish"] == ("skipped", 0)
    assert line.statsd.metrics()[f"airflow.tidegate.lag,{TAGS}"] == "0.0|g"
    line.send(9)  # is no change
    line.run("nothing_goes_out")
    line.send(10)
    line.run("one_more")
    until(lambda: len(line.seen()) == 3 or None, "the consumer has run again")
    assert line.events() == [1, 3, 5]


def test_asset_scheduled_pipeline_reads_what_was_published(published: Line) -> None:
    stream = Stream("downstream", 1)

    def offset() -> int:
        return sum(published.ledger.head(stream).offsets.values())

    until(lambda: offset() >= 10 or None, "the other pipeline has read all of it")
    runs = published.airflow.api("GET", "/dags/downstream/dagRuns")["dag_runs"]
    assert {run["run_type"] for run in runs} == {"asset_triggered"}


def test_metrics_have_tags_and_failure_causes(published: Line) -> None:
    metrics = published.statsd.metrics()
    prefix = "airflow.tidegate."
    assert metrics[f"{prefix}failures,{TAGS},task=cover,error=FailpointRaised"] == "1|c"
    values = {name: metrics[f"{prefix}{name},{TAGS}"] for name in ("lag", "seconds.publish")}
    assert {value.partition("|")[2] for value in values.values()} == {"g"}
    assert f"{prefix}emitted.changed,{TAGS},stage=newest" in metrics
    sent = {name.partition(",")[0].removeprefix(prefix) for name in metrics if name.startswith(prefix)}
    names = {re.sub(r"^emitted\..*", "emitted.<reason>", name) for name in sent}
    assert names - DOCUMENTED == set()
    assert len(names) > 20


def test_lineage_leads_from_topic_to_sinks(published: Line) -> None:
    event = published.lineage("newest.publish")[0]
    namespace = f"kafka://{published.servers}"
    (topic,), (sink,) = event["inputs"], event["outputs"]
    assert (topic["namespace"], topic["name"], sink["namespace"], sink["name"]) == (
        *(namespace, "seen"),
        *(namespace, "changes"),
    )
    assert topic["facets"]["tidegate_offsets"]["partitions"] == [{"partition": 0, "start": 0, "end": 4}]
    assert sink["facets"]["schema"]["fields"] == [{"name": "n", "type": "int32", "fields": []}]
    assert sink["outputFacets"]["outputStatistics"]["rowCount"] == 4
    (covered,) = published.lineage("newest.cover")[0]["inputs"]
    assert covered["facets"]["tidegate_offsets"]["partitions"] == [{"partition": 0, "start": 4, "end": 10}]
