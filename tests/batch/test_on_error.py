"""Records that a stage cannot use, on real Kafka and real Spark."""

from __future__ import annotations

import json

import pytest

from tests.quarantines import stored_quarantine
from tests.world import NOW_MS, World
from tidegate.errors import RecordFailed
from tidegate_dev.demo.topics import read_published

pytestmark = [pytest.mark.spark, pytest.mark.broker]

HUGE = 2**63 - 1


def write(world: World, **on_error: str) -> None:
    """Sums, and in a later stage a condition that divides by them."""
    total = {"name": "total", "reduce": {"n": "sum(x)"}, "emit": {"on": "update"}, **on_error}
    inverse = {
        "name": "inverse",
        "select": {"n": "n"},
        "emit": {"on": "change", "equal": {"sql": "old.n % new.n = 7"}},
    }
    world.write({"columns": "x bigint"}, total, {**inverse, **on_error})


def test_unusable_record_halts_or_is_quarantined_whole(world: World) -> None:
    write(world)
    numbers = [1, HUGE, 4, -5, 2]
    headers = [("from", b"here"), ("from", b"there")]
    for number in numbers:
        world.send({"key": b"k", "value": {"x": number}, "timestamp_ms": NOW_MS - 1000, "headers": headers})
    with pytest.raises(
        RecordFailed, match=rf"`n`, sum\(…\).*at the record {world.source}/\d/1 in the stage `total`"
    ):
        world.run()
    lease = world.app.ledger.acquire(world.stream, "doctor")
    lease.drop_plan()
    lease.release()

    write(world, on_error="quarantine")
    world.run()
    published = read_published(world.servers, world.sink)
    assert published == {"k": [{"n": 1}, {"n": 5}, {"n": 2}]}, "the second stage cannot test 0"
    first, second = stored_quarantine(world.app, world.stream)
    assert (first["offset"], first["key"], json.loads(first["value"])) == (1, b"k", {"x": HUGE})
    assert [(header["key"], header["value"]) for header in first["headers"]] == headers
    assert first["reason"].startswith("record_failed: `n`, sum(…), becomes too large")
    assert (second["offset"], second["key"], json.loads(second["value"])["n"]) == (3, b"k", 0)
    assert second["reason"].startswith(
        "condition_failed: `old.n % new.n = 7` has no result: it divides by zero"
    )
    counts = world.counts(1)
    assert (counts["read"], counts["used"], counts["quarantined"]) == (5, 4, 1)
