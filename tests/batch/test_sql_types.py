"""Windows, arrays and JSON of a pipeline in a table of PostgreSQL, on real Kafka and Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from tests.quarantines import stored_quarantine
from tests.world import NOW_MS, World
from tidegate.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.broker]

HOURS = """\
pipeline: availability
source:
  topics: [{source}]
  format: json
  columns: "customerId bigint, action string, payload string, place struct<city:string>"
  key: [customerId]
stages:
  - name: hours
    window: {{tumbling: 1h}}
    reduce: {{actions: collect_list(action), payload: last(payload), place: last(place)}}
    emit: {{on: update}}
sinks:
  - kind: sql
    table: hours
    mode: upsert
    with_key: true
    types: {{payload: json}}
    refused_row: quarantine
"""
HOUR_MS = 3_600_000


def test_table_has_windows_arrays_and_json(world: World, postgres_url: str) -> None:
    file = world.folder / "pipelines" / "availability.yaml"
    file.write_text(HOURS.format(source=world.source))
    environment = world.environment | {"TIDEGATE_SQL": postgres_url}
    world.app = replace(world.app, settings=Settings.from_environment(environment))

    def visit(customer: int, action: str, payload: str) -> dict[str, Any]:
        value = {"customerId": customer, "action": action, "payload": payload, "place": {"city": "Zürich"}}
        return {"value": value, "timestamp_ms": NOW_MS}

    world.send(visit(1, "a", '{"n": 1.50}'), visit(1, "b", '{"n": 2}'), visit(2, "c", "{"))
    world.run(clock_ms=NOW_MS)
    start = datetime.fromtimestamp(NOW_MS // HOUR_MS * HOUR_MS / 1000, timezone.utc)
    query = (
        "SELECT \"customerId\", actions, payload->>'n', place->>'city', window_start, window_end, "
        "pg_typeof(payload)::text FROM hours"
    )
    engine = create_engine(postgres_url)
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(text(query))]
    engine.dispose()
    end = start + timedelta(hours=1)
    assert rows == [(1, ["a", "b"], "2", "Zürich", start, end, "jsonb")]
    (refused,) = stored_quarantine(world.app, world.stream)
    assert refused["reason"] == "refused_row: its column payload holds a text that is no JSON"
