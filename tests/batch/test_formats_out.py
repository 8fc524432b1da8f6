"""What sinks send in each format, on real Kafka and real Spark, as Confluent's clients read it."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import fastavro
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

import yaml
from tests.formats.test_writing import message_class
from tests.registry import RegistryServer, running_registry
from tests.world import NOW_MS, World, key_of
from tidegate.app import App
from tidegate.batch import Trigger, plan_batch
from tidegate.batch.dry_run import describe_next_batch
from tidegate.errors import RegistryUnavailable, SchemaRefused, SchemaUnknown
from tidegate.ledger.planned import planned_pipeline
from tidegate_dev.demo.topics import committed_records

pytestmark = [pytest.mark.spark, pytest.mark.broker]
NEXT = Trigger("next", NOW_MS)
FORMATS = ("avro", "protobuf", "debezium", "json")
SELECT = {"isAvailable": "quantity > 0", "quantity": "quantity"}


class Sent(NamedTuple):
    value: bytes | None
    headers: dict[str, str]


class Formats:
    """A world whose emissions go out in each format, to a topic of its own; and its registry."""

    def __init__(self, world: World, server: RegistryServer) -> None:
        self.world, self.server = world, server
        self.topics = {name: f"{name}-{world.name}" for name in FORMATS}
        for topic in self.topics.values():
            world.create(topic)
        world.app = App.from_environment(world.environment | {"TIDEGATE_REGISTRY": server.url})
        self.write()

    def write(self, select: dict[str, str] = SELECT, generation: int = 1, **registry: Any) -> None:
        path = self.world.folder / "pipelines" / "availability.yaml"
        data = yaml.safe_load(path.read_text())
        stage = {"name": "availability", "select": select, "emit": {"on": "change"}}
        data |= {"generation": generation, "stages": [stage]}
        data["sinks"] = [
            {"kind": "kafka", "topic": topic, "with_key": True, "headers": True, "format": name}
            | ({"registry": registry} if registry and name in ("avro", "protobuf") else {})
            for name, topic in self.topics.items()
        ]
        path.write_text(json.dumps(data))

    def write_sinks(self, schema: dict[str, Any], **formats: dict[str, Any]) -> None:
        """Topics by the formats that they have otherwise; `schema` lies beside the pipeline."""
        path = self.world.folder / "pipelines" / "availability.yaml"
        (path.parent / "level.avsc").write_text(json.dumps(schema))
        data = yaml.safe_load(path.read_text())
        data["stages"] = [{"name": "availability", "select": SELECT, "emit": {"on": "change"}}]
        data["sinks"] = [
            {"kind": "kafka", "topic": self.topics[name], "with_key": True, **sink}
            for name, sink in formats.items()
        ]
        path.write_text(json.dumps(data))

    def records(self, name: str) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values of a topic, those of a partition in order."""
        return [
            (record.key, record.value) for record in committed_records(self.world.servers, self.topics[name])
        ]

    def sent(self, name: str) -> dict[str, list[Sent]]:
        """Key -> messages in order, as a read_committed consumer sees them."""
        messages: dict[str, list[Sent]] = defaultdict(list)
        for record in committed_records(self.world.servers, self.topics[name]):
            headers = {header: text.decode() for header, text in record.headers}
            assert record.key is not None
            messages[record.key.decode()].append(Sent(record.value, headers))
        return messages

    def plans(self) -> None:
        plan_batch(self.world.app, self.world.pipeline, NEXT)

    def plans_dry(self) -> None:
        list(describe_next_batch(self.world.app, self.world.pipeline, NEXT))


@pytest.fixture
def formats(world: World) -> Iterator[Formats]:
    with running_registry() as server:
        yield Formats(world, server)


A, B = key_of("s1", 1), key_of("s1", 2)
KEY = {"storeId": "s1", "id": 1}


def value(available: bool, quantity: int) -> dict[str, Any]:
    return {**KEY, "isAvailable": available, "quantity": quantity}


