"""A real Airflow with the console, for the roles of its users: pipelines with a past, and a browser."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import requests
from confluent_kafka import Producer
from kafka.admin import NewTopic
from sqlalchemy import and_, update

from kafka import KafkaAdminClient
from tests.conftest import REPOSITORY
from tests.e2e import failed_batch
from tests.seeded import Seeded, emission, unusable
from tidegate.errors import QualityFailed
from tidegate.ledger import schema
from tidegate_airflow.runs import ledger_run_id
from tidegate_dev.airflow import AirflowStack
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.processes import free_port
from tidegate_dev.stack import environment

BATCHES = 90
OFFSETS = 100
WAITING = 120
"""Records that no batch has read yet."""
LAST_RUN = f"run-{BATCHES}"
OF_OTHER_TEAM = "quiet_users"
"""The pipeline of the other team."""
USERS = {
    "admin": "admin:admin:shop|users",
    "user": "user:user:shop",
    "viewer": "viewer:viewer:shop",
    "stranger": "stranger:user:users",
}
"""User -> Airflow's setting of the user: name, role and teams. The stranger is a user of another DAG."""
UNUSABLE = (b'{"storeId": "s1", "id": 17, "quanti', b"<script>alert('x')</script>", b"\x00\xff\xfe" * 100)
_PASSWORDS = "airflow/simple_auth_manager_passwords.json.generated"
_DAG_FILE = """\
from tidegate_airflow import pipeline_dags

globals().update(pipeline_dags({folder!r}))
"""


@dataclass
class Site:
    """Airflow, with tidegate's plugin. Users log in by their name."""

    airflow: AirflowStack

    def password(self, user: str) -> str:
        """Return the password that Airflow has generated for a user."""
        return str(json.loads((self.airflow.log.parent.parent / _PASSWORDS).read_text())[user])

    def token(self, user: str) -> str:
        body = {"username": user, "password": self.password(user)}
        return str(self.request("POST", "/auth/token", json=body).json()["access_token"])

    def get(self, path: str, token: str | None = None) -> requests.Response:
        """A page, as a browser asks for it."""
        cookies = {"_token": token} if token else {}
        return self.request("GET", path, headers={"Accept": "text/html"}, cookies=cookies)

    def trigger(self, user: str, dag_id: str, run_id: str, conf: Mapping[str, Any]) -> int:
        """Trigger a run as a user does; returns the status of Airflow's answer."""
        headers = {"Authorization": f"Bearer {self.token(user)}"}
        body = {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf)}
        path = f"/api/v2/dags/{dag_id}/dagRuns"
        return self.request("POST", path, json=body, headers=headers).status_code

    def request(self, method: str, path: str, **more: Any) -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False
            url = f"{self.airflow.url}{path}"
            return session.request(method, url, allow_redirects=False, timeout=30, **more)


@contextmanager
def running_site(home: Path, jars: Path) -> Iterator[Site]:
    """Start Airflow with pipelines whose topics have some more records. Spark is not needed."""
    (home / "jars").symlink_to(jars, target_is_directory=True)
    seeded = Seeded(home, now=time.time() - (BATCHES + 1) * 300, offsets=OFFSETS)
    with KafkaBroker(home) as broker, ExitStack() as end:
        _produce(broker.bootstrap_servers, _seed(seeded))
        env = environment(home, REPOSITORY, broker.bootstrap_servers) | seeded.environment
        env |= failed_batch.trusted_modules(home) | _settings(home)
        airflow = AirflowStack(home, REPOSITORY / "dags", REPOSITORY / "plugins", env)
        end.callback(airflow.stop)
        _add_teams(airflow)
        airflow.start()
        airflow.wait_ready()
        for dag_id in ("availability", OF_OTHER_TEAM):
            airflow.wait_dag(dag_id)
        airflow.trigger("availability", LAST_RUN)
        _note_run(seeded, airflow)
        airflow.unpause("availability")
        ended = airflow.wait_run("availability", LAST_RUN)
        assert ended.state == "success", ended.log_tail
        yield Site(airflow)


def _settings(home: Path) -> dict[str, str]:
    nowhere = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": free_port()}
    bundles = [_bundle(home, team) for team in ("shop", "users")]
    return {
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(nowhere),
        # pages must show the lag, also on a machine that runs other tests beside it
        "TIDEGATE_PAGE_WAIT": "20",
        "AIRFLOW__CORE__MULTI_TEAM": "True",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(USERS.values()),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
    }


