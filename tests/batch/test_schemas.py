"""A registry's schemas in a plan: what is asked when, and that nothing of a batch is asked again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.registry import RegistryServer, running_registry
from tidegate.batch.schemas import with_writers
from tidegate.errors import RegistryUnavailable, SchemaRefused, SchemaUnknown
from tidegate.formats.avro.schema import pinned_avro
from tidegate.formats.protobuf.schema import pinned_protobuf
from tidegate.formats.schemas import RecordSchema
from tidegate.kafka.registry import SchemaRegistry
from tidegate.kafka.registry_config import RegistryConfig
from tidegate.ledger import Plan, Stream
from tidegate.model.compiled import compile_pipeline
from tidegate.model.pipeline import Pipeline
from tidegate.yaml.load import parse_pipeline

SCHEMA = {"type": "record", "name": "Stock", "fields": [{"name": "id", "type": "long"}]}
WIDER: dict[str, Any] = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "n", "type": "int", "default": 0}]}  # type: ignore[misc]
TEXT = """
pipeline: p
source: {topics: [stock], format: %s, registry: {}, columns: "id bigint"}
stages: [{name: p, emit: {on: change}}]
sinks: [{kind: table}]
"""
PROTO = 'syntax = "proto3"; import "b.proto"; message A { int64 id = 1; B b = 2; }'
IMPORTED = 'syntax = "proto3"; message B { string c = 1; }'


class Registered:
    """A registry, and a replacement of App."""

    def __init__(self, server: RegistryServer) -> None:
        self.server = server
        self.config = RegistryConfig.parse(server.url)
        self.app: Any = SimpleNamespace(settings=SimpleNamespace(registry=lambda name: self.config))

    def register(self, text: str, kind: Any = "AVRO", subject: str = "stock-value", **imports: str) -> int:
        renamed = {name.replace("_", "."): imported for name, imported in imports.items()}
        with SchemaRegistry(self.config) as client:
            return client.register(subject, RecordSchema(kind, text, renamed))

    def planned(self, before: Plan | None = None, reads: bool = True, format_: str = "avro") -> Pipeline:
        self.server.asked.clear()
        return with_writers(self.app, parse_pipeline(TEXT % format_, "p.yaml"), before, reads)


@pytest.fixture
def registered() -> Iterator[Registered]:
    with running_registry() as server:
        yield Registered(server)


def plan_of(pipeline: Pipeline) -> Plan:
    compiled = compile_pipeline(pipeline)
    return replace(EMPTY, spec_text=pipeline.text, spec_compiled=compiled)


EMPTY = Plan(Stream("p", 1), 1, "r", 0, 0, (), {}, "", "")


def ids(pipeline: Pipeline) -> list[int]:
    return [writer.id for writer in pipeline.sources["source"].schemas.writers or ()]


def test_plan_holds_all_versions_and_asks_for_new(
    registered: Registered,
) -> None:
    first = registered.register(json.dumps(SCHEMA))
    first_plan = registered.planned()
    assert ids(first_plan) == [first]
    second = registered.register(json.dumps(WIDER))
    two = registered.planned(plan_of(first_plan))
    assert ids(two) == [first, second]
    assert registered.server.asked == [
        "GET subjects/stock-value/versions",
        "GET subjects/stock-value/versions/1",
        "GET subjects/stock-value/versions/2",
    ]
    writers = two.sources["source"].schemas.writers
    assert writers is not None
    assert [len(pinned_avro(writer.schema).fields) for writer in writers] == [1, 2]


def test_plan_holds_the_schemas_of_keys(registered: Registered) -> None:
    of_keys = {"type": "record", "name": "Key", "fields": [{"name": "store", "type": "string"}]}
    registered.register(json.dumps(SCHEMA))
    with pytest.raises(SchemaUnknown, match="none of the subjects stock-key"):
        registered.planned(format_=f"avro, {KEYS}")
    schema_id = registered.register(json.dumps(of_keys), subject="stock-key")
    planned = registered.planned(format_=f"avro, {KEYS}")
    (writer,) = planned.sources["source"].key_schemas.writers or ()
    assert (writer.id, pinned_avro(writer.schema).name, ids(planned)) == (schema_id, "Key", [1])
    before = plan_of(planned)
    assert registered.planned(before, reads=False, format_=f"avro, {KEYS}").sources == planned.sources
    assert registered.server.asked == []


KEYS = "key_format: avro, key_columns: 'store string', key: [store]"


def test_a_batch_that_reads_nothing_does_not_ask(registered: Registered) -> None:
    registered.register(json.dumps(SCHEMA))
    before = plan_of(registered.planned())
    assert ids(registered.planned(before, reads=False)) == [1]
    assert registered.server.asked == []


def test_protobuf_schema_is_compiled_with_its_imports(registered: Registered) -> None:
    registered.register(PROTO, "PROTOBUF", b_proto=IMPORTED)
    (writer,) = registered.planned(format_="protobuf").sources["source"].schemas.writers or ()
    assert {"A", "B"} <= pinned_protobuf(writer.schema).messages.keys()


def test_registry_down_is_transient_but_missing_subject_permanent(
    registered: Registered,
) -> None:
    with pytest.raises(SchemaUnknown, match="none of the subjects stock-value"):
        registered.planned()
    registered.server.status = 503
    with pytest.raises(RegistryUnavailable):
        registered.planned()


def test_invalid_schema_is_refused_by_name(registered: Registered) -> None:
    registered.register('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Unknown"}]}')
    with pytest.raises(SchemaRefused, match=r"Version 1 of stock-value .*`Unknown` is not defined"):
        registered.planned()


def test_referencing_schema_includes_the_referenced_one(registered: Registered) -> None:
    place = '{"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}'
    text = '{"type": "record", "name": "Stock", "fields": [{"name": "place", "type": "Place"}]}'
    registered.register(text, Place=place)
    (writer,) = registered.planned().sources["source"].schemas.writers or ()
    assert pinned_avro(writer.schema).fields[0].type.fields[0].name == "city"


def test_versions_of_another_registry_are_all_asked(registered: Registered) -> None:
    registered.register(json.dumps(SCHEMA))
    registered.register(json.dumps(WIDER))
    before = plan_of(registered.planned())
    with running_registry() as server:
        moved = Registered(server)
        moved.register('{"type": "string"}', subject="names-value")
        expected = [moved.register(json.dumps(SCHEMA)), moved.register(json.dumps(WIDER))]
        assert ids(moved.planned(before)) == expected == [2, 3]


def test_subject_registered_anew_has_no_old_versions(registered: Registered) -> None:
    registered.register(json.dumps(SCHEMA))
    registered.register(json.dumps(WIDER))
    before = plan_of(registered.planned())
    del registered.server.subjects.versions["stock-value"]  # deleted for good
    expected = [registered.register(json.dumps({**schema, "doc": "new"})) for schema in (SCHEMA, WIDER)]
    assert ids(registered.planned(before)) == expected


def test_deleted_version_has_a_deleted_reference(registered: Registered) -> None:
    place = '{"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}'
    text = '{"type": "record", "name": "Stock", "fields": [{"name": "place", "type": "Place"}]}'
    schema_id = registered.register(text, Place=place)
    registered.server.subjects.deleted |= {("stock-value", 1), ("Place", 1)}
    assert ids(registered.planned()) == [schema_id]
