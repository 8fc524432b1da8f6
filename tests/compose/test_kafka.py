"""The stack's broker as a plain process: the image's own set-up program, fed with the stack's environment."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka.admin import NewTopic

from kafka import KafkaAdminClient, KafkaConsumer
from tests.compose.model import environment_of, filled, resolved
from tidegate.spark.java import find_java
from tidegate_dev.jars import find_jars
from tidegate_dev.processes import Supervised, free_port

SERVICES = resolved(filled())["services"]


@dataclass(frozen=True)
class Broker:
    """The stack's broker on this machine: where containers, and where programs of this machine, reach it."""

    inside: str
    outside: str
    properties: Mapping[str, str]


@pytest.fixture(scope="module")
def java_with_kafka(home: Path) -> list[str]:
    """The beginning of a command that runs one of Kafka's programs."""
    return [str(find_java()), "-Xmx384m", "-cp", os.pathsep.join(map(str, find_jars("broker", home)))]


@pytest.fixture(scope="module")
def broker_of_the_stack(
    java_with_kafka: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """Set up by the program that the image runs first, with the stack's environment, then started."""
    folder = tmp_path_factory.mktemp("kafka")
    ports = {port: str(free_port()) for port in ("19092", "9092", "9093")}
    variables = _on_this_machine(environment_of(SERVICES["kafka"]), ports, folder / "data")
    properties = _set_up(java_with_kafka, variables, folder)
    path = folder / "final" / "server.properties"
    command = [*java_with_kafka, "kafka.Kafka", str(path)]
    with Supervised("The stack's broker", command, folder / "kafka.log", os.environ) as process:
        process.wait_ready(lambda: _listens(int(ports["19092"])))
        yield Broker(f"127.0.0.1:{ports['9092']}", f"127.0.0.1:{ports['19092']}", properties)


def _on_this_machine(environment: dict[str, str], ports: Mapping[str, str], data: Path) -> dict[str, str]:
    # the port that is published for programs on this machine is here the listener's own
    advertised = environment["KAFKA_ADVERTISED_LISTENERS"].replace("127.0.0.1:9092", "127.0.0.1:19092")
    settings = {**environment, "KAFKA_ADVERTISED_LISTENERS": advertised, "KAFKA_LOG_DIRS": str(data)}
    for name in ("KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS", "KAFKA_CONTROLLER_QUORUM_VOTERS"):
        settings[name] = re.sub(r":(\d{4,5})\b", lambda port: f":{ports[port[1]]}", settings[name])
        settings[name] = settings[name].replace("kafka:", "127.0.0.1:")
    return settings


_LOGGING = """\
Configuration:
  Loggers:
    Root: {level: WARN}
    Logger: [{name: kafka, level: WARN}]
"""


def _set_up(java: list[str], variables: Mapping[str, str], folder: Path) -> dict[str, str]:
    for name in ("default", "mounted", "final"):
        (folder / name).mkdir()
    for name in ("default", "final"):
        (folder / name / "server.properties").touch()
        (folder / name / "log4j2.yaml").write_text(_LOGGING)
        (folder / name / "tools-log4j2.yaml").write_text(_LOGGING)
    command = [*java, "kafka.docker.KafkaDockerWrapper", "setup"]
    command += ["-D", str(folder / "default"), "-M", str(folder / "mounted"), "-F", str(folder / "final")]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    done = subprocess.run(command, env={**plain, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (folder / "final" / "server.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line)


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.broker
def test_kafka_variables_are_broker_properties(
    java_with_kafka: list[str], broker_of_the_stack: Broker
) -> None:
    page = subprocess.run(
        [*java_with_kafka, "kafka.server.KafkaConfig"], capture_output=True, text=True, check=True
    )
    documented = set(re.findall(r'<a id="brokerconfigs_([\w.]+)"', page.stdout))
    assert "log.retention.ms" in documented
    assert set(broker_of_the_stack.properties) - documented == set()
    settings = {name for name in environment_of(SERVICES["kafka"]) if name.startswith("KAFKA_")}
    assert len(broker_of_the_stack.properties) == len(settings - {"KAFKA_HEAP_OPTS"})


@pytest.mark.broker
@pytest.mark.parametrize("side", ["inside", "outside"])
def test_clients_reach_the_broker_from_both_sides(broker_of_the_stack: Broker, side: str) -> None:
    servers, topic = getattr(broker_of_the_stack, side), f"topic-{side}"
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_topics([NewTopic(topic, 2, 1)])
        consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None)
        try:
            assert consumer.partitions_for_topic(topic) == {0, 1}
            assert not consumer.partitions_for_topic("mistyped")
        finally:
            consumer.close()
        assert "mistyped" not in admin.list_topics()
    finally:
        admin.close()
