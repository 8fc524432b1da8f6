"""Sessions of a Spark Connect server: opened or given up within seconds, and reused from batch to batch.

A server starts Python workers for each session that it has not seen before, which takes longer than a small
batch. Therefore a batch asks for the session of its stream by a name, and finds the workers of the batch
before there.
"""

from __future__ import annotations

import atexit
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate.errors import SetupFailed, SparkLost
from tidegate.spark.errors import grpc_status
from tidegate.spark_token import HOST, read_token

Answer = TypeVar("Answer")

SCHEME = "sc://"
_PORT = 15002
_SESSION_ID = "session_id="
_CONNECT_SECONDS = 10
_RESTART_SECONDS = 20
_ANSWER_SECONDS = 30
_RETRIES = {"max_retries": 8, "max_backoff": 5_000}
"""Some 25 s in all. PySpark's own policy retries for ten minutes; here Airflow retries the step."""

_KEEPALIVE = [("grpc.keepalive_time_ms", 330_000), ("grpc.keepalive_timeout_ms", 20_000)]
"""A server that hangs is given up after this time. The server refuses clients that ping more often than every
five minutes.
"""

_SESSION_CLOSED = "INVALID_HANDLE.SESSION_CLOSED"
_ACCESS_DENIED = ("UNAUTHENTICATED", "PERMISSION_DENIED")
_MOST_CLOSED = 1_000
"""The number of closed sessions that a server remembers
(spark.connect.session.manager.closedSessionsTombstonesSize).
"""


def connect(url: str, name: str | None = None) -> SparkSession:
    """Return a session of the server at `url`: `sc://host:port`, with parameters that Spark supports.

    With a `name`, each call returns the same session, as long as the server keeps it. Work that a dead
    process left in it is interrupted: the caller must be the only user, as the holder of a stream's lease is.
    Without a name, the session is the one of this process, or a new one, which ends with the process. A
    `session_id` in the URL overrides both.

    Raises SparkLost if the server does not answer within half a minute, ends before it has answered, or
    accepts no more; SetupFailed if its Spark has another version, or it denies access.

    Example: `connect("sc://localhost:15002", name="orders-g1")`.
    """
    _wait_listening(url)
    if names_session(url):
        return _session(url)
    if name is not None:
        session = _named_session(url, name)
        _answer(url, session.interruptAll)
        return session
    active: SparkSession | None = _connect_session().getActiveSession()
    if active is None:
        active = _session(url)
        atexit.register(_end, active, url)
    return active


def names_session(url: str) -> bool:
    """Return whether the URL itself names the session, which then outlives the process.

    Example: `names_session("sc://host:15002/;session_id=8f3c…")` is True.
    """
    return url.startswith(SCHEME) and _SESSION_ID in url


def named_url(url: str, name: str, number: int = 0) -> str:
    """Return the URL of a session with a name.

    A server never reopens a session that it has closed, as it closes sessions that nobody used for an hour.

    Args:
        url: the server, `sc://host:port`, with parameters that Spark supports.
        name: the name; the same name gives the same URL in every process.
        number: the number of sessions of this name that the server has closed.
    """
    base, _, parameters = url.removeprefix(SCHEME).partition("/")
    session_id = uuid5(NAMESPACE_URL, f"tidegate:{name}#{number}")
    options = [text for text in parameters.split(";") if text]
    return f"{SCHEME}{base}/;{';'.join([*options, f'{_SESSION_ID}{session_id}'])}"


def _named_session(url: str, name: str) -> SparkSession:
    # The server never reopens a closed session, so each number leads to the next id of this name.
    for number in range(_MOST_CLOSED):
        try:
            return _session(named_url(url, name, number))
        except SparkLost as error:
            if not _is_closed_session(error.__cause__):
                raise
    raise SparkLost(f"The Spark Connect server at {_place(url)} opens no session any more", "Restart it.")


def _is_closed_session(error: BaseException | None) -> bool:
    return isinstance(error, PySparkException) and error.getCondition() == _SESSION_CLOSED


