"""Two sources of two formats, on real Kafka and real Spark: one batch, its counts, and what explains it."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from click.testing import CliRunner

import yaml
from tests.world import NOW_MS, World
from tidegate import inspect
from tidegate.cli import cli
from tidegate.errors import TopicShared
from tidegate_dev.demo.topics import read_published

pytestmark = [pytest.mark.spark, pytest.mark.broker]

PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "orderId", "type": "string"}, {"name": "paid", "type": ["null", "long"]}],
}


def write(world: World, **edits: dict[str, Any]) -> None:
    """Write a pipeline of orders in JSON and payments in Avro, which are edited so."""
    folder = world.folder / "pipelines"
    (folder / "payment.avsc").write_text(json.dumps(PAYMENT))
    orders = {"format": "json", "columns": "orderId string, amount bigint", "key": ["orderId"]}
    payments = {"format": "avro", "schema": "payment.avsc", "key": ["orderId"]}
    data = {
        "pipeline": "availability",
        "sources": {
            "orders": {"topics": [world.source], **orders, **edits.get("orders", {})},
            "payments": {"topics": [f"paid-{world.name}"], **payments, **edits.get("payments", {})},
        },
        "stages": [
            {
                "name": "open",
                "reduce": {"open": "coalesce(sum(amount), 0) - coalesce(sum(paid), 0)"},
                "emit": {"on": "change"},
            },
            {"name": "ordered", "from": "orders", "reduce": {"n": "count(*)"}, "emit": {"on": "update"}},
        ],
        "sinks": [{"kind": "kafka", "topic": world.sink, "stage": "open"}],
    }
    (folder / "availability.yaml").write_text(yaml.safe_dump(data, sort_keys=False))


def payment(order: str, paid: int, at: int) -> dict[str, Any]:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, PAYMENT, {"orderId": order, "paid": paid})
    return {"value": body.getvalue(), "timestamp_ms": NOW_MS - 5000 + at}


def order(name: str, amount: int, at: int) -> dict[str, Any]:
    return {"value": {"orderId": name, "amount": amount}, "timestamp_ms": NOW_MS - 5000 + at}


def test_two_formats_are_read_in_one_batch(world: World) -> None:
    paid = f"paid-{world.name}"
    world.create(paid)
    write(world, orders={"max_records": 3})
    world.send(order("a", 20, 0), order("b", 7, 1), {"value": b"{"}, order("b", 1, 9))
    world.send(*({**record, "topic": paid} for record in (payment("a", 15, 5), payment("b", 7, 6))))
    world.run()
    assert read_published(world.servers, world.sink) == {
        "a": [{"open": 20}, {"open": 5}],
        "b": [{"open": 7}, {"open": 0}],
    }
    report = inspect.batch_report(world.app.ledger, world.stream, 1)
    assert report is not None
    assert (report.came_in, sum(report.fates.values()), report.quarantined) == (5, 5, 1)
    reads = {name: (counts["read"], counts["quarantined"]) for name, counts in report.sources.items()}
    assert reads == {"orders": (3, 1), "payments": (2, 0)}
    world.send({**payment("a", 5, 8), "topic": paid})
    world.run()
    assert read_published(world.servers, world.sink)["a"][-1] == {"open": 0}
    assert read_published(world.servers, world.sink)["b"][-1] == {"open": 1}
    shown = CliRunner().invoke(
        cli,
        ["explain", "availability", "a", "--batch", "1", "--stage", "ordered", "--json"],
        env=world.environment,
    )
    (batch,) = json.loads(shown.stdout)
    records = [event for event in batch["events"] if event["what"] == "record"]
    assert [record["source"] for record in records] == [f"{world.source}/0/0"]


def test_topic_of_two_patterns_halts_the_plan(world: World) -> None:
    world.create(f"paid-{world.name}")
    write(
        world,
        orders={"topics": {"pattern": f"(stock|paid)-{world.name}"}},
        payments={"topics": {"pattern": f"paid-{world.name}"}},
    )
    with pytest.raises(TopicShared, match=f"paid-{world.name} is selected by the sources `orders` and `pay"):
        world.run()
