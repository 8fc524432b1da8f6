"""An erasure on a real broker that is killed: tombstones for each window of the keys that a topic names."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import update

from tests.world import NOW_MS, World
from tidegate import inspect
from tidegate.cli import cli
from tidegate.errors import LeaseHeld
from tidegate.ledger import schema
from tidegate_dev.demo.topics import committed_records

pytestmark = [pytest.mark.spark, pytest.mark.broker]

CUSTOMERS = ("ada", "bob", "eve")
WINDOWS = (NOW_MS - 120_000, NOW_MS - 60_000)


@pytest.fixture
def counted(world: World) -> World:
    """Visits of three customers in two windows are counted and published."""
    visits = {"name": "visits", "window": {"tumbling": "1m"}, "reduce": {"n": "count(*)"}}
    world.write({"columns": "who string", "key": ["who"]}, visits | {"emit": {"on": "update"}})
    world.send(
        *(
            {"key": who.encode(), "value": {"who": who}, "timestamp_ms": at}
            for at in WINDOWS
            for who in CUSTOMERS
        )
    )
    world.run()
    return world


def sent_to(world: World, key: str) -> list[tuple[bytes | None, str]]:
    """Return the value and the window of each message of a key that a `read_committed` consumer sees."""
    return [
        (record.value, dict(record.headers)["tidegate-window"].decode())
        for record in committed_records(world.servers, world.sink)
        if record.key == key.encode()
    ]


def end_lease(world: World) -> None:
    """Let the lease of a killed process run out, which takes two minutes otherwise."""
    with world.app.ledger._engine.begin() as connection:
        connection.execute(update(schema.heads).values(lease_until=0))


def test_killed_erasure_sends_each_tombstone_once(counted: World) -> None:
    world, requests = counted, f"forget-{counted.name}"
    world.create(requests)
    # A key twice, in two partitions: it is one request.
    records = [("ada", 0), ("bob", 1), ("ada", 1)]
    world.send(
        *(
            {"topic": requests, "key": who.encode(), "value": b"please", "partition": partition}
            for who, partition in records
        )
    )
    command = ["erase", "availability", "--keys-topic", requests, "--yes"]
    environment = {**os.environ, **world.environment, "TIDEGATE_FAILPOINTS": "publish.commit=kill_after"}
    program = str(Path(sys.executable).parent / "tidegate")
    killed = subprocess.run([program, *command], env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    again = ["erase", "availability", "--yes"]
    assert isinstance(CliRunner().invoke(cli, again, env=world.environment).exception, LeaseHeld)
    end_lease(world)
    result = CliRunner().invoke(cli, again, env=world.environment)
    assert result.exit_code == 0, result.output
    for who in ("ada", "bob"):
        messages = sent_to(world, who)
        assert [value is None for value, _ in messages] == [False, False, True, True]
        windows = [window for _, window in messages]
        assert sorted(windows[2:]) == sorted(windows[:2])
    assert [value is None for value, _ in sent_to(world, "eve")] == [False, False]
    assert {row["key"] for row in inspect.read_state(world.app, world.stream).to_pylist()} == {"eve"}
    (certificate,) = world.app.ledger.erasures(world.stream)
    assert (len(certificate.keys), certificate.finished_at is not None) == (2, True)
