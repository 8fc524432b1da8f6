"""`sinks: schema, message`: files of schemas that messages are written by, held against what is emitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.files import problems
from tidegate.formats.protobuf.schema import proto_from_json
from tidegate.model.connection import Connection
from tidegate.sinks.kafka.model import KafkaSink
from tidegate.yaml.load import parse_pipeline

HERE = str(Path(__file__))
SOURCE = '{topics: [in], format: json, columns: "storeId string, id bigint, quantity int", key: [storeId]}'
AVRO = "format: avro, schema: schemas/stock.avsc"
PROTO = "format: protobuf, schema: schemas/stock.proto, message: shop.Stock"


def text(sink: str, stage: str = "") -> str:
    return (
        f"pipeline: p\nsource: {SOURCE}\nstages: [{{name: p, emit: {{on: change}}{stage}}}]\n"
        f"sinks: [{{kind: kafka, topic: out, with_key: true, {sink}}}]"
    )


def declared(sink: str) -> KafkaSink:
    (declared_sink,) = parse_pipeline(text(sink), HERE).sinks
    assert isinstance(declared_sink, KafkaSink)
    return declared_sink


def test_schema_file_is_read_without_a_registry() -> None:
    sink = declared(AVRO)
    assert (sink.registry, sink.connections) == (None, (Connection("kafka"),))
    schema = sink.payload.schema
    assert schema is not None
    assert (schema.id, '"namespace": "shop"' in schema.text) == (None, True)
    sink = declared(PROTO)
    schema = sink.payload.schema
    assert schema is not None
    assert (schema.message, [name for name, _ in schema.imports]) == ("shop.Stock", ["places.proto"])
    assert "shop.Place" in proto_from_json(schema.compiled).messages


def test_a_file_may_be_in_a_registry_too() -> None:
    sink = declared(f"{AVRO}, registry: {{}}")
    assert sink.connections[1:] == (Connection("registry"),)
    assert sink.subject == "out-value"


@pytest.mark.parametrize(
    ("sink", "field", "message"),
    [
        ("schema: schemas/stock.avsc", "schema", "`format: json` has no schema file"),
        (
            "format: avro, schema: schemas/stock.proto",
            "schema",
            "'schemas/stock.proto' is not a schema file of avro",
        ),
        ("format: avro, schema: ../stock.avsc", "schema", "'../stock.avsc' is not a schema file of avro"),
        ("format: avro, schema: none.avsc", "schema", "there is no file 'none.avsc'"),
        (f"{AVRO}, message: Stock", "message", "`format: avro` has no messages"),
        ("format: protobuf, message: Stock", "message", "there is no file with that message"),
        (
            PROTO.rpartition(",")[0],
            "message",
            "the file has several messages, and `message` does not name one",
        ),
        (f"{PROTO}s", "message", "there is no message `shop.Stocks` in the file"),
        (
            PROTO.replace("Stock", "Order"),
            "message",
            "schemas/stock.proto: the column `$.storeId` has no field",
        ),
        (f"envelope: true, {AVRO}", "schema", "an envelope has no schema file"),
        (f"{AVRO}, key_format: avro", "registry", "keys in `avro` need a registry"),
    ],
)
def test_impossible_sink_schema_is_refused_with_fix(sink: str, field: str, message: str) -> None:
    ((line, actual_field, actual_message, fix),) = problems(text(sink), HERE)
    assert (line, actual_field) == (4, f"sinks.0.{field}")
    assert actual_message.startswith(message)
    assert fix


@pytest.mark.parametrize(
    ("stage", "sink", "message"),
    [
        (", select: {quantity: quantity}", AVRO, "the field `$.id` has neither a column nor a default"),
        (
            ", select: {id: id, other: id}",
            PROTO,
            "the column `$.other` has no field in the message `shop.Stock`",
        ),
        (
            ", select: {id: id, quantity: id}",
            AVRO,
            "`$.quantity` is a column of type `int64`, which a field `int` does not hold",
        ),
        (
            ", select: {id: id, quantity: id}",
            PROTO,
            "`$.quantity` is a column of type `int64`, which a field `int32` does not hold",
        ),
    ],
)
def test_the_schema_is_held_against_what_is_emitted(stage: str, sink: str, message: str) -> None:
    ((_, field, actual_message, fix),) = problems(text(sink, stage), HERE)
    assert field == ("sinks.0.message" if "proto" in sink else "sinks.0.schema")
    assert actual_message.partition(": ")[2].startswith(message)
    assert "docs/messages.md" in fix


def test_one_sinks_file_is_not_anothers() -> None:
    two = text(AVRO).rpartition("]")[0] + ", {kind: kafka, topic: more, format: avro}]"
    first, second = parse_pipeline(two, HERE).sinks
    assert isinstance(first, KafkaSink)
    assert isinstance(second, KafkaSink)
    assert first.payload.schema is not None
    assert second.payload.schema is None
