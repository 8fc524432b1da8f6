"""A Spark Connect server that outlives the steps' processes, and what can befall it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.processes import state_and_parent
from tests.faults.warm import MASTER
from tidegate.spark import connect
from tidegate.spark.session import open_session
from tidegate_dev.spark_server import SparkServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOB_ENDED = '"Event":"SparkListenerJobEnd"'


class KeptServer(SparkServer):
    """The server of a worker of the matrix. Use it as a context manager, or end it by `stop`."""

    def __init__(self, home: Path) -> None:
        self._events = home / "events"
        self._events.mkdir(parents=True)
        conf = {
            "spark.master": MASTER,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": self._events.as_uri(),
        }
        super().__init__(home, conf=conf)

    def connect(self, name: str) -> SparkSession:
        """The session that the server keeps under a name. For a step's own process: no other may use gRPC,
        whose threads do not go with forks."""
        shorten_patience()
        return open_session(self.url, name=name)

    def suspend(self) -> None:
        """Server and workers stand still, as on a machine that does."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """They go on."""
        self._signal(signal.SIGCONT)

    def has_stopped_worker(self) -> bool:
        """Whether a worker stands still, at a failpoint."""
        return any(_is_stopped(pid) for pid in self.processes()[1:])

    def ended_jobs(self) -> int:
        """Count the Spark jobs that have ended, by Spark's event log, where the end of a job is flushed."""
        logs = [path for path in self._events.rglob("*events*") if path.is_file()]
        return sum(log.read_text(errors="replace").count(_JOB_ENDED) for log in logs)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def shorten_patience() -> None:
    """A server that is lost or hangs is given up in seconds: as in production, where it takes minutes."""
    connect._RETRIES |= {"max_retries": 4}
    connect._ANSWER_SECONDS = 20
    connect._KEEPALIVE = [
        ("grpc.keepalive_time_ms", 4_000),
        ("grpc.keepalive_timeout_ms", 4_000),
        ("grpc.http2.ping_timeout_ms", 4_000),  # of those that gRPC sends besides, to measure
        ("grpc.min_reconnect_backoff_ms", 1_000),  # so long it also waits for a connection's first answer
    ]


def _is_stopped(pid: int) -> bool:
    with suppress(OSError):
        return state_and_parent(pid)[0] == "T"
    return False