HISTORY = [value(True, 10), value(True, 5), value(False, 0), None, value(True, 7)]
REASONS = ["new", "changed", "changed", "deleted", "new"]
BATCHES = [1, 1, 2, 2, 3]


def test_every_format_says_the_same_as_json(formats: Formats) -> None:
    world = formats.world
    world.stock(10, 5)
    world.run()
    asked = len(formats.server.asked)
    world.stock(0)
    world.send({"key": A.encode(), "value": None})
    world.run()
    world.stock(7)
    world.stock(3, product=2)
    world.run()
    assert len(formats.server.asked) == asked, "what nothing has changed of is in the plan before"
    json_messages = formats.sent("json")
    assert [sent.value and json.loads(sent.value) for sent in json_messages[A]] == HISTORY
    assert _avro(formats) == HISTORY
    assert _protobuf(formats) == HISTORY
    for name in ("json", "avro", "protobuf"):
        headers = [sent.headers for sent in formats.sent(name)[A]]
        assert [header["tidegate-reason"] for header in headers] == REASONS
        assert [header["tidegate-batch"] for header in headers] == [f"availability/1/{n}" for n in BATCHES]
        assert all("tidegate-source" in header for header in headers)
    _assert_enveloped(formats)


def _avro(formats: Formats) -> list[Any]:
    client = SchemaRegistryClient({"url": formats.server.url})
    read, context = AvroDeserializer(client), SerializationContext(formats.topics["avro"], MessageField.VALUE)
    return [read(sent.value, context) for sent in formats.sent("avro")[A]]


def _protobuf(formats: Formats) -> list[Any]:
    client = SchemaRegistryClient({"url": formats.server.url})
    message = message_class(
        client.get_latest_version(f"{formats.topics['protobuf']}-value").schema.schema_str
    )

    context = SerializationContext(formats.topics["protobuf"], MessageField.VALUE)
    read = ProtobufDeserializer(message, {"use.deprecated.format": False})
    values = [read(sent.value, context) for sent in formats.sent("protobuf")[A]]
    return [
        message and {field.name: content for field, content in message.ListFields()} for message in values
    ]


def _assert_enveloped(formats: Formats) -> None:
    envelopes = [sent.value and json.loads(sent.value) for sent in formats.sent("debezium")[A]]
    assert envelopes[4] is None, "a tombstone follows what tells the deletion"
    del envelopes[4]
    before = [None, *HISTORY[:-1]]
    assert [envelope["after"] for envelope in envelopes] == HISTORY
    assert [envelope["before"] for envelope in envelopes] == before
    assert [envelope["op"] for envelope in envelopes] == ["c", "u", "u", "d", "c"]
    sources = [envelope["source"] for envelope in envelopes]
    assert [source["reason"] for source in sources] == REASONS
    assert [source["batch"] for source in sources] == BATCHES
    assert {source["name"] for source in sources} == {"availability/1"}


LEVEL = {
    "type": "record",
    "name": "Level",
    "namespace": "shop",
    "fields": [
        {"name": "quantity", "type": ["null", "long"]},
        {"name": "unit", "type": "string", "default": "pieces"},
        {"name": "storeId", "type": "string"},
        {"name": "isAvailable", "type": "boolean"},
        {"name": "id", "type": "long"},
    ],
}


