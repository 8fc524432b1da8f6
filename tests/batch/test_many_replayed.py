"""A million records in quarantine are listed, corrected and replayed, while whoever does it is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.world import NOW_MS, World
from tidegate import quarantine
from tidegate_dev.demo.topics import committed_records

RECORDS = int(os.environ.get("TIDEGATE_TEST_RECORDS", "1000000"))
DEATHS = (
    "manifest.write=kill_after@1",  # its input is written, and no plan names it
    "ledger.add_plan=kill_after@1",
    "ledger.add_attempt=kill@1",  # all is computed, and nobody knows
    "ledger.commit=kill_after@1",
    "publish.commit=kill_after@1",  # in the middle of publishing
)
REPOSITORY = Path(__file__).resolve().parents[2]


def send_unusable(world: World) -> None:
    """Each of another product, with a text in place of a number."""
    producer = ck.Producer({"bootstrap.servers": world.servers, "linger.ms": 50})
    for number in range(RECORDS):
        value = b'{"storeId":"s1","id":%d,"quantity":"%d"}' % (number, number % 2)
        while True:
            try:
                producer.produce(
                    world.source, value, partition=number % 2, timestamp=NOW_MS - 1000, on_delivery=None
                )
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def replay(world: World, fault: str) -> int:
    """A try of the one run; its exit code."""
    environment = {**os.environ, **world.environment, "TIDEGATE_FAILPOINTS": fault or "none=raise"}
    began = time.monotonic()
    command = [sys.executable, "-m", "tests.batch.replaying", "replay"]
    code = subprocess.run(command, cwd=REPOSITORY, env=environment, check=False, timeout=1200).returncode
    print(f"{fault or 'undisturbed'}: exit code {code} after {time.monotonic() - began:.1f} s", flush=True)
    return code


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
def test_million_records_replay_once_under_kills(
    world: World,
) -> None:
    send_unusable(world)
    world.run()
    assert world.counts(1)["quarantined"] == RECORDS
    began = time.monotonic()
    [page] = quarantine.list_quarantine(world.app, world.stream, limit=50)
    print(f"listed in {time.monotonic() - began:.2f} s")
    assert page.num_rows == 50

    lease = world.app.ledger.acquire(world.stream, "run-1")
    lease.release()
    assert [replay(world, fault) for fault in (*DEATHS, "")] == [-9] * len(DEATHS) + [0]

    sent = Counter(record.key for record in committed_records(world.servers, world.sink))
    assert len(sent) == RECORDS
    assert set(sent.values()) == {1}
    statuses = quarantine.count_by_status(world.app, world.stream, quarantine.QuarantineFilter())
    assert statuses[quarantine.Status.REPLAYED] == RECORDS
    [resolution] = world.app.ledger.resolutions(world.stream)
    assert resolution.manifest.file_rows == RECORDS