def _session(url: str) -> SparkSession:
    """Return a session that has answered."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # as `SparkSession.builder` does, which takes no channel
    session: Any = _connect_session().builder.channelBuilder(_channel(url)).create()
    session.client.set_retry_policies([DefaultPolicy(**_RETRIES)])
    # At exit PySpark asks the server to remove cached models. There are none; a hanging server would block.
    atexit.unregister(session.client._cleanup_ml_cache)
    _require_same_spark(_answer(url, lambda: str(session.version)), url)
    opened: SparkSession = session
    return opened


def _channel(url: str) -> Any:
    """Return the channel to a server. A server of this user on this machine gets its token if the URL has
    none.
    """
    from pyspark.sql.connect.client import DefaultChannelBuilder

    channel = DefaultChannelBuilder(url, _KEEPALIVE)
    token = read_token(urlsplit(url).port or _PORT) if channel.host == HOST else None
    if token is not None and channel.token is None:
        channel.set(channel.PARAM_TOKEN, token)
    return channel


def _connect_session() -> Any:
    from pyspark.sql.connect.session import SparkSession as ConnectSession  # late: it needs gRPC

    return ConnectSession


def _answer(url: str, ask: Callable[[], Answer]) -> Answer:
    """Return the server's answer, with a time limit: a call of gRPC has none.

    Raises SparkLost if there is no answer, SetupFailed if the server denies access.
    """
    answers: list[Answer] = []
    errors: list[Exception] = []

    def wait() -> None:
        try:
            answers.append(ask())
        except Exception as error:
            errors.append(error)

    # A daemon thread: a call that never returns must not keep the process from ending.
    thread = Thread(target=wait, name="ask Spark Connect", daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    if errors:
        raise _typed(url, errors[0]) from errors[0]
    if not answers:
        raise _no_answer(url, f"it took a connection, and said nothing for {_ANSWER_SECONDS} s")
    return answers[0]


def _typed(url: str, error: Exception) -> Exception:
    """Return the typed form of the error that came in place of an answer. No request was made yet that could
    be wrong, so the server is the cause: it has ended, has no memory left, or a gateway before it accepts no
    more.
    """
    status = grpc_status(error)
    if status is None:
        return error
    reason = f"{status.name}, {status.details}"
    if status.name in _ACCESS_DENIED:
        return SetupFailed(
            f"The Spark Connect server at {_place(url)} does not let tidegate in: {reason}",
            "Give its token: `;token=…` in its address, or SPARK_CONNECT_AUTHENTICATE_TOKEN. Without TLS it "
            "is sent to the host `localhost` only.",
        )
    return _no_answer(url, f"it took a connection, and gave no answer but {reason}")


def _require_same_spark(version: str, url: str) -> None:
    """Raise SetupFailed for another version: its Python workers unpickle what this process has pickled."""
    if version.split(".")[:2] != pyspark.__version__.split(".")[:2]:
        raise SetupFailed(
            f"The Spark Connect server at {_place(url)} is Spark {version}, this is PySpark "
            f"{pyspark.__version__}",
            "Run the server with the version of PySpark that is installed here, or the other way round.",
        )


def _wait_listening(url: str) -> None:
    """Return when the server listens; a server that is being restarted gets some time. Raises SparkLost with
    the system's reason.
    """
    deadline = time.monotonic() + _RESTART_SECONDS
    while (error := connection_error(url)) is not None:
        # A refused connection can be a restart; an unknown host does not appear by waiting.
        if not isinstance(error, ConnectionRefusedError) or time.monotonic() > deadline:
            raise _no_answer(url, error.strerror or str(error)) from error
        time.sleep(0.2)


def connection_error(url: str, port: int = _PORT) -> OSError | None:
    """Return why the server at a URL cannot be reached; None if it listens.

    Args:
        url: the URL of a Spark Connect server, or of a standalone master.
        port: the port, if the URL has none.
    """
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname, parts.port or port), _CONNECT_SECONDS).close()
    except OSError as error:
        return error
    except ValueError as error:  # the port is not a number
        return OSError(str(error))
    return None


def _no_answer(url: str, reason: str) -> SparkLost:
    return SparkLost(
        f"No Spark Connect server answers at {_place(url)}: {reason}",
        "Start it, or correct its address; then run again, nothing is lost.",
    )


def _place(url: str) -> str:
    """Return host and port: the rest of the URL may contain a token."""
    return urlsplit(url).netloc


def _end(session: SparkSession, url: str) -> None:
    # a server that has ended took the session with it; the client would retry for a long time
    if connection_error(url) is None:
        with suppress(PySparkException, OSError):
            session.stop()
