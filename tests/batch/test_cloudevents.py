"""CloudEvents through a real broker: both modes are read, and the events that go out keep their ids."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.world import World
from tidegate_dev.demo.topics import committed_records

pytestmark = [pytest.mark.spark, pytest.mark.broker]

TYPE = "shop.order"
ATTRIBUTES = {"specversion": "1.0", "source": "/shop", "type": "order.changed"}


def write_pipeline(world: World, structured: str) -> None:
    """Write a pipeline that sends binary events to the sink of the world, and structured ones elsewhere."""
    sink = {"kind": "kafka", "format": "cloudevents"}
    columns = "order bigint, total int, ce_type string"
    world.write(
        {"format": "cloudevents", "columns": columns, "key": ["order"]},
        {"name": "orders", "select": {"total": "total", "type": "ce_type"}, "emit": {"on": "change"}},
        sinks=[
            {**sink, "topic": world.sink, "cloudevents": {"mode": "binary", "type": TYPE}},
            {**sink, "topic": structured, "cloudevents": {"type": TYPE}},
        ],
    )


def send_events(world: World) -> None:
    """Send an event in each mode, and a deletion."""
    event = {**ATTRIBUTES, "id": "e-1", "data": {"order": 7, "total": 10}}
    headers = {f"ce_{name}": text for name, text in {**ATTRIBUTES, "id": "e-2"}.items()}
    binary = [(name, text.encode()) for name, text in {**headers, "content-type": "application/json"}.items()]
    world.send(
        {"key": b"7", "value": event, "headers": [("content-type", b"application/cloudevents+json")]},
        {"key": b"7", "value": {"order": 7, "total": 12}, "headers": binary},
        {"key": b"7", "value": None},
    )


def test_events_of_both_modes_pass_a_real_broker(world: World) -> None:
    structured = f"events-{world.name}"
    world.create(structured)
    write_pipeline(world, structured)
    send_events(world)
    world.run()
    in_binary = [_event_of(record) for record in committed_records(world.servers, world.sink)]
    in_json = [
        _event_of(record) if record.value is None else json.loads(record.value)
        for record in committed_records(world.servers, structured)
    ]
    assert in_binary == in_json, "both sinks of the stage have the same events"
    assert [event.get("data") for event in in_json] == [
        {"total": 10, "type": "order.changed"},
        {"total": 12, "type": "order.changed"},
        None,
    ]
    assert {(event["type"], event["subject"]) for event in in_json} == {(TYPE, "7")}
    assert len({event["id"] for event in in_json}) == 3
    assert in_json[0]["time"].startswith("2023-11-14T")
    assert world.counts(1)["quarantined"] == 0


def _event_of(record: Any) -> dict[str, Any]:
    """Return a message of binary mode as an event."""
    headers = {name: text.decode() for name, text in record.headers}
    event: dict[str, Any] = {
        name.removeprefix("ce_"): text for name, text in headers.items() if name.startswith("ce_")
    }
    if record.value is None:
        return event
    return {**event, "datacontenttype": headers["content-type"], "data": json.loads(record.value)}
