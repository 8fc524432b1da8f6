"""What a batch cannot use, in a topic of dead letters; on real Kafka and real Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.world import NOW_MS, World
from tidegate import quarantine
from tidegate.errors import TopicMissing
from tidegate.quarantine import ReplayedRecords
from tidegate_dev.demo.topics import committed_records

pytestmark = [pytest.mark.spark, pytest.mark.broker]

HUGE = 2**63 - 1
HEADERS = [("trace", b"\xff"), ("tidegate-source", b"hop/0/7"), ("trace", b"")]


def write(world: World, dead: str) -> None:
    """Sums by a column's time, and in a later stage a condition that divides by them."""
    total = {"name": "total", "reduce": {"n": "sum(x)"}, "emit": {"on": "update"}, "on_error": "quarantine"}
    inverse = {
        "name": "inverse",
        "select": {"n": "n"},
        "emit": {"on": "change", "equal": {"sql": "old.n % new.n = 7"}},
        "on_error": "quarantine",
    }
    source = {"columns": "x bigint, at bigint", "timestamp": "at"}
    world.write(source, total, inverse, quarantine={"topic": dead})


def letters(world: World, dead: str) -> list[tuple[Any, ...]]:
    """Batch, offset, reason and part, key, value and timestamp of each, and the headers that it brought."""
    rows = []
    for record in committed_records(world.servers, dead):
        headers = {name.removeprefix("tidegate-quarantine-"): value for name, value in record.headers}
        batch, offset = (headers[name].decode().rpartition("/")[2] for name in ("batch", "position"))
        reason = headers["reason"].decode().partition(":")[0]
        brought = [header for header in record.headers if "quarantine" not in header[0]]
        place = int(batch), int(offset)
        record_itself = record.key, record.value, record.timestamp, brought
        rows.append((*place, reason, headers.get("part"), *record_itself))
    return sorted(rows, key=lambda row: row[:3])


def test_dead_letters_hold_records_of_all_stages(
    world: World,
) -> None:
    dead = f"dead-{world.name}"
    write(world, dead)
    values = [{"x": 1}, {"x": HUGE}, {"x": 4}, {"x": -5}, {"x": 2}]
    sent = [json.dumps({**value, "at": NOW_MS - 5000}).encode() for value in values]
    world.send(
        *(
            {"key": key, "value": value, "headers": HEADERS, "timestamp_ms": NOW_MS - 1000 + number}
            for number, (key, value) in enumerate(
                [*((b"k", value) for value in sent), (b"k", b"{no json"), (None, sent[0])]
            )
        )
    )
    with pytest.raises(TopicMissing, match=dead):
        world.run()
    world.create(dead)
    world.run()
    came = NOW_MS - 1000
    emission = (b"emission", b"k", b'{"window_start":null,"window_end":null,"n":0}', NOW_MS - 5000, [])
    expected = [
        (1, 1, "record_failed", None, b"k", sent[1], came + 1, HEADERS),
        (1, 3, "condition_failed", *emission),
        (1, 5, "malformed", None, b"k", b"{no json", came + 5, HEADERS),
        (1, 6, "null_key", None, None, sent[0], came + 6, HEADERS),
    ]
    assert letters(world, dead) == expected

    where = quarantine.QuarantineFilter(reasons=["malformed"])
    request = ReplayedRecords(lambda: quarantine.iter_open(world.app, world.stream, where), "ada", "in vain")
    world.run(replay=request)
    assert letters(world, dead) == [*expected, (2, *expected[2][1:])]
    assert world.app.ledger.publications(world.stream, 2)[f"dead-letters:{dead}"] == 1
