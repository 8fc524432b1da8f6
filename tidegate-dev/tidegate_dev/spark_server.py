"""A real Spark Connect server on this machine, for this user only. Batches reuse its sessions."""

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
from tidegate.spark.java import FIRST_COMPILER, archive_options, find_java, java_home
from tidegate.spark_token import HOST, VARIABLE, announce, remove_token, withdraw, write_token
from tidegate_dev.processes import LocalServer, Supervised, claim_port, free_port, own_share_bytes
from tidegate_dev.warden import living_below

_MAIN_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_GRACE_S = 5.0
_LEAST_LIMIT_BYTES = 3 * 2**30

_ESTABLISHED = "01"
_CONF = {
    "spark.master": "local[*]",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # a client asks for it, and notes for each column which line of Python made it
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.log.level": "WARN",
    "spark.python.daemon.module": "tidegate.spark.daemon",
    # Spark closes an idle session after an hour by default, but the next batch of a stream may come later.
    # There is one session per stream, so their number is bounded.
    "spark.connect.session.manager.defaultSessionTimeout": "-1",
    # Spark deletes shuffle files when the JVM collects garbage. Small batches rarely cause that by
    # themselves.
    "spark.cleaner.periodicGC.interval": "2min",
    # Nobody reads these without a UI, and by default Spark keeps a thousand of each, with their plans.
    **dict.fromkeys(
        ("spark.ui.retainedJobs", "spark.ui.retainedStages", "spark.sql.ui.retainedExecutions"), "20"
    ),
    "spark.ui.retainedTasks": "200",
}

_LEAN = (
    "-XX:+UseSerialGC",
    # The server is idle most of the time, so the heap gives free memory back to the system after a
    # collection. It never shrinks below its initial size, which by default is a 64th of the machine's memory.
    *("-Xms96m", "-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=30"),
    # With this all code of a batch is compiled after some fifty batches, instead of a thousand.
    "-XX:CompileThresholdScaling=0.2",
)


class SparkServer(LocalServer):
    """A Spark Connect server with its log in `home/logs/spark.log`.

    The port and the token that clients need (see `spark_token`) stay the same over `stop` or `kill` and
    another `start`.

    Args:
        home: The folder of the local stack.
        memory: The heap, such as `2g`.
        conf: Spark properties that are added to, or replace, those of `_CONF`.
        environment: Variables of the process.
        port: The port; None for any free port.

    Raises SetupFailed if the port is taken, or if the server does not start.
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
        self._fixed_port = port
        self.port = port or 0
        self._token = secrets.token_urlsafe(32)

    @property
    def url(self) -> str:
        return f"sc://{HOST}:{self.port}"

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start the process and return at once. Call `wait_ready` before you connect.

        Raises SetupFailed if the port is taken, or if the token cannot be written.
        """
        if self._process is None:
            self._process = self._prepare()
        try:
            write_token(self.port, self._token)
        except OSError as error:
            raise SetupFailed(
                f"The token of the Spark Connect server cannot be written: {error}",
                "Correct the permissions of your home directory, or set HOME to one that you can write.",
            ) from error
        self._process.start()

    def stop(self) -> None:
        withdraw(self._home)
        super().stop()
        remove_token(self.port)

    def wait_ready(self) -> None:
        if self._process is None:
            raise SetupFailed("The Spark Connect server was not started", "Call start() first.")
        try:
            self._process.wait_ready(self._listens)
        except BaseException:
            self.stop()
            raise
        announce(self._home, self.url)

    def processes(self) -> list[int]:
        """Return the process ids of the server and its workers; an empty list if it was not started."""
        top = self._process.pid if self._process is not None else None
        return [] if top is None else [top, *living_below(top)]

    def maintain(self, most_bytes: int | None = None) -> bool:
        """Restart the server if it has ended, or if it is too large and no client is connected.

        Each stream has its own workers (about 150 MB), and Spark keeps data of every session that it ever had
        (SPARK-54055), so the server grows.

        A batch is connected from the opening of its session to its last row. A batch that starts during the
        restart waits for the server. A batch that connects between the check and the stop fails and is
        retried.

        Args:
            most_bytes: The limit for the memory of the server and its workers; None: half of the machine's
                memory.

        Returns whether the server was restarted. Raises SetupFailed if it does not start.
        """
        limit = _half_of_memory() if most_bytes is None else most_bytes
        is_large = self.running and self._memory_bytes() > limit and not self._is_connected()
        if self.running and not is_large:
            return False
        self.stop()
        self.start()
        return True

    def _prepare(self) -> Supervised:
        self.port = claim_port(self._fixed_port, "TIDEGATE_SPARK_PORT") if self._fixed_port else free_port()
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
        """Return the memory of all its processes in bytes; shared pages count once, divided among them."""
        return sum(map(own_share_bytes, self.processes()))

    def _is_connected(self) -> bool:
        """Return whether a client is connected (Linux).

        On other systems it is always true, so nothing is restarted.
        """
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