def _bundle(home: Path, team: str) -> dict[str, object]:
    """Write a team's DAG file and its folder of pipeline files, and return Airflow's setting of the bundle.

    The console's folder has the files of all teams.
    """
    folder, files = home / "bundles" / team, home / "teams" / team
    for made in (folder, files):
        made.mkdir(parents=True)
    for file in (home / "pipelines").glob("*.yaml"):
        if (file.stem == OF_OTHER_TEAM) == (team == "users"):
            (files / file.name).symlink_to(file)
    (folder / "pipelines.py").write_text(_DAG_FILE.format(folder=str(files)))
    return {
        "name": team,
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(folder)},
        "team_name": team,
    }


def _add_teams(airflow: AirflowStack) -> None:
    """Add the teams before Airflow starts: it refuses a folder of DAGs whose team does not exist."""
    script = (
        "from airflow.utils.db import initdb; initdb()\n"
        "from airflow.models.team import Team\n"
        "from airflow.utils.session import create_session\n"
        "with create_session() as session: session.add_all([Team(name='shop'), Team(name='users')])"
    )
    environment = airflow.environment()
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True)


def _note_run(seeded: Seeded, airflow: AirflowStack) -> None:
    """Let Airflow's run, which waits for its DAG, be the one that planned the last batch."""
    made = airflow.api("GET", f"/dags/availability/dagRuns/{LAST_RUN}")["run_after"]
    run_id = ledger_run_id(LAST_RUN, datetime.fromisoformat(made.replace("Z", "+00:00")))
    with seeded.app.ledger._engine.begin() as connection:
        for table in (schema.plans, schema.runs):
            same = and_(table.c.pipeline == "availability", table.c.run_id == LAST_RUN)
            connection.execute(update(table).where(same).values(run_id=run_id))


def _seed(seeded: Seeded) -> list[str]:
    """Add pipelines in all states; returns the topics that were read."""
    end = seeded.now
    pipelines = {
        name: seeded.add_sample(name)
        for name in ("availability", "quiet_users", "rate_limited", "visitor_batches")
    }
    pipelines["screw_fastening"] = seeded.add_sample(
        "screw_fastening", edit=lambda text: text + "\ntasks: one"
    )
    counts = {"suppression-buffer-records": 38.0, "suppression-buffer-bytes": 9_400.0}
    for name, more in {"availability": {}, "quiet_users": counts, "visitor_batches": counts}.items():
        seeded.now = end
        seeded.day(pipelines[name], BATCHES - 1, **more)
        rows = [unusable(BATCHES * OFFSETS - 1 - n, value) for n, value in enumerate(UNUSABLE)]
        last = {"used": 97.0, "emitted": 41.0, "idempotent-update-skip": 56.0, "state-rows": 4_910.0}
        is_first = name == "availability"
        outbox = [emission(f"s{n}", n) for n in range(41)] if is_first else ()
        seeded.batch(pipelines[name], BATCHES, {**last, **more}, rows if is_first else (), outbox=outbox)
    seeded.now = end
    seeded.day(pipelines["rate_limited"], 12)
    what = "Batch 13 of rate_limited/1 does not pass its quality suite: 3 unexpected"
    fix = "Nothing was published. Correct the data or the suite and clear this task."
    seeded.fail(pipelines["rate_limited"], 13, "validate", QualityFailed(what, fix))
    seeded.now = end
    failed_batch.add_failing_batch(seeded)
    broken = seeded.home / "pipelines" / "typo.yaml"
    sample = pipelines["availability"].text.replace("pipeline: availability", "pipeline: typo")
    broken.write_text(sample.replace("reduce: latest", "reduce: lastest"))
    return [pipelines[name].sources.topics[0] for name in pipelines if name != "screw_fastening"]


def _produce(servers: str, topics: list[str]) -> None:
    """Send records up to where the batches have read, and some more."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_topics([NewTopic(topic, 1, 1) for topic in topics])
    finally:
        admin.close()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for topic in topics:
        for _ in range(BATCHES * OFFSETS + WAITING):
            producer.produce(topic, b"{}", partition=0)
            producer.poll(0)
    assert producer.flush(60) == 0
