"""A pipeline between two Kafka clusters under a real Airflow: logins by its connections, and no word of them
in anything that Airflow, Spark or tidegate leave behind, with all that can be logged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest
from kafka.admin import NewTopic

from kafka import KafkaAdminClient
from tests.secured import CANARY, KINDS, PASSWORD, Properties, SecuredBroker
from tidegate.kafka.properties import secrets
from tidegate_dev.airflow import AirflowStack
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.demo.events import stock_events
from tidegate_dev.demo.expected import expected_availability
from tidegate_dev.demo.topics import STOCK, create_topics, read_published, send
from tidegate_dev.stack import environment

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

REPOSITORY = Path(__file__).resolve().parents[2]
EVENTS = tuple(islice(stock_events(0), 500))
REPORTS, MORE = "mutual TLS, texts", "SCRAM-SHA-512 by TLS"
"""How the sinks' cluster is reached."""
SINKS = {"five": "reports", "one": "more"}
"""How many tasks a batch is -> the connection of its sink."""


@dataclass
class Ran:
    """After a run of each pipeline; tasks and drivers had all that they needed from Airflow's connections."""

    home: Path
    secured: SecuredBroker
    source: KafkaBroker
    states: dict[str, str]

    def files(self) -> Iterator[tuple[Path, str]]:
        """Yield all written files with their text, without the broker's own."""
        for path in sorted(self.home.rglob("*")):
            if path.is_file() and not path.is_relative_to(self.home / "broker"):
                yield path, path.read_bytes().decode(errors="replace")


@pytest.fixture(scope="module")
def ran(installed: Path, secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    home = tmp_path_factory.mktemp("airflow-clusters")
    for folder in (home, home / "broker"):
        folder.mkdir(exist_ok=True)
        (folder / "jars").symlink_to(installed / "jars", target_is_directory=True)
    (home / "pipelines").mkdir()
    for way in SINKS:
        (home / "pipelines" / f"{way}.yaml").write_text(_pipeline(way))
    with KafkaBroker(home / "broker") as source, ExitStack() as end:
        create_topics(source.bootstrap_servers)
        send(source.bootstrap_servers, STOCK, EVENTS)
        _create(secured.bootstrap_servers, *map(_sink, SINKS))
        airflow = AirflowStack(home, REPOSITORY / "dags", REPOSITORY / "plugins", _environment(home))
        end.callback(airflow.stop)
        airflow.start()
        airflow.wait_ready()
        _connect(airflow, "shop", {"bootstrap.servers": source.bootstrap_servers})
        _connect(airflow, "reports", KINDS[REPORTS](secured))
        _connect(airflow, "more", KINDS[MORE](secured))
        for way in SINKS:
            airflow.wait_dag(way)
            airflow.unpause(way)
            airflow.trigger(way, "run")
        states = {way: airflow.wait_run(way, "run").state for way in SINKS}
        yield Ran(home, secured, source, states)


def _create(servers: str, *topics: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_topics([NewTopic(topic, 2, 1) for topic in topics])
    finally:
        admin.close()


def _sink(way: str) -> str:
    return f"availability-{way}"


def _pipeline(way: str) -> str:
    """The sample, between the clusters `shop` and `reports` or `more`."""
    text = (REPOSITORY / "include" / "pipelines" / "availability.yaml").read_text()
    sink = f"{{kind: kafka, connection: {SINKS[way]}, topic: {_sink(way)}, with_key: true}}"
    for old, new in {
        "pipeline: availability": f"pipeline: {way}\ntasks: {way}",
        '"*/5 * * * *"': "null",
        "source:\n": "source:\n  connection: shop\n",
        "{kind: kafka, topic: availability, with_key: true}": sink,
    }.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def _environment(home: Path) -> dict[str, str]:
    """Return an environment without the default cluster, and with all logging switched on."""
    variables = environment(home, REPOSITORY, "nowhere:9092")
    return {name: text for name, text in variables.items() if "TIDEGATE_KAFKA" not in name} | {
        "TIDEGATE_PIPELINES": str(home / "pipelines"),
        "TIDEGATE_EXPECTATIONS": str(REPOSITORY / "include" / "expectations"),
        "TIDEGATE_LEDGER": f"sqlite:///{home / 'ledger.db'}",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "DEBUG",
    }


def _connect(airflow: AirflowStack, name: str, properties: Properties) -> None:
    """Add a connection as Airflow's form does."""
    extra = dict(properties)
    host, _, port = extra.pop("bootstrap.servers").partition(":")
    connection = {
        "connection_id": f"tidegate_kafka_{name}",
        "conn_type": "kafka",
        "host": host,
        "port": int(port),
        "login": extra.pop("sasl.username", None),
        "password": extra.pop("sasl.password", None),
        "extra": json.dumps(extra),
    }
    airflow.api("POST", "/connections", connection)


@pytest.mark.parametrize("way", SINKS)
def test_pipeline_reads_and_publishes_in_different_clusters(ran: Ran, way: str) -> None:
    assert ran.states[way] == "success"
    assert read_published(ran.secured.bootstrap_servers, _sink(way)) == expected_availability(EVENTS)


def test_no_secret_is_in_anything_that_was_written(ran: Ran) -> None:
    files = list(ran.files())
    logs = [text for path, text in files if path.suffix == ".log"]
    assert any("DEBUG" in text.upper() for text in logs)
    assert any("TIDEGATE_KAFKA_REPORTS" in text or "tidegate_kafka_reports" in text for text in logs)
    words = {CANARY, PASSWORD}
    for kind in (REPORTS, MORE):
        for secret in secrets(KINDS[kind](ran.secured)):
            words |= {line for line in secret.splitlines() if len(line) > 20 and "-----" not in line}
    assert [(path, word) for path, text in files for word in words if word in text] == []
