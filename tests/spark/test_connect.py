"""The URLs of sessions that a Spark Connect server keeps, and servers that cannot be used."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import uuid
from threading import Timer
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tidegate.errors import SetupFailed, SparkLost
from tidegate.spark import connect
from tidegate.spark.connect import named_url, names_session
from tidegate_dev.processes import free_port

pytestmark = pytest.mark.process

SERVER = "sc://spark.example:15002"
FAKE_SERVER, SAYS = "tests.spark.fake_server", "there are too many"
_SILENT = """
from tidegate.spark import connect
connect._ANSWER_SECONDS = 1
try:
    connect.connect({url!r}, "a stream")
except connect.SparkLost as error:
    print(error)
"""


def session_id(url: str) -> str:
    return url.partition("session_id=")[2]


def test_each_name_has_its_own_session() -> None:
    urls = [named_url(SERVER, name) for name in ("lake orders/1", "lake orders/1", "lake orders/2")]
    assert urls[0] == urls[1] != urls[2]
    assert uuid.UUID(session_id(urls[0]))
    assert names_session(urls[0])
    assert not names_session(SERVER)


def test_closed_session_is_replaced_under_its_name() -> None:
    ids = {session_id(named_url(SERVER, "n", number)) for number in range(100)}
    assert len(ids) == 100


@pytest.mark.parametrize("given", ["/;token=t;use_ssl=true", "/;token=t;use_ssl=true;"])
def test_the_parameters_of_a_connection_stay(given: str) -> None:
    url = named_url(f"{SERVER}{given}", "n")
    assert url.startswith(f"{SERVER}/;token=t;use_ssl=true;session_id=")
    assert named_url(f"{SERVER}/", "n") == named_url(SERVER, "n")


def test_caller_waits_for_a_starting_server() -> None:
    port = free_port()
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        timer = Timer(0.5, server.listen)
        timer.start()
        connect._wait_listening(f"sc://127.0.0.1:{port}")
        timer.join()


def test_unknown_host_is_not_awaited() -> None:
    with pytest.raises(SparkLost, match=r"answers at no\.such\.host\.invalid:1"):
        connect._wait_listening("sc://no.such.host.invalid:1/;token=secret")


def test_silent_server_is_given_up() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        program = _SILENT.format(url=f"sc://127.0.0.1:{server.getsockname()[1]}")
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False
        )
    assert "it took a connection, and said nothing for 1 s" in done.stdout, done.stderr[-2000:]


def answer_of(moment: str, status: str) -> Any:
    """Class and text of the error, and what the server was asked: see `fake_server`. In a process of its own,
    for gRPC's threads do not go with forks."""
    done = subprocess.run(
        [sys.executable, "-m", FAKE_SERVER, moment, status],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.sample(3)
@pytest.mark.parametrize("moment", ["version", "interrupt"])
@pytest.mark.parametrize("status", ["ends", "hangs", "UNAVAILABLE", "UNKNOWN"])
def test_server_that_ends_early_is_given_up(moment: str, status: str) -> None:
    error, text, asked = answer_of(moment, status)
    assert error == "SparkLost"
    assert "it took a connection, and " in text
    assert asked[-1] == moment


@pytest.mark.parametrize("moment", ["version", "interrupt"])
def test_full_server_is_transient(moment: str) -> None:
    error, text, _ = answer_of(moment, "RESOURCE_EXHAUSTED")
    assert error == "SparkLost"
    assert f"RESOURCE_EXHAUSTED, {SAYS}" in text


def test_server_that_refuses_the_login_is_permanent() -> None:
    error, text, asked = answer_of("version", "UNAUTHENTICATED")
    assert error == "SetupFailed"
    assert SAYS in text
    assert asked == ["version"]


def test_server_of_another_spark_gets_no_request() -> None:
    error, text, asked = answer_of("version", "3.5.1")
    assert error == "SetupFailed"
    assert "is Spark 3.5.1, this is PySpark" in text
    assert asked == ["version"]


def test_session_closed_by_the_server_is_replaced() -> None:
    assert answer_of("version", "closed") == ["", "", ["version", "version", "interrupt"]]


def test_another_patch_of_spark_is_accepted() -> None:
    ours = connect.pyspark.__version__
    connect._require_same_spark(f"{ours.rpartition('.')[0]}.99", SERVER)
    with pytest.raises(
        SetupFailed, match=rf"at spark\.example:15002 is Spark 3\.5\.1, this is PySpark {ours}"
    ):
        connect._require_same_spark("3.5.1", SERVER)
