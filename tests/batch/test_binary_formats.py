"""Avro and Protobuf as Confluent's own serialisers write them, on real Kafka and real Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.quarantines import stored_quarantine
from tests.registry import RegistryServer, running_registry
from tests.world import NOW_MS, World, key_of
from tidegate.app import App
from tidegate.errors import RegistryUnavailable

pytestmark = [pytest.mark.spark, pytest.mark.broker]

EVENT = {
    "type": "record",
    "name": "Stock",
    "namespace": "shop",
    "fields": [
        {"name": "storeId", "type": "string"},
        {"name": "id", "type": "long"},
        {"name": "quantity", "type": "int"},
    ],
}
TWO = {**EVENT, "fields": [{"name": "note", "type": ["null", "string"], "default": None}, *EVENT["fields"]]}
PROTO = """
syntax = "proto3";
package shop;
message Stock { string storeId = 1; int64 id = 2; int32 quantity = 3; }
"""


@dataclass
class Shop:
    """A world with a registry beside it."""

    world: World
    registry: RegistryServer

    def write(self, **source: Any) -> None:
        world = self.world
        stage = {"name": "availability", "select": {"isAvailable": "quantity > 0"}, "emit": {"on": "change"}}
        world.write({"key": ["storeId", "id"], **source}, stage)
        world.app = App.from_environment({**world.environment, "TIDEGATE_REGISTRY_SHOP": self.registry.url})

    def send(self, *values: bytes) -> None:
        self.world.send(*({"key": b"any", "value": value, "timestamp_ms": NOW_MS - 1000} for value in values))

    def reasons(self) -> list[str]:
        return [row["reason"] for row in stored_quarantine(self.world.app, self.world.stream)]


@pytest.fixture
def shop(world: World) -> Iterator[Shop]:
    with running_registry() as server:
        yield Shop(world, server)


def test_avro_of_several_writers_is_read_without_registry(shop: Shop) -> None:
    client = SchemaRegistryClient({"url": shop.registry.url})
    context = SerializationContext(shop.world.source, MessageField.VALUE)
    stock = {"storeId": "s1", "id": 1, "note": None}
    texts = [
        AvroSerializer(client, json.dumps(schema))({**stock, "quantity": quantity}, context)
        for schema, quantity in ((EVENT, 5), (TWO, 0))
    ]
    columns = "storeId string, id bigint, quantity int"
    shop.write(format="avro", registry={"connection": "shop"}, columns=columns)
    shop.send(texts[0], texts[1], texts[0][:-1], b"\0\0\0\0\x63", b"{}")

    shop.registry.status = 503
    with pytest.raises(RegistryUnavailable):
        shop.world.run()
    shop.registry.status = 0
    shop.world.run()
    asked = len(shop.registry.asked)
    assert shop.world.published() == {'{"storeId":"s1","id":1}': [True, False]}
    assert shop.reasons() == [
        "malformed: The value ends too early - at `$.quantity`",
        "unknown_schema: 99",
        "malformed: Expected a schema's id, but the value is too short for one",
    ]
    shop.world.run()
    assert len(shop.registry.asked) == asked, "nothing was there to read"


@pytest.mark.long
def test_protobuf_by_a_file_and_by_a_registry(shop: Shop) -> None:
    folder = shop.world.folder / "pipelines"
    (folder / "stock.proto").write_text(PROTO)
    shop.write(format="protobuf", schema="stock.proto")
    value = b"\x0a\x02s1\x10\x01\x18\x05"
    shop.send(value, value[:-1], value[:-2])
    shop.world.run()
    assert shop.world.published() == {'{"storeId":"s1","id":1}': [True, False]}
    assert shop.reasons() == ["malformed: The value ends too early - at `$.quantity`"]

    client = SchemaRegistryClient({"url": shop.registry.url})
    id_ = client.register_schema(f"{shop.world.source}-value", Schema(PROTO, "PROTOBUF"))
    shop.write(format="protobuf", schema="stock.proto", registry={"connection": "shop"})
    shop.send(b"\0" + id_.to_bytes(4, "big") + b"\0" + value)
    shop.world.run()
    assert shop.world.published() == {'{"storeId":"s1","id":1}': [True, False, True]}


@pytest.mark.long
def test_avro_key_columns_identify_a_tombstone(shop: Shop) -> None:
    client = SchemaRegistryClient({"url": shop.registry.url})
    fields = [{"name": "id", "type": "long"}, {"name": "storeId", "type": "string"}]
    write = AvroSerializer(client, json.dumps({"type": "record", "name": "Key", "fields": fields}))
    key = write({"storeId": "s1", "id": 1}, SerializationContext(shop.world.source, MessageField.KEY))
    shop.write(
        format="json",
        columns="quantity int",
        key_format="avro",
        key_columns="storeId string, id bigint",
        key_registry={"connection": "shop"},
    )
    records = [(key, b'{"quantity": 5}'), (b"s1", b'{"quantity": 5}'), (key, b'{"quantity": 0}'), (key, None)]
    shop.world.send(*({"key": key, "value": value, "timestamp_ms": NOW_MS - 1000} for key, value in records))
    shop.world.run()
    assert shop.world.published() == {key_of("s1", 1): [True, False, None]}
    (reason,) = shop.reasons()
    assert reason.startswith("malformed_key: Expected a schema's id, but the value is too short for one")
