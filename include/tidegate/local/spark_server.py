"""A real Spark Connect server on this machine, for this user only: its sessions outlive a batch."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from tidegate.errors import SetupFailed
from tidegate.local.class_archive import archive_options
from tidegate.local.driver import FIRST_COMPILER
from tidegate.local.java import find_java, java_home
from tidegate.local.processes import LocalServer, Supervised, claim_port, free_port, own_share_bytes
from tidegate.local.warden import living_below
from tidegate.spark_token import HOST, VARIABLE, remove_token, write_token

_MAIN_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_START_TIMEOUT_S = 120.0
_GRACE_S = 5.0
_LEAST_LIMIT_BYTES = 3 * 2**30

_ESTABLISHED = "01"
_CONF = {
    "spark.master": "local[*]",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
    "spark.python.daemon.module": "tidegate.engine.daemon",
    # A stream's session is to be there for its next batch, whenever that is; there are as many as streams.
    "spark.connect.session.manager.defaultSessionTimeout": "-1",
    # What a batch has shuffled stays until the JVM collects garbage, which so small ones rarely make it do.
    "spark.cleaner.periodicGC.interval": "2min",
    # Without a UI nobody reads these, and by default Spark keeps a thousand of each, plans included.
    **dict.fromkeys(
        ("spark.ui.retainedJobs", "spark.ui.retainedStages", "spark.sql.ui.retainedExecutions"), "20"
    ),
    "spark.ui.retainedTasks": "200",
}

_LEAN = (
    "-XX:+UseSerialGC",
    # What a collection leaves free goes back to the system: the server waits most of the time. It never
    # shrinks below its first size, which would be a 64th of the machine's memory.
    *("-Xms96m", "-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=30"),
    # After some fifty batches all that they need is compiled, and not after a thousand.
    "-XX:CompileThresholdScaling=0.2",
)


class SparkServer(LocalServer):
    """A server with its log in `home/logs/spark.log`. A context manager.

    `memory` is its heap, such as `2g`; `conf` adds to or replaces Spark's properties, `environment` that of
    the process. The port stays the same over `stop` or `kill` and another `start`, and so does the token that
    the server asks for: see `spark_token`.
    """

    def __init__(
        self,
        home: Path,
        memory: str | None = None,
        conf: Mapping[str, str] | None = None,
        environment: Mapping[str, str] = os.environ,
        port: int | None = None,
    ) -> None:
        self._home = home
        self._memory = memory or "1g"
        self._conf = dict(conf or {})
        self._environment = dict(environment)
        self._wanted_port = port
        self.port = port or 0
        self._token = secrets.token_urlsafe(32)

    @property
    def url(self) -> str:
        return f"sc://{HOST}:{self.port}"

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start; `wait_ready` says when clients can connect."""
        if self._process is None:
            self._process = self._prepare()
        try:
            write_token(self.port, self._token)
        except OSError as error:
            raise SetupFailed(
                f"The token of the Spark Connect server cannot be kept: {error}",
                "Correct the rights of your home directory, or set HOME to one that can be written to.",
            ) from error
        self._process.start()

    def stop(self) -> None:
        super().stop()
        remove_token(self.port)

    def wait_ready(self) -> None:
        if self._process is None:
            raise SetupFailed("The Spark Connect server was not started", "Call start() first.")
        try:
            self._process.wait_ready(self._listens, _START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    def processes(self) -> list[int]:
        """The ids of its processes: its own, and those of workers. None where it is not started."""
        top = self._process.pid if self._process is not None else None
        return [] if top is None else [top, *living_below(top)]

    def maintain(self, most_bytes: int | None = None) -> bool:
        """Start it anew if it has ended by itself, or if it and its workers have grown beyond so many bytes,
        by default half of the machine's memory, and nobody is connected. Whether it did.

        It has workers of their own for each stream, which is some 150 MB, and Spark keeps some of every
        session that it ever had (SPARK-54055).

        A batch is connected from its session's opening to its last row. One that comes while the server
        starts waits for it; one that comes between the look and the end loses it, and is tried again.
        """
        limit = _half_of_memory() if most_bytes is None else most_bytes
        is_large = self.running and self._memory_bytes() > limit and not self._is_connected()
        if self.running and not is_large:
            return False
        self.stop()
        self.start()
        return True

    def _prepare(self) -> Supervised:
        self.port = claim_port(self._wanted_port, "TIDEGATE_SPARK_PORT") if self._wanted_port else free_port()
        java = find_java()
        options = " ".join([*_LEAN, *FIRST_COMPILER, *archive_options(java)])
        conf = {**_CONF, "spark.connect.grpc.binding.port": str(self.port), **self._conf}
        command = [
            *(str(_spark_class()), "org.apache.spark.deploy.SparkSubmit", "--class", _MAIN_CLASS),
            *("--driver-memory", self._memory, "--driver-java-options", options),
            *[word for name, value in conf.items() for word in ("--conf", f"{name}={value}")],
            "spark-internal",
        ]
        environment = {"PYSPARK_PYTHON": sys.executable, "MALLOC_ARENA_MAX": "2", **self._environment}
        environment |= {"JAVA_HOME": str(java_home(java)), VARIABLE: self._token}
        log = self._home / "logs" / "spark.log"
        return Supervised("The Spark Connect server", command, log, environment, _GRACE_S)

    def _listens(self) -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=2).close()
            return True
        return False

    def _memory_bytes(self) -> int:
        """What its processes have in memory; pages that they share are divided among them."""
        return sum(map(own_share_bytes, self.processes()))

    def _is_connected(self) -> bool:
        """Whether a client is (Linux; elsewhere it is taken for granted, and nothing is started anew)."""
        tables = [Path(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
        if not tables[0].is_file():
            return True
        lines = [line.split() for table in tables if table.is_file() for line in table.open()]
        return any(
            line[3] == _ESTABLISHED and line[1].endswith(f":{self.port:04X}") for line in lines if line
        )


def _half_of_memory() -> int:
    return max(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2, _LEAST_LIMIT_BYTES)


def _spark_class() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupFailed("PySpark is not installed", "Run `make setup`.")
    return Path(spec.origin).parent / "bin" / "spark-class"
