"""Late records in a topic of their own, on a real broker and Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.world import NOW_MS, World
from tidegate import inspect
from tidegate_dev.demo.topics import committed_records

pytestmark = [pytest.mark.spark, pytest.mark.broker]
MINUTE_MS = 60_000


def _write(world: World, late: str) -> Path:
    stage = """
    reduce: {n: "count(*)"}
    window: {tumbling: 10m}
    emit: {on: update}
    on_late: emit"""
    old = """
    select: {isAvailable: "quantity > 0"}
    reduce: latest
    emit: {on: change, equal: exact}"""
    sinks = f"  - {{kind: kafka, topic: {late}, stage: availability.late, headers: true}}"
    return world.write_pipeline(extra=sinks, **{old: stage})


def test_late_records_go_to_their_topic_once(world: World) -> None:
    late = f"late-{world.name}"
    world.create(late)
    _write(world, late)
    start = NOW_MS - NOW_MS % (10 * MINUTE_MS) - 60 * MINUTE_MS
    world.stock(1, timestamp_ms=start)
    world.stock(2, timestamp_ms=start + 30 * MINUTE_MS)
    world.stock(3, timestamp_ms=start + MINUTE_MS)
    world.run("first")
    world.run("first")
    world.stock(4, timestamp_ms=start + 2 * MINUTE_MS)
    world.run("second")
    messages = list(committed_records(world.servers, late))
    assert [(json.loads(message.value)["quantity"], message.timestamp) for message in messages] == [
        (3, start + MINUTE_MS),
        (4, start + 2 * MINUTE_MS),
    ]
    assert [json.loads(message.value)["lateness"] for message in messages] == [29 * MINUTE_MS, 28 * MINUTE_MS]
    assert dict(messages[0].headers)["tidegate-window"] == b"%d/%d" % (start, start + 10 * MINUTE_MS)
    assert (world.counts(1)["expired-window-record-drop"], world.counts(1)["late-emitted"]) == (1, 1)
    assert inspect.stored_stages(world.app, world.stream) == ("availability", "availability.late")
    page = inspect.newest_emissions(world.app, world.stream, "availability.late")
    assert [(row.reason, row.timestamp_ms) for row in page.rows] == [
        ("late", start + 2 * MINUTE_MS),
        ("late", start + MINUTE_MS),
    ]
