"""An interval that `max_records` cuts: on real Kafka and Spark, the emissions of one that is read whole."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.world import NOW_MS, World
from tidegate import inspect

pytestmark = [pytest.mark.spark, pytest.mark.broker]

VISITS = """\
pipeline: availability
generation: {generation}
source:
  topics: [{source}]
  format: json
  columns: "customer bigint, visitor bigint"
  key: [customer]
  {limit}
stages:
  - name: visits
    select: {{visitor: visitor}}
    reduce: collect
    emit: {{on: threshold, count: 3, after: 60s}}
  - name: per_minute
    reduce: {{batches: "count(*)"}}
    window: {{tumbling: 60s, grace: 10s}}
    emit: {{on: window_close}}
sinks:
  - {{kind: table, path: {folder}/visits, stage: visits}}
  - {{kind: table, path: {folder}/per_minute}}
"""
END_MS = NOW_MS + 200_000


def write(world: World, generation: int, limit: str = "") -> None:
    folder = world.folder / f"generation-{generation}"
    text = VISITS.format(generation=generation, source=world.source, limit=limit, folder=folder)
    (world.folder / "pipelines" / "availability.yaml").write_text(text)


def visits(world: World) -> None:
    """Send visits of two customers, one in each partition: one every ten seconds, and some late ones."""
    times = [10_000 * number - (25_000 if number % 5 == 4 else 0) for number in range(18)]
    world.send(
        *(
            {
                "value": {"customer": customer, "visitor": number},
                "partition": customer % 2,
                "timestamp_ms": NOW_MS + time,
            }
            for number, time in enumerate(times)
            for customer in (1, 2)
        )
    )


def read_to_the_end(world: World) -> int:
    """The interval, in as many batches as that takes; then one more clock. Returns how many they were."""
    for number in itertools.count(1):
        plan = world.run(clock_ms=END_MS, interval_end_ms=END_MS).plan
        assert plan is not None
        if not plan.cut_partitions:
            world.run(clock_ms=END_MS + 600_000, interval_end_ms=END_MS)
            return number
    raise AssertionError


def emissions(world: World) -> dict[str, list[dict[str, Any]]]:
    """Return all emissions that a consumer sees, by stage, in the order of each key."""
    names = ["key", "value", "timestamp", "window_start", "window_end", "reason"]
    rows_by_stage = {}
    for stage in ("visits", "per_minute"):
        rows = inspect.read_emissions(world.app, world.stream, stage=stage)
        rows = rows.sort_by([("key", "ascending"), ("seq", "ascending"), ("ordinal", "ascending")])
        rows_by_stage[stage] = rows.select([name for name in names if name in rows.column_names]).to_pylist()
    return rows_by_stage


@pytest.mark.sample(3, of="a naive model beside Spark")
def test_cut_run_has_the_emissions_of_a_whole(world: World) -> None:
    visits(world)
    write(world, generation=1)
    assert read_to_the_end(world) == 1
    whole = emissions(world)
    write(world, generation=2, limit="max_records: 13")
    assert read_to_the_end(world) == 3
    assert emissions(world) == whole
    assert len(whole["visits"]) > 8
    assert len(whole["per_minute"]) > 4
