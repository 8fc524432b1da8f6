"""Stages that hold back: on real Kafka and Spark, into SQL tables; by count, by the clock, and drained."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine, text

from tests.world import NOW_MS, World
from tidegate import inspect
from tidegate.cli import cli
from tidegate.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.broker]

VISITS = """\
pipeline: availability
source:
  topics: [{source}]
  format: json
  columns: "customerId bigint, visitorId bigint, action string"
  key: [customerId]
stages:
  - name: visits
    select: {{visitorId: visitorId, action: action}}
    reduce: collect
    emit: {{on: threshold, count: 3, after: 60s}}
  - name: sizes
    select: {{visits: size(events)}}
    reduce: latest
    emit: {{on: update}}
sinks:
  - {{kind: sql, table: visitor_batches, stage: visits, with_key: true}}
  - {{kind: sql, table: newest, mode: upsert}}
"""


@pytest.fixture
def visits(world: World) -> World:
    """A pipeline with two stages, each with a sink."""
    file = world.folder / "pipelines" / "availability.yaml"
    file.write_text(VISITS.format(source=world.source))
    sql = {"TIDEGATE_SQL": f"sqlite:///{world.folder / 'sink.db'}"}
    world.app = replace(world.app, settings=Settings.from_environment(world.environment | sql))
    return world


def visit(world: World, customer: int, *visitors: int, at: int = NOW_MS) -> None:
    world.send(
        *(
            {"value": {"customerId": customer, "visitorId": visitor, "action": "a"}, "timestamp_ms": at}
            for visitor in visitors
        )
    )


def query(world: World, statement: str) -> list[tuple[Any, ...]]:
    engine = create_engine(world.app.settings.sql_url())
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(statement))]


def flushed(world: World) -> list[tuple[int, list[int]]]:
    """(customer, visitors) per row, in order."""
    rows = query(world, 'SELECT "customerId", events FROM visitor_batches ORDER BY batch, ordinal')
    return [(customer, [load["visitorId"] for load in json.loads(events)]) for customer, events in rows]


def drain(world: World, clock_ms: int) -> Any:
    """Return the result that the command prints."""
    clock = datetime.fromtimestamp(clock_ms / 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    environment = world.environment | {"TIDEGATE_SQL": world.app.settings.sql_url()}
    arguments = ["drain", "availability", "--clock", clock, "--json"]
    result = CliRunner().invoke(cli, arguments, env=environment, catch_exceptions=False)
    return json.loads(result.stdout)


def test_threshold_flushes_by_count_clock_and_drain(visits: World) -> None:
    visit(visits, 1, 1, 2, 3, 4)
    visit(visits, 2, 9)
    visits.run(clock_ms=NOW_MS)
    assert flushed(visits) == [(1, [1, 2, 3])]
    idle = visits.run(clock_ms=NOW_MS + 60_000)
    assert idle.plan is not None
    assert idle.plan.span == 0
    assert flushed(visits) == [(1, [1, 2, 3]), (1, [4]), (2, [9])]
    assert visits.run(clock_ms=NOW_MS + 70_000).plan is None
    visit(visits, 2, 10, at=NOW_MS + 70_000)
    visits.run(clock_ms=NOW_MS + 70_000)
    result = drain(visits, NOW_MS + 71_000)
    assert (result["batch"], result["emitted"], result["ranges"][0]["start"]) == (
        4,
        1,
        result["ranges"][0]["end"],
    )
    assert flushed(visits)[3:] == [(2, [10])]
    assert query(visits, "SELECT key, visits FROM newest ORDER BY key") == [("1", 1), ("2", 1)]
    report = inspect.batch_report(visits.app.ledger, visits.stream, 4)
    assert report is not None
    assert report.plan.drain
    assert report.published == {"sql:visitor_batches": 1, "sql:newest": 1}
    times = visits.app.ledger.times(visits.stream)
    assert times["visits"][visits.source, 0] == NOW_MS + 70_000
    assert set(visits.app.ledger.head(visits.stream).clocks.values()) == {NOW_MS + 71_000}


BEATS = """\
pipeline: availability
source: {{topics: [{source}], format: json, columns: "id bigint, quantity int", key: [id]}}
stages:
  - name: availability
    select: {{isAvailable: "quantity > 0"}}
    emit: {{on: change, heartbeat: 60s, clock: run}}
sinks:
  - {{kind: kafka, topic: {sink}}}
"""


def test_state_expires_by_the_clock_without_records(world: World) -> None:
    file = world.folder / "pipelines" / "availability.yaml"
    ttl = "clock: run}}\n    ttl: {{after: 60s, emit: deletion}}"
    living = BEATS.replace("heartbeat: 60s, clock: run}}", ttl)
    file.write_text(living.format(source=world.source, sink=world.sink))
    world.send({"value": {"id": 1, "quantity": 5}, "timestamp_ms": NOW_MS})
    world.run(clock_ms=NOW_MS + 1)
    idle = world.run(clock_ms=NOW_MS + 130_000)
    assert idle.plan is not None
    assert world.published() == {"1": [True, None]}
    assert world.run(clock_ms=NOW_MS + 260_000).plan is None


def test_heartbeat_follows_the_clock_without_records(world: World) -> None:
    file = world.folder / "pipelines" / "availability.yaml"
    file.write_text(BEATS.format(source=world.source, sink=world.sink))
    world.send({"value": {"id": 1, "quantity": 5}, "timestamp_ms": NOW_MS})
    world.run(clock_ms=NOW_MS + 1)
    idle = world.run(clock_ms=NOW_MS + 130_000)
    assert idle.plan is not None
    assert idle.plan.span == 0
    assert world.published() == {"1": [True] * 3}
    assert world.run(clock_ms=NOW_MS + 130_000).plan is None
