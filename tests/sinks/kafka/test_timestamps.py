"""Emissions whose timestamp the output topic refuses, by the broker's clock: found before the commit."""

from __future__ import annotations

import time

import pytest
from click.testing import CliRunner

from tests.quarantines import stored_quarantine
from tests.world import NOW_MS, World, key_of, stock_event
from tidegate.cli import cli
from tidegate.errors import TimestampRefused
from tidegate.kafka.topic_facts import AFTER, BEFORE
from tidegate_dev.demo.topics import committed_records

pytestmark = [pytest.mark.spark, pytest.mark.broker]
HOUR_MS = 3_600_000


@pytest.fixture
def now_ms(world: World) -> int:
    """A source that takes records from the future, in a topic with limits of its own; and the instant."""
    world.configure(world.source, {AFTER: str(2**63 - 1)})
    return time.time_ns() // 1_000_000


def doctor(world: World, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["doctor", "availability", "--json", *options], env=world.environment)
    return result.exit_code, result.output


def test_future_emission_halts_before_the_commit(world: World, now_ms: int) -> None:
    world.stock(1, timestamp_ms=now_ms)
    world.stock(0, timestamp_ms=now_ms + 2 * HOUR_MS)
    with pytest.raises(
        TimestampRefused, match=rf"{world.sink} .*1:00:00 ahead \({AFTER}=3600000\).*Run again"
    ):
        world.run("r", clock_ms=now_ms)
    assert world.app.ledger.head(world.stream).seq == 0
    assert world.published() == {}
    code, output = doctor(world)
    assert (code, "batch 1 failed in validate" in output, "TimestampRefused" in output) == (2, True, True)
    world.configure(world.sink, {AFTER: str(3 * HOUR_MS)})
    world.run("r", clock_ms=now_ms)
    assert world.published() == {key_of(): [True, False]}


def test_future_emissions_are_quarantined_where_declared(world: World, now_ms: int) -> None:
    world.write_pipeline(**{"with_key: true}": "with_key: true, refused_timestamp: quarantine}"})
    world.stock(1, timestamp_ms=now_ms)
    world.stock(0, timestamp_ms=now_ms + 2 * HOUR_MS)
    world.stock(2, product=2, timestamp_ms=now_ms - HOUR_MS)
    world.run(clock_ms=now_ms)
    assert world.published() == {key_of(): [True], key_of(product=2): [True]}
    (row,) = stored_quarantine(world.app, world.stream)
    assert (row["offset"], row["reason"], row["timestamp"]) == (1, "refused_timestamp", now_ms + 2 * HOUR_MS)
    counts = world.counts(1)
    assert (counts["emitted"], counts["emitted-refused-timestamp"], counts["emitted-too-large"]) == (3, 1, 0)


def test_emission_ahead_of_the_batch_clock_is_sent(world: World) -> None:
    world.write_pipeline(**{"with_key: true}": "with_key: true, refused_timestamp: quarantine}"})
    world.stock(1, timestamp_ms=NOW_MS + 2 * HOUR_MS)
    world.run(clock_ms=NOW_MS)
    assert world.published() == {key_of(): [True]}


def test_old_emission_halts_and_doctor_reports_the_limit(world: World) -> None:
    world.configure(world.sink, {BEFORE: str(HOUR_MS)})
    world.stock(1)
    with pytest.raises(TimestampRefused, match=rf"1:00:00 old \({BEFORE}=3600000\)"):
        world.run("r")
    assert world.app.ledger.head(world.stream).seq == 0
    assert f"{world.sink} refuses timestamps older than 1:00:00" in doctor(world)[1]


def test_record_sink_sends_and_checks_kafkas_timestamp(world: World) -> None:
    columns = {
        "quantity int": "quantity int, at bigint",
        "with_key: true": "with_key: true, timestamp: record",
    }
    world.write_pipeline(source_extra="timestamp: at", **columns)
    world.configure(world.sink, {BEFORE: str(HOUR_MS)})
    now_ms = time.time_ns() // 1_000_000
    event = stock_event(1, timestamp_ms=now_ms - 1000)
    world.send(event | {"value": event["value"] | {"at": now_ms - 5 * HOUR_MS}})
    world.run(clock_ms=now_ms)
    assert [record.timestamp for record in committed_records(world.servers, world.sink)] == [now_ms - 1000]
    world.send(
        event
        | {"value": event["value"] | {"quantity": 0, "at": now_ms}, "timestamp_ms": now_ms - 5 * HOUR_MS}
    )
    with pytest.raises(TimestampRefused, match="1:00:00 old"):
        world.run(clock_ms=now_ms)
