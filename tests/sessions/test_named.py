"""Sessions that a real Spark Connect server keeps under a name, and what becomes of them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.sessions import named
from tidegate_dev.spark_server import SparkServer

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    with SparkServer(tmp_path_factory.mktemp("spark"), conf={"spark.master": "local[2]"}) as running:
        yield running


def command(server: SparkServer, *arguments: str) -> list[str]:
    return [sys.executable, "-m", named.__name__, server.url, *arguments]


def workers(server: SparkServer, name: str) -> list[int]:
    """The parents of the workers of a session."""
    done = subprocess.run(
        command(server, name, "look"),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    pids: list[int] = json.loads(done.stdout)
    return pids


def test_name_finds_its_workers_from_another_process(
    server: SparkServer,
) -> None:
    first = workers(server, "one")
    assert workers(server, "one") == first
    assert not set(workers(server, "another")) & set(first)


def test_closed_session_is_replaced(server: SparkServer) -> None:
    before = workers(server, "closed")
    subprocess.run(command(server, "closed", "close"), cwd=REPOSITORY, timeout=300, check=True)
    assert workers(server, "closed")
    assert workers(server, "closed") == workers(server, "closed") != before


def test_work_of_a_dead_process_is_interrupted(server: SparkServer, tmp_path: Path) -> None:
    mark = tmp_path / "hangs"
    with subprocess.Popen(command(server, "dead", "hang", str(mark)), cwd=REPOSITORY) as process:
        deadline = time.monotonic() + 300
        while len(list(tmp_path.iterdir())) < 2:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.1)
        process.kill()
    assert workers(server, "dead")  # there are two cores, and both were taken


def test_grown_server_restarts_when_idle(server: SparkServer) -> None:
    before = workers(server, "one")
    assert not server.maintain()
    with subprocess.Popen(
        [*command(server, "busy", "hang", "/dev/null/none")], cwd=REPOSITORY, stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 300
        while not server._is_connected():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert not server.maintain(most_bytes=1)
        process.kill()
    deadline = time.monotonic() + 60
    while not server.maintain(most_bytes=1):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert workers(server, "one") != before
