"""`sinks: format, registry, headers`: what goes together, and what the columns of messages are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.spec.files import COLLECT, COUNT, HOUR, made, refused
from tidegate.spec import Connection, KafkaSink, Pipeline, emitted_schema, kernel_stage

BOUNDED = {"emit": {"on": "time_limit", "after": "3s", "buffer": {"max_records": 5}}}


def sink(**written: Any) -> dict[str, Any]:
    return {"kind": "kafka", "topic": "out", **written}


def declared(pipeline: Pipeline) -> KafkaSink:
    (found,) = pipeline.sinks
    assert isinstance(found, KafkaSink)
    return found


def test_a_sink_writes_json_without_headers_by_default() -> None:
    found = declared(made(sinks=[sink()]))
    assert (found.format, found.registry, found.headers) == ("json", None, False)
    assert found.payload.column == "payload"
    assert found.connections == (Connection("kafka"),)


def test_a_sink_with_a_schema_needs_a_registry_and_names_a_subject() -> None:
    found = declared(made(sinks=[sink(format="avro")]))
    assert (found.subject, found.connections[1:]) == ("out-value", (Connection("registry"),))
    registry = {"connection": "shop", "subject": "levels", "register": False}
    found = declared(made(sinks=[sink(format="protobuf", registry=registry)]))
    assert (found.subject, found.connections[1:]) == ("levels", (Connection("registry", "shop"),))
    assert found.registry is not None
    assert not found.registry.may_register


def test_each_format_has_a_column_of_the_outbox_and_each_schema_one_of_its_own() -> None:
    formats: list[dict[str, Any]] = [{"format": name} for name in ("json", "debezium", "avro", "protobuf")]
    written = [
        {**sink(**format_), "topic": f"t{number}", "with_key": with_key}
        for number, (format_, with_key) in enumerate(
            (f, k) for f in [*formats, *formats] for k in (False, True)
        )
    ]
    sinks = [found.payload.column for found in made(sinks=written).sinks if isinstance(found, KafkaSink)]
    assert len(set(sinks)) == 2 + 2 + 4 + 4


@pytest.mark.parametrize(
    ("stage", "written", "field", "part"),
    [
        ({}, {"format": "xml"}, "format", "'xml' is not known"),
        ({}, {"headers": "yes"}, "headers", "true or false"),
        ({}, {"registry": {}}, "registry", "messages in `json` have no schema"),
        ({}, {"format": "debezium", "registry": {}}, "registry", "messages in `debezium` have no schema"),
        (
            {},
            {"format": "avro", "registry": {"connection": "http://me:secret@host"}},
            "registry.connection",
            "that is not a connection's name",
        ),
        (
            {},
            {"format": "avro", "registry": {"subject": "a\nb"}},
            "registry.subject",
            "is not a subject's name",
        ),
        ({}, {"format": "avro", "registry": {"url": "x"}}, "registry.url", "unknown field `url`"),
        (
            {"select": {"n": "nanvl(price, id)", "id2": "id"}},
            {"format": "avro"},
            "format",
            "the type of `n` cannot be told",
        ),
        ({"emit": {"on": "change", "state": "hash"}}, {"format": "debezium"}, "format", "keeps no values"),
        (BOUNDED, {"format": "debezium"}, "format", "a bounded buffer keeps"),
    ],
)
def test_a_mistake_in_the_format_of_a_sink_is_told(
    stage: dict[str, Any], written: dict[str, Any], field: str, part: str
) -> None:
    ((found, message, fix),) = refused(stage, sinks=[sink(**written)])
    assert (found, part in message) == (f"sinks.0.{field}", True), (found, message)
    assert fix
    assert "secret" not in message + fix


@pytest.mark.parametrize(
    ("stages", "with_key", "columns"),
    [
        (
            [{"select": {"price": "price", "m": "id + 1"}}],
            False,
            {"price": pa.float64(), "m": pa.int64()},
        ),
        ([{"select": {"id": "id", "tags": "tags"}}], True, {"id": pa.int64(), "tags": pa.list_(pa.string())}),
        ([{"select": {"cents": "cents"}}], True, {"id": pa.int64(), "cents": pa.decimal128(10, 2)}),
        (
            [{"reduce": {"n": "count(*)", "total": "sum(cents)"}, **HOUR}],
            True,
            {
                **dict.fromkeys(("id", "window_start", "window_end", "n"), pa.int64()),
                "total": pa.decimal128(20, 2),
            },
        ),
        ([COLLECT], False, {"events": pa.list_(pa.struct([("price", pa.float64())]))}),
        (
            [{**COUNT, **HOUR}, {"key": ["n"], "select": {"id5": "id"}}],
            True,
            {"n": pa.int64(), "id5": pa.int64()},
        ),
    ],
)
def test_the_columns_of_messages_are_those_that_are_emitted(
    stages: list[dict[str, Any]], with_key: bool, columns: dict[str, pa.DataType]
) -> None:
    pipeline = made(*stages, sinks=[sink(format="avro", with_key=with_key)])
    assert emitted_schema(pipeline, pipeline.sinks[0]) == pa.schema(list(columns.items()))


def test_only_a_stage_with_an_envelope_tells_what_was_before() -> None:
    for format_, tells in (("debezium", True), ("json", False), ("avro", False)):
        pipeline = made(sinks=[sink(format=format_)])
        assert kernel_stage(pipeline, pipeline.stages[0]).tells_before is tells
    events = made(
        {"reduce": "collect", "emit": {"on": "threshold", "count": 2}}, sinks=[sink(format="debezium")]
    )
    assert not kernel_stage(events, events.stages[0]).tells_before
