"""`sinks: format, registry, headers`: what goes together, and what the columns of messages are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.model.files import COLLECT, COUNT, HOUR, made, refused
from tidegate.model.connection import Connection
from tidegate.model.kernel_stages import emitted_schema, kernel_stage, message_columns
from tidegate.model.pipeline import Pipeline
from tidegate.sinks.kafka.model import KafkaSink

BOUNDED = {"emit": {"on": "time_limit", "after": "3s", "buffer": {"max_records": 5}}}


def sink(**written: Any) -> dict[str, Any]:
    return {"kind": "kafka", "topic": "out", **written}


def declared(pipeline: Pipeline) -> KafkaSink:
    (declared_sink,) = pipeline.sinks
    assert isinstance(declared_sink, KafkaSink)
    return declared_sink


def test_a_sink_writes_json_without_headers_by_default() -> None:
    declared_sink = declared(made(sinks=[sink()]))
    assert (declared_sink.format, declared_sink.registry, declared_sink.headers) == ("json", None, False)
    assert declared_sink.payload.column == "payload"
    assert declared_sink.connections == (Connection("kafka"),)


def test_sink_schema_needs_a_registry_and_subject() -> None:
    declared_sink = declared(made(sinks=[sink(format="avro")]))
    assert (declared_sink.subject, declared_sink.connections[1:]) == ("out-value", (Connection("registry"),))
    registry = {"connection": "shop", "subject": "levels", "register": False}
    declared_sink = declared(made(sinks=[sink(format="protobuf", registry=registry)]))
    assert (declared_sink.subject, declared_sink.connections[1:]) == (
        "levels",
        (Connection("registry", "shop"),),
    )
    assert declared_sink.registry is not None
    assert not declared_sink.registry.may_register


def test_names_of_fields_do_not_hide_their_types() -> None:
    """`company` contains `any`, the word for a type that only Spark knows."""
    columns = "id bigint, shop struct<company:string>"
    pipeline = made({"select": {"shop": "shop"}}, source={"columns": columns}, sinks=[sink(format="avro")])
    shop = emitted_schema(pipeline, pipeline.sinks[0]).field("shop")
    assert shop.type == pa.struct([("company", pa.string())])


def test_each_format_and_schema_has_an_outbox_column() -> None:
    formats: list[dict[str, Any]] = [{"format": name} for name in ("json", "debezium", "avro", "protobuf")]
    written = [
        {**sink(**format_), "topic": f"t{number}", "with_key": with_key}
        for number, (format_, with_key) in enumerate(
            (f, k) for f in [*formats, *formats] for k in (False, True)
        )
    ]
    sinks = [
        declared_sink.payload.column
        for declared_sink in made(sinks=written).sinks
        if isinstance(declared_sink, KafkaSink)
    ]
    assert len(set(sinks)) == 2 + 2 + 4 + 4


@pytest.mark.parametrize(
    ("stage", "written", "field", "part"),
    [
        ({}, {"format": "xml"}, "format", "'xml' is not known"),
        ({}, {"headers": "yes"}, "headers", "true or false"),
        ({}, {"registry": {}}, "registry", "messages in `json` have no schema"),
        ({}, {"format": "debezium", "registry": {}}, "registry", "messages in `debezium` have no schema"),
        ({}, {"envelope": True}, "envelope", "`envelope` does not go with `format: json`"),
        (BOUNDED, {"format": "avro", "envelope": True}, "envelope", "a bounded buffer keeps"),
        ({}, {"key_format": "xml"}, "key_format", "'xml' is not known"),
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
def test_sink_format_mistake_is_reported(
    stage: dict[str, Any], written: dict[str, Any], field: str, part: str
) -> None:
    ((actual_field, message, fix),) = refused(stage, sinks=[sink(**written)])
    assert (actual_field, part in message) == (f"sinks.0.{field}", True), (actual_field, message)
    assert fix
    assert "secret" not in message + fix


def test_message_keys_have_own_column_and_subject() -> None:
    text, json, avro = (
        declared(made(sinks=[sink(key_format=format_)])) for format_ in ("text", "json", "avro")
    )
    assert (text.key, text.registry, json.registry) == (None, None, None)
    assert json.key is not None
    assert json.key.column == "message_key_json"
    assert (avro.key_subject, avro.connections[1:]) == ("out-key", (Connection("registry"),))
    assert avro.key is not None
    assert avro.key.column.startswith("message_key_avro_")
    named = declared(made(sinks=[sink(key_format="protobuf", registry={"key_subject": "ids"})]))
    assert named.key_subject == "ids"


def test_a_key_without_columns_is_text() -> None:
    ((field, message, fix),) = refused(sinks=[sink(key_format="avro")], source={"key": None})
    assert (field, fix) == (
        "sinks.0.key_format",
        "Name the key's columns in `source.key`, or leave `key_format` out.",
    )
    assert message == "the key has no columns: it is the record's own, as text"


HOURLY = {"reduce": {"n": "count(*)"}, **HOUR}
SOURCE_OF_ENVELOPES = {
    **dict.fromkeys(("connector", "name", "stage"), pa.string()),
    "batch": pa.int64(),
    **dict.fromkeys(("reason", "position"), pa.string()),
    **dict.fromkeys(("ts_ms", "window_start", "window_end"), pa.int64()),
}


def test_the_columns_of_keys_and_envelopes_have_types() -> None:
    pipeline = made(HOURLY, sinks=[sink(format="avro", envelope=True, with_key=True, key_format="avro")])
    (declared_sink,) = pipeline.sinks
    assert isinstance(declared_sink, KafkaSink)
    assert declared_sink.key is not None
    assert message_columns(pipeline, declared_sink, declared_sink.key) == pa.schema([("id", pa.int64())])
    envelope = message_columns(pipeline, declared_sink, declared_sink.payload)
    assert envelope.names == ["op", "before", "after", "source", "ts_ms"]
    whole = pa.struct([(name, pa.int64()) for name in ("id", "window_start", "window_end", "n")])
    assert envelope.field("before").type == envelope.field("after").type == whole
    assert envelope.field("source").type == pa.struct(list(SOURCE_OF_ENVELOPES.items()))


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
def test_message_columns_are_the_emitted_ones(
    stages: list[dict[str, Any]], with_key: bool, columns: dict[str, pa.DataType]
) -> None:
    pipeline = made(*stages, sinks=[sink(format="avro", with_key=with_key)])
    assert emitted_schema(pipeline, pipeline.sinks[0]) == pa.schema(list(columns.items()))


def test_only_envelopes_carry_the_value_before() -> None:
    formats: list[tuple[dict[str, Any], bool]] = [({"format": "debezium"}, True), ({"format": "json"}, False)]
    formats += [({"format": "avro"}, False), ({"format": "avro", "envelope": True}, True)]
    for format_, tells in formats:
        pipeline = made(sinks=[sink(**format_)])
        assert kernel_stage(pipeline, pipeline.stages[0]).tells_before is tells
    events = made(
        {"reduce": "collect", "emit": {"on": "threshold", "count": 2}}, sinks=[sink(format="debezium")]
    )
    assert not kernel_stage(events, events.stages[0]).tells_before
