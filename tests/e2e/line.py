"""Airflow with small pipelines from JSON to SQLite, whose batches compute on a kept Spark server."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from tests.conftest import REPOSITORY
from tests.faults.history import create_topics
from tidegate.ledger import Ledger, Plan, Stream
from tidegate_dev.airflow import AirflowStack
from tidegate_dev.airflow_client import RunEnd
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.spark_server import SparkServer
from tidegate_dev.stack import environment


@dataclass
class Line:
    """Airflow, the broker, and what came out."""

    airflow: AirflowStack
    servers: str
    folder: Path
    ledger: Ledger
    environment: Mapping[str, str]

    def send(self, topic: str, *numbers: int, at: datetime | None = None) -> None:
        producer = KafkaProducer(bootstrap_servers=self.servers, acks="all")
        stamp = round((at or datetime.now(timezone.utc)).timestamp() * 1000)
        for number in numbers:
            body = json.dumps({"shop": "s", "n": number}).encode()
            producer.send(topic, value=body, partition=0, timestamp_ms=stamp)
        producer.flush()
        producer.close()

    def trigger_by_form(self, dag_id: str, run_id: str, **conf: Any) -> None:
        """Trigger a run as the form of the UI does: with now as the logical date, and no interval."""
        now = datetime.now(timezone.utc)
        self.airflow.trigger(dag_id, run_id, logical_date=now, conf=conf)

    def run(self, dag_id: str, run_id: str, **conf: Any) -> RunEnd:
        self.trigger_by_form(dag_id, run_id, **conf)
        return self.airflow.wait_run(dag_id, run_id)

    def plans(self, dag_id: str) -> list[Plan]:
        """Return the plans of the committed batches that have read something; their runs have Airflow's
        ids.
        """
        stream = Stream(dag_id, 1)
        plans = [self.ledger.plan(stream, seq) for seq, _ in self.ledger.committed(stream)]
        read = [plan for plan in plans if plan is not None and plan.span]
        return [replace(plan, run_id=re.sub("@[^#]*", "", plan.run_id)) for plan in read]

    def rows(self, dag_id: str) -> list[int]:
        """Return the emitted numbers in order."""
        with sqlite3.connect(self.folder / "sink.db") as connection:
            return [row[0] for row in connection.execute(f"SELECT n FROM {dag_id} ORDER BY rowid")]

    def log(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Return the logs of all tries of a task."""
        folder = self.folder / "airflow" / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}"
        return "".join(path.read_text() for path in sorted((folder / f"task_id={task_id}").glob("*.log")))


@contextmanager
def running_line(
    installed: Path, home: Path, pipelines: Mapping[str, str], env: Mapping[str, str] | None = None
) -> Iterator[Line]:
    """File name without `.yaml` -> text, each with a topic of that name. `env`: what everybody finds."""
    (home / "jars").symlink_to(installed / "jars", target_is_directory=True)
    (home / "pipelines").mkdir(exist_ok=True)
    for name, text in pipelines.items():
        (home / "pipelines" / f"{name}.yaml").write_text(text)
    with ExitStack() as end:
        broker = end.enter_context(KafkaBroker(home))
        spark = end.enter_context(SparkServer(home))
        variables = environment(home, REPOSITORY, broker.bootstrap_servers, spark) | {
            "TIDEGATE_PIPELINES": str(home / "pipelines"),
            "TIDEGATE_LEDGER": f"sqlite:///{home / 'ledger.db'}",
            "TIDEGATE_SQL": f"sqlite:///{home / 'sink.db'}",
            **(env or {}),
        }
        create_topics(broker.bootstrap_servers, *pipelines)
        airflow = AirflowStack(home, REPOSITORY / "dags", REPOSITORY / "plugins", variables)
        end.callback(airflow.stop)
        airflow.start()
        airflow.wait_ready()
        ledger = Ledger.open(variables["TIDEGATE_LEDGER"])
        yield Line(airflow, broker.bootstrap_servers, home, ledger, variables)
