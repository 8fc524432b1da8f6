"""CSV, and JSON with a schema as Confluent's own serialiser writes it, on real Kafka and real Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.batch.test_binary_formats import Shop
from tests.registry import running_registry
from tests.world import World

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ID = {"type": "integer", "minimum": 1}
STOCK = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Stock",
    "type": "object",
    "required": ["storeId", "id"],
    "properties": {"storeId": {"type": "string"}, "id": {"$ref": "id.json"}, "quantity": {"type": "integer"}},
}
COLUMNS = "storeId string, id bigint, quantity int"


@pytest.fixture
def shop(world: World) -> Iterator[Shop]:
    with running_registry() as server:
        yield Shop(world, server)


def test_registry_json_schema_quarantines_invalid_records(shop: Shop) -> None:
    client = SchemaRegistryClient({"url": shop.registry.url})
    client.register_schema("id", Schema(json.dumps(ID), "JSON"))
    schema = Schema(json.dumps(STOCK), "JSON", [SchemaReference("id.json", "id", 1)])
    write = JSONSerializer(schema, client, conf={"validate": False})
    context = SerializationContext(shop.world.source, MessageField.VALUE)
    documents = [{"storeId": "s1", "id": 1, "quantity": 5}, {"storeId": "s1", "id": 0}, {"id": 1}]
    shop.write(format="json", registry={"connection": "shop"}, columns=COLUMNS)
    shop.send(*(write(document, context) or b"" for document in documents), b"{}")
    shop.world.run()
    assert shop.world.published() == {'{"storeId":"s1","id":1}': [True]}
    assert shop.reasons() == [
        "malformed: Expected `minimum: 1` - at `$.id`",
        "malformed: Expected `storeId`, which is required - at `$`",
        "malformed: Expected a schema's id, but the value is too short for one",
    ]


@pytest.mark.long
def test_rows_of_csv_are_read_alone(shop: Shop) -> None:
    shop.write(format="csv", columns=COLUMNS, csv={"delimiter": ";"})
    shop.send(b"s1;1;5", b'"s1', b's1";1;0', b'"s1";1;0\n', b"s1;1", b"s1;1;x")
    shop.world.run()
    assert shop.world.published() == {
        '{"storeId":"s1","id":1}': [True, False],
        '{"storeId":"s1\\"","id":1}': [False],
    }
    assert shop.reasons() == [
        "malformed: A quote is not closed - at `storeId`",
        "malformed: Expected 3 fields, got 2",
        "malformed: Expected `int` - at `quantity`",
    ]
