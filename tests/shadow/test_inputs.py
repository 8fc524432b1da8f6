"""Shadows of pipelines with several inputs: a join, a lookup, a schema registry; and on a Spark server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import write_deltalake

from tests.registry import running_registry
from tests.shadow.test_shadow import CHANGES, QUANTITIES, at, class_counts, sent, shadow, stock
from tests.world import World, key_of
from tidegate.cli import cli

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_join_of_another_job_is_compared(world: World) -> None:
    columns = "type string, id bigint, amount int"
    sides: list[Any] = [
        {
            "name": f"{name}s",
            "from": "source",
            "filter": f"type = '{name}'",
            "select": {column: "amount"},
            "emit": {"on": "update"},
        }
        for name, column in (("order", "amount"), ("payment", "paid"))
    ]
    join = {"left": "orders", "right": "payments", "kind": "left", "within": "10s", "clock": "stream"}
    paid = {"name": "paid", "join": join, "select": {"amount": "left.amount", "paid": "right.paid"}}
    world.write({"columns": columns, "key": ["id"]}, *sides, paid)
    events = [("order", 1, 5, 0), ("order", 2, 7, 1), ("payment", 1, 5, 4), ("payment", 3, 9, 30)]
    world.send(
        *(
            {"key": b"any", "value": {"type": kind, "id": id_, "amount": n}, "timestamp_ms": at(second)}
            for kind, id_, n, second in events
        )
    )
    world.send(
        sent(world, 4, {"amount": 5, "paid": 5}, key=b"1"),
        sent(world, 1, {"amount": 7, "paid": 9}, key=b"2"),  # a payment of another order
        sent(world, 30, {"amount": None, "paid": 9}, key=b"3"),  # an outer join has it, a left one does not
    )
    report = shadow(world, code=4)
    assert class_counts(report) == {"equal": 1, "different": 1, "extra": 1}


def test_looked_up_columns_are_compared(world: World) -> None:
    table = world.folder / "regions"
    write_deltalake(table, pa.table({"storeId": ["s1"], "region": ["north"]}))
    stage = {"name": "availability", "select": {"open": "quantity > 0", "region": "region"}}
    world.write(
        {"columns": "storeId string, id bigint, quantity int", "key": ["storeId", "id"]},
        {**stage, "emit": {"on": "change"}},
        lookup=[{"table": str(table), "on": ["storeId"], "columns": ["region"]}],
    )
    stock(world, (1,))
    regions = ["north", "north", "south", "north", "north"]
    world.send(
        *(
            sent(world, number, {"open": value, "region": region})
            for (number, value), region in zip(CHANGES, regions, strict=True)
        )
    )
    report = shadow(world, "--explain", code=4)
    assert class_counts(report) == {"equal": 4, "different": 1}
    (example,) = report["examples"]
    assert example["tidegate"]["value"] == {"open": True, "region": "north"}
    assert report["explained"]["different"]


def test_both_topics_are_read_by_a_registry(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def schema(*fields: tuple[str, str]) -> str:
        described = [{"name": name, "type": type_} for name, type_ in fields]
        return json.dumps({"type": "record", "name": "Row", "fields": described})

    with running_registry() as registry:
        monkeypatch.setenv("TIDEGATE_REGISTRY_SHOP", registry.url)
        client = SchemaRegistryClient({"url": registry.url})
        event = AvroSerializer(client, schema(("storeId", "string"), ("id", "long"), ("quantity", "int")))
        change = AvroSerializer(client, schema(("isAvailable", "boolean")))
        of_source, of_sink = (
            SerializationContext(topic, MessageField.VALUE) for topic in (world.source, world.sink)
        )
        source = {"format": "avro", "registry": {"connection": "shop"}, "key": ["storeId", "id"]}
        world.write(
            {**source, "columns": "storeId string, id bigint, quantity int"},
            {"name": "availability", "select": {"isAvailable": "quantity > 0"}, "emit": {"on": "change"}},
        )
        values = [{"storeId": "s1", "id": 1, "quantity": quantity} for quantity in QUANTITIES]
        world.send(
            *(
                {"key": key_of().encode(), "value": event(value, of_source), "timestamp_ms": at(number)}
                for number, value in enumerate(values)
            )
        )
        world.send(
            *(
                sent(world, number, change({"isAvailable": value}, of_sink))
                for number, value in CHANGES
                if number != 3
            ),
            sent(world, 6, b"\0\0\0\0\x63"),
        )
        command = ["shadow", "availability", "--against", world.sink, "--format", "avro", "--registry"]
        result = CliRunner().invoke(cli, [*command, "shop", "--json"], env=world.environment)
    assert result.exit_code == 4, result.output
    report = json.loads(result.stdout)
    assert class_counts(report) == {"equal": 4, "missing": 1, "unreadable": 1}
    assert list(report["unreadable"].values()) == ["unknown_schema: 99"]


@pytest.mark.long
def test_shadow_computes_on_a_spark_connect_server(world: World, tmp_path: Path) -> None:
    from tidegate_dev.spark_server import SparkServer

    stock(world)
    world.send(*(sent(world, *change, product) for change in CHANGES for product in (1, 2)))
    with SparkServer(tmp_path / "spark", conf={"spark.master": "local[2]"}) as server:
        environment = {**os.environ, **world.environment, "TIDEGATE_SPARK_MASTER": server.url}
        command = [str(Path(sys.executable).parent / "tidegate"), "shadow", "availability"]
        command += ["--against", world.sink, "--json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert class_counts(json.loads(done.stdout)) == {"equal": 10}
