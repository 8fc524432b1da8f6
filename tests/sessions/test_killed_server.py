"""A Spark Connect server that ends, or hangs, in the middle of a batch: a retry, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REPOSITORY
from tests.world import World, key_of, stock_event
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.spark_server import SparkServer
from tidegate_dev.warden import living_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.long]

PRODUCTS = 2_000
EVENTS = 150_000


@pytest.fixture
def server(tmp_path: Path) -> SparkServer:
    return SparkServer(tmp_path / "spark", conf={"spark.master": "local[2]"})


@pytest.fixture
def filled(broker: KafkaBroker, tmp_path: Path) -> World:
    """A world of which each product is there once, then gone, then there again, as often as there is room."""

    def no_session(_: int) -> SparkSession:
        raise AssertionError("batches run in processes of their own")

    world = World(broker.bootstrap_servers, tmp_path, no_session)
    world.send(*(stock_event(1 - event // PRODUCTS % 2, product=event % PRODUCTS) for event in range(EVENTS)))
    return world


def run(world: World, server: SparkServer) -> subprocess.Popen[str]:
    """`tidegate run` of one batch, always of the same run."""
    environment = {**os.environ, **world.environment, "TIDEGATE_SPARK_MASTER": server.url}
    command = [str(Path(sys.executable).parent / "tidegate"), "run", "availability", "--run-id", "r"]
    return subprocess.Popen(command, env=environment, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)


def wait_until(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def assert_as_of_one_run(world: World) -> None:
    times = EVENTS // PRODUCTS
    expected = [turn % 2 == 0 for turn in range(times)]
    published = world.published()
    assert set(published) == {key_of(product=number) for number in range(PRODUCTS)}
    assert all(values == expected for values in published.values())
    assert world.app.ledger.head(world.stream).seq == 1


def test_killed_server_costs_one_retry(filled: World, server: SparkServer) -> None:
    with server:
        process = run(filled, server)
        assert server._process is not None
        top = server._process.pid
        assert top is not None
        wait_until(lambda: len(living_below(top)) > 1)  # the workers' daemon, and a worker
        server.kill()
        _, output = process.communicate(timeout=600)
        assert (process.returncode, "SparkLost" in output) == (1, True), output[-3000:]
        assert filled.app.ledger.head(filled.stream).seq == 0
        server.start()
        retry = run(filled, server)
        _, output = retry.communicate(timeout=300)
        assert retry.returncode == 0, output[-3000:]
    assert_as_of_one_run(filled)


def test_hanging_server_is_given_up_and_retried(filled: World, server: SparkServer) -> None:
    with server:
        assert server._process is not None
        assert server._process.pid is not None
        os.kill(server._process.pid, signal.SIGSTOP)
        process = run(filled, server)
        _, output = process.communicate(timeout=600)
        assert (process.returncode, "said nothing for 30 s" in output) == (1, True), output[-3000:]
        os.kill(server._process.pid, signal.SIGCONT)
        retry = run(filled, server)
        _, output = retry.communicate(timeout=300)
        assert retry.returncode == 0, output[-3000:]
    assert_as_of_one_run(filled)