def test_planned_sink_formats_need_no_registry_later(formats: Formats) -> None:
    registered = {"format": "avro", "schema": "level.avsc", "registry": {}, "key_format": "protobuf"}
    formats.write_sinks(
        LEVEL,
        avro={"format": "avro", "envelope": True, "key_format": "avro"},
        protobuf=registered,
        json={"format": "avro", "schema": "level.avsc"},
    )
    world = formats.world
    world.stock(10, 5)
    world.run()
    asked = len(formats.server.asked)
    world.send({"key": A.encode(), "value": None})
    world.run()
    assert len(formats.server.asked) == asked
    client = SchemaRegistryClient({"url": formats.server.url})
    levels = [value(True, 10), value(True, 5), None]

    read, topic = AvroDeserializer(client), formats.topics["avro"]
    keys, values = zip(*formats.records("avro"), strict=True)
    assert [read(key, SerializationContext(topic, MessageField.KEY)) for key in keys] == [KEY] * 4
    context = SerializationContext(topic, MessageField.VALUE)
    *envelopes, tombstone = [read(envelope, context) for envelope in values]
    assert tombstone is None
    assert [envelope["op"] for envelope in envelopes] == ["c", "u", "d"]
    assert [envelope["after"] for envelope in envelopes] == levels
    assert [envelope["before"] for envelope in envelopes] == [None, *levels[:-1]]
    assert [envelope["source"]["batch"] for envelope in envelopes] == [1, 1, 2]

    of_file = [level and {**level, "unit": "pieces"} for level in levels]
    topic = formats.topics["protobuf"]
    context = SerializationContext(topic, MessageField.VALUE)
    assert [read(written, context) for _, written in formats.records("protobuf")] == of_file
    assert json.loads(client.get_latest_version(f"{topic}-value").schema.schema_str) == LEVEL
    message = message_class(client.get_latest_version(f"{topic}-key").schema.schema_str)
    of_key = ProtobufDeserializer(message, {"use.deprecated.format": False})
    context = SerializationContext(topic, MessageField.KEY)
    message_keys = [of_key(key, context) for key, _ in formats.records("protobuf")]
    assert [(key.storeId, key.id) for key in message_keys] == [("s1", 1)] * 3

    schema = fastavro.parse_schema(LEVEL)
    bare = [
        written and fastavro.schemaless_reader(io.BytesIO(written), schema, None)
        for _, written in formats.records("json")
    ]
    assert bare == of_file


def test_sink_schema_is_checked_and_fixed_at_plan(formats: Formats) -> None:
    avro = f"{formats.topics['avro']}-value"
    formats.write(register=False)
    with pytest.raises(SchemaUnknown, match=rf"{avro} .*`register: true` at the sink: .*isAvailable"):
        formats.plans()
    formats.server.status = 503
    with pytest.raises(RegistryUnavailable):
        formats.plans()
    formats.server.status = 0
    formats.write()
    formats.plans_dry()
    assert formats.server.subjects.versions == {}, "a dry run registers nothing"
    formats.plans()
    assert _planned_ids(formats) == [1, 2, None, None]
    formats.write(SELECT | {"quantity": "cast(quantity as string)"}, generation=2)
    for plans in (formats.plans, formats.plans_dry):
        with pytest.raises(SchemaRefused, match="not compatible"):
            plans()
    assert formats.world.app.ledger.open_plan(formats.world.stream) is None
    formats.write(SELECT | {"double": "quantity * 2L"}, generation=3)
    formats.plans()
    assert _planned_ids(formats) == [3, 4, None, None]
    formats.write(SELECT | {"double": "quantity * 2L"}, generation=4, register=False)  # it exists already
    formats.plans()
    assert _planned_ids(formats) == [3, 4, None, None]


def test_moved_registry_is_asked_for_its_ids(formats: Formats) -> None:
    world = formats.world
    world.stock(10)
    world.run()
    with running_registry() as moved:
        moved.subjects.register("elsewhere", {"schema": json.dumps(LEVEL)})
        world.app = App.from_environment(world.environment | {"TIDEGATE_REGISTRY": moved.url})
        world.stock(5)
        formats.plans()
        assert _planned_ids(formats) == [2, 3, None, None]


def _planned_ids(formats: Formats) -> list[int | None]:
    plan = formats.world.app.ledger.open_plan(formats.world.stream)
    assert plan is not None
    payloads = [rules.payload for sink in planned_pipeline(plan).sinks if (rules := sink.messages)]
    return [payload.schema.id if payload.schema else None for payload in payloads]
