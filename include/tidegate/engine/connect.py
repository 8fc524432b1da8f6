"""Sessions of a Spark Connect server: reached or given up within seconds, and used again from batch to batch.

A server starts Python workers for each session that it has not seen before, which takes longer than a
small batch. So a batch asks for the session of its stream by a name, and finds there the workers of the batch
before.
"""

from __future__ import annotations

import atexit
import os
import socket
import time
from contextlib import suppress
from threading import Thread
from typing import Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate.errors import SetupFailed, SparkLost

SCHEME = "sc://"
_PORT = 15002
_SESSION_ID = "session_id="
_CONNECT_SECONDS = 10
_RESTART_SECONDS = 20
_ANSWER_SECONDS = 30
_RETRIES = {"max_retries": 8, "max_backoff": 5_000}
"""Some 25 s in all. PySpark's own policy goes on for ten minutes; here a retry of the step comes after it."""

_KEEPALIVE = [("grpc.keepalive_time_ms", 330_000), ("grpc.keepalive_timeout_ms", 20_000)]
"""A server that hangs is given up after so long. It refuses who asks more often than every five minutes."""

_SESSION_CLOSED = "INVALID_HANDLE.SESSION_CLOSED"
_MOST_CLOSED = 1_000
"""So many closed sessions a server remembers (spark.connect.session.manager.closedSessionsTombstonesSize)."""


def connect(url: str, name: str | None = None) -> SparkSession:
    """A session of the server at `url`: `sc://host:port`, with the parameters that Spark knows.

    With a `name` it is the same one at each call, for as long as the server keeps it. What a process that
    died has left at work in it is interrupted: whoever asks must be the only one, as the holder of a stream's
    lease is. Without a name it is the one that this process has, or a new one, which ends with the process.
    A `session_id` in the URL goes before both.

    Raises SparkLost when the server does not answer within half a minute, SetupFailed when its Spark is of
    another version.
    """
    _wait_listening(url)
    if is_kept(url):
        return _session(url)
    if name is not None:
        session = _named(url, name)
        session.interruptAll()
        return session
    active: SparkSession | None = _connect_session().getActiveSession()
    if active is None:
        active = _session(url)
        atexit.register(_end, active, url)
    return active


def is_kept(url: str) -> bool:
    """Whether the URL itself names the session; it stays when whoever asked for it is gone."""
    return url.startswith(SCHEME) and _SESSION_ID in url


def named_url(url: str, name: str, number: int = 0) -> str:
    """The URL of a session with a name.

    A server does not open a session again that it has closed, as it closes those that nobody used for an
    hour. `number` is how many of this name it has closed.
    """
    base, _, parameters = url.removeprefix(SCHEME).partition("/")
    session_id = uuid5(NAMESPACE_URL, f"tidegate:{name}#{number}")
    given = [text for text in parameters.split(";") if text]
    return f"{SCHEME}{base}/;{';'.join([*given, f'{_SESSION_ID}{session_id}'])}"


def _named(url: str, name: str) -> SparkSession:
    for number in range(_MOST_CLOSED):
        try:
            return _session(named_url(url, name, number))
        except PySparkException as error:
            if error.getCondition() != _SESSION_CLOSED:
                raise
    raise SparkLost(f"The Spark Connect server at {_place(url)} opens no session any more", "Restart it.")


def _session(url: str) -> SparkSession:
    """A session that has answered."""
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.client.retries import DefaultPolicy

    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # as `SparkSession.builder` does, which takes no channel
    session: Any = _connect_session().builder.channelBuilder(DefaultChannelBuilder(url, _KEEPALIVE)).create()
    session.client.set_retry_policies([DefaultPolicy(**_RETRIES)])
    # At exit PySpark asks the server to forget models, which nobody made. One that hangs would hold it up.
    atexit.unregister(session.client._cleanup_ml_cache)
    _require_same_spark(_version(session, url), url)
    opened: SparkSession = session
    return opened


def _connect_session() -> Any:
    from pyspark.sql.connect.session import SparkSession as ConnectSession  # late: it needs gRPC

    return ConnectSession


def _version(session: Any, url: str) -> str:
    """The server's. A call of gRPC has no end of its own."""
    answer: list[str | BaseException] = []

    def ask() -> None:
        try:
            answer.append(str(session.version))
        except BaseException as error:
            answer.append(error)

    thread = Thread(target=ask, name="ask Spark Connect", daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    if not answer:
        raise _no_answer(url, f"it took a connection, and said nothing for {_ANSWER_SECONDS} s")
    if isinstance(answer[0], BaseException):
        raise answer[0]
    return answer[0]


def _require_same_spark(version: str, url: str) -> None:
    """Its Python workers unpickle what this process has pickled. Raises SetupFailed."""
    if version.split(".")[:2] != pyspark.__version__.split(".")[:2]:
        raise SetupFailed(
            f"The Spark Connect server at {_place(url)} is Spark {version}, this is PySpark "
            f"{pyspark.__version__}",
            "Run the server with the version of PySpark that is installed here, or the other way round.",
        )


def _wait_listening(url: str) -> None:
    """Return when somebody listens, for which a server that is just being restarted is given some time.
    Raises SparkLost with the system's reason."""
    deadline = time.monotonic() + _RESTART_SECONDS
    while (error := _connection_error(url)) is not None:
        if not isinstance(error, ConnectionRefusedError) or time.monotonic() > deadline:
            raise _no_answer(url, error.strerror or str(error)) from error
        time.sleep(0.2)


def _connection_error(url: str) -> OSError | None:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname, parts.port or _PORT), _CONNECT_SECONDS).close()
    except OSError as error:
        return error
    return None


def _no_answer(url: str, reason: str) -> SparkLost:
    return SparkLost(
        f"No Spark Connect server answers at {_place(url)}: {reason}",
        "Start it, or correct its address; then run again, nothing is lost.",
    )


def _place(url: str) -> str:
    """Host and port: the rest may have a token."""
    return urlsplit(url).netloc


def _end(session: SparkSession, url: str) -> None:
    if _connection_error(url) is None:  # a server that is gone has ended it; the client would go on asking
        with suppress(PySparkException, OSError):
            session.stop()
