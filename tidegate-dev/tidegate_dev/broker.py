"""A real Kafka broker on this machine: one process in KRaft mode, ready in seconds."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tidegate.errors import SetupFailed
from tidegate.spark.java import find_java
from tidegate_dev.jars import BROKER, find_jars
from tidegate_dev.processes import LocalServer, Supervised, claim_port, free_port

# 16 bytes, base64. It is fixed because a broker refuses a data folder with another cluster id.
_CLUSTER_ID = "dGlkZWdhdGUtbG9jYWwtMQ"
_JVM = ("-Xms96m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    # Kafka deletes by the timestamps of records, and samples and tests have records that are years old.
    "log.retention.ms": "-1",
    # There is only one broker, so internal topics cannot have replicas. Four partitions each keep the start
    # short.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # After a kill the controller lets the broker register again only when its old session has expired (9 s by
    # default).
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # By default the controller writes a record to its idle log twice a second, so that metrics show whether
    # it is alive. Nobody watches them here.
    "metadata.max.idle.interval.ms": "0",
}

_LOG4J = """\
status = ERROR
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
"""


class KafkaBroker(LocalServer):
    """A Kafka broker with its data in `home/kafka`, which a later broker finds again.

    The port stays the same over `stop` or `kill` and another `start`.

    Args:
        home: The folder of the local stack.
        port: The port for clients; None for any free port.
        config: Lines that are added to, or replace lines of, `server.properties`.
        fresh: Whether to delete the data of an earlier broker first.

    Example: `with KafkaBroker(home) as broker: create_topics(broker.bootstrap_servers)`
    """

    def __init__(
        self,
        home: Path,
        port: int | None = None,
        config: Mapping[str, str] | None = None,
        fresh: bool = False,
    ) -> None:
        self._folder = home / "kafka"
        self._home = home
        self._config = dict(config or {})
        self._fresh = fresh
        self._fixed_port = port
        self.port = port or 0

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the broker, and return when clients can use it. Raises SetupFailed if it does not start."""
        if self._process is None:
            self._process = self._prepare()
        self._process.start()
        try:
            self._process.wait_ready(self._answers)
        except BaseException:
            self._process.stop()
            raise

    def _prepare(self) -> Supervised:
        if self._fresh:
            shutil.rmtree(self._folder, ignore_errors=True)
        self.port = claim_port(self._fixed_port, "TIDEGATE_KAFKA_PORT") if self._fixed_port else free_port()
        self._folder.mkdir(parents=True, exist_ok=True)
        properties = self._write_properties()
        (self._folder / "log4j2.properties").write_text(_LOG4J)
        if not (self._folder / "data" / "meta.properties").exists():
            self._format(properties)
        return Supervised(
            "The Kafka broker",
            [*self._java(), "kafka.Kafka", str(properties)],
            self._home / "logs" / "kafka.log",
            os.environ,
        )

    def _write_properties(self) -> Path:
        controller = free_port()
        own = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self._folder / "data"),
        }
        settings = {**_SETTINGS, **own, **self._config}
        path = self._folder / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def _format(self, properties: Path) -> None:
        tool = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)]
        done = subprocess.run([*self._java(), *tool], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            # Kafka may have written meta.properties, by which the next start would take the folder as
            # formatted.
            shutil.rmtree(self._folder / "data", ignore_errors=True)
            lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            errors = [line for line in lines if "rror" in line or "xception" in line]
            reason = (errors or lines or ["no output"])[0]
            raise SetupFailed(f"Kafka could not set up its folder: {reason}", f"Look at {properties}.")

    def _java(self) -> list[str]:
        classes = os.pathsep.join(map(str, find_jars(BROKER, self._home)))
        log4j = f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"
        return [str(find_java()), *_JVM, log4j, "-cp", classes]

    def _answers(self) -> bool:
        """Return whether the broker lists itself as alive, by a Metadata request (version 1) for no topics.

        An open port is not enough: the broker accepts connections before it has registered at the controller.
        """
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0))
                _, _, brokers = struct.unpack(">iii", connection.recv(12, socket.MSG_WAITALL))
                return bool(brokers)
        except (OSError, struct.error):
            return False
