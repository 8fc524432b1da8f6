"""A line under a real Airflow, in which a process can be killed while a task stands at a known point."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from tests.e2e.processes import command_of, kill, parent_of, running, stopped, until
from tests.faults.databases import sqlite_files
from tests.faults.history import Scene, create_topics
from tidegate.app import App
from tidegate.batch import Trigger, run_batch
from tidegate_dev.airflow import AirflowStack
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.processes import Supervised
from tidegate_dev.stack import environment

REPOSITORY = Path(__file__).resolve().parents[2]
FIRST = datetime(2025, 6, 1, tzinfo=timezone.utc)
WAVES = 8
RECORDS = 12
"""Of an hour, which is the data interval of a batch."""

# where each task stands when something is killed: right before what it is there for
EFFECTS = {
    "plan": "ledger.add_plan=pause",
    "compute": "compute.write_outbox=pause",
    "validate": "ledger.set_validated=pause",
    "commit": "ledger.commit=pause",
    "publish": "publish.commit=pause",
}
# the same, but when it is sent, and the ledger does not know it
SENT = EFFECTS | {"publish": "ledger.add_publication=pause"}
# and before what asks the broker, if anything does
ASKING = EFFECTS | {"plan": "kafka.describe=pause", "compute": "compute.session=pause"}
POINTS = tuple(dict.fromkeys([*EFFECTS.values(), *SENT.values(), *ASKING.values()]))

# Airflow finds out sooner that a process of its own has ended; what it does then is the same
IMPATIENT = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "12",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
}
SUBMITTED = json.dumps({"conn_type": "spark", "host": "local[*]", "extra": {"deploy-mode": "client"}})
"""A connection for which spark-submit starts the driver, in a process of its own."""
# a driver lives for seconds here: to compile for long runs costs more than it gives
SHORT_LIVED = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"}
# as a service manager does; the warden around it only ends it with the test
AGAIN = 'while :; do "$0" -m airflow scheduler; done'
SCHEDULER = "airflow scheduler"


def interval(wave: int) -> tuple[datetime, datetime]:
    """The data interval of a wave of the input."""
    return FIRST + timedelta(hours=wave), FIRST + timedelta(hours=wave + 1)


def epoch_ms(instant: datetime) -> int:
    """Return the epoch milliseconds of an instant."""
    return round(instant.timestamp() * 1000)


def send_waves(servers: str, topic: str) -> None:
    """An hour's records after the other: ten keys in two partitions, deleted and unusable ones among them."""
    create_topics(servers, topic)
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    try:
        for number in range(WAVES * RECORDS):
            begin_ms = epoch_ms(interval(number // RECORDS)[0])
            producer.send(topic, partition=number % 2, **_record(number, begin_ms))
        producer.flush()
    finally:
        producer.close()


def _record(number: int, begin_ms: int) -> dict[str, Any]:
    shop, key = ("south", "north")[number % 2], (number // 2) % 5
    body: bytes | None = json.dumps({"shop": shop, "id": key, "quantity": (number * 7) % 4}).encode()
    if number % 17 == 3:
        body = None if number % 2 else b"{not json"
    return {
        "key": f'{{"shop":"{shop}","id":{key}}}'.encode(),
        "value": body,
        "timestamp_ms": begin_ms + (number * 7_919_000) % 3_600_000,
    }


@dataclass
class Line:
    """Airflow, the broker, the pipeline that is disturbed, and its twin that never is."""

    airflow: AirflowStack
    broker: KafkaBroker
    scene: Scene
    calm: Scene
    fired: Path
    waves: int = 0
    _schedulers: list[Supervised] = field(default_factory=list)

    def arm(self, *points: str) -> None:
        """Stop the next process that comes to such a failpoint there, and at no other.

        A point of the file has fired, and does not fire again.
        """
        self.fired.write_text("".join(f"{point}\n" for point in POINTS if point not in points))

    def begin(self) -> str:
        """Trigger a run for the next hour of the input; its id."""
        wave, self.waves = self.waves, self.waves + 1
        return self.airflow.trigger(self.scene.name, f"wave-{wave}", data_interval=interval(wave))

    def stand(self, point: str) -> int:
        """The process that has come to the armed failpoint, and stands there."""
        pid = until(stopped, f"a process stands at {point}")
        assert point in self.fired.read_text().split()
        return pid

    def task(self, run_id: str, task_id: str) -> tuple[str | None, int]:
        """State and number of the newest try."""
        instance = self.airflow.api(
            "GET", f"/dags/{self.scene.name}/dagRuns/{run_id}/taskInstances/{task_id}"
        )
        return instance["state"], instance["try_number"]

    def until_tried_again(self, run_id: str, task_id: str, after: int) -> None:
        """Airflow has given up a try, and a later one is at work or through."""

        def again() -> bool:
            state, number = self.task(run_id, task_id)
            return number > after and state in ("running", "success")

        until(again, f"{task_id} of {run_id} is tried again")

    def log_of(self, run_id: str, task_id: str, attempt: int) -> str:
        """Return the log of a try."""
        folder = self.airflow.log.parent.parent / "airflow" / "logs"
        where = f"dag_id={self.scene.name}/run_id={run_id}/task_id={task_id}/attempt={attempt}.log"
        return (folder / where).read_text()

    def kill_scheduler(self) -> None:
        """SIGKILL to the scheduler; return when another one is at work. What it had started lives on."""
        pid = running(SCHEDULER)
        assert pid is not None
        killed_at = datetime.now(timezone.utc)
        kill(pid)
        if not self._schedulers:
            command = ["sh", "-c", AGAIN, sys.executable]
            log = self.airflow.log.with_name("scheduler.log")
            self._schedulers.append(Supervised("The scheduler", command, log, self.airflow.environment()))
            self._schedulers[0].start()
        until(lambda: running(SCHEDULER) not in (None, pid), "there is a scheduler again")
        until(lambda: self._heartbeat() > killed_at, "the new scheduler is at work")

    def _heartbeat(self) -> datetime:
        health = self.airflow.api("GET", "/monitor/health")
        return datetime.fromisoformat(health["scheduler"]["latest_scheduler_heartbeat"])

    def close(self) -> None:
        """End what `kill_scheduler` has started."""
        for scheduler in self._schedulers:
            scheduler.stop()


def above(pid: int) -> list[int]:
    """A process and those above it, up to the scheduler's worker process, which stands at the end."""
    pids = [pid]
    while not command_of(pids[-1]).startswith("airflow worker -- LocalExecutor"):
        pids.append(parent_of(pids[-1]))
        assert pids[-1] > 1, f"{command_of(pid)} is not a task's"
    return pids


def go_on(pid: int) -> None:
    """Let a process that stands go on, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def play_calmly(scene: Scene, open_session: Any, wave: int) -> None:
    """The batch of an hour in one process, undisturbed."""
    app = App.from_environment({**os.environ, **scene.environment})
    end_ms = epoch_ms(interval(wave)[1])
    trigger = Trigger(f"wave-{wave}", end_ms, end_ms, now_ms=epoch_ms(datetime.now(timezone.utc)))
    run_batch(app, app.pipeline(scene.name), trigger, open_session)


@contextmanager
def line(installed: Path, home: Path) -> Iterator[Line]:
    """The whole stack, with all of the input sent."""
    (home / "jars").symlink_to(installed / "jars", target_is_directory=True)
    fired = home / "fired"
    fired.write_text("".join(f"{point}\n" for point in POINTS))
    with KafkaBroker(home) as broker:
        servers = broker.bootstrap_servers
        send_waves(servers, "source")
        folders = [home / name for name in ("killed", "calm")]
        scenes = [Scene(folder, servers, "source", sqlite_files(folder)) for folder in folders]
        for scene in scenes:
            scene.create()
        env = environment(home, REPOSITORY, servers) | scenes[0].environment | IMPATIENT | SHORT_LIVED
        env["AIRFLOW_CONN_SPARK_DEFAULT"] = SUBMITTED
        env |= {"TIDEGATE_FAILPOINTS": ",".join(POINTS), "TIDEGATE_FAILPOINTS_FIRED": str(fired)}
        with AirflowStack(home, REPOSITORY / "dags", REPOSITORY / "plugins", env) as airflow:
            airflow.wait_dag(scenes[0].name)
            airflow.unpause(scenes[0].name)
            made = Line(airflow, broker, scenes[0], scenes[1], fired)
            try:
                yield made
            finally:
                made.close()
