"""`source: key_format, key_columns, key_registry`: columns of records' own keys."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import made, refused
from tidegate.model.connection import Connection
from tidegate.model.kernel_stages import message_columns
from tidegate.sinks.kafka.model import KafkaSink
from tidegate.storage.compatibility import incompatible_changes

COLUMNS = {"columns": "n int", "key": ["id"], "key_columns": "id bigint, store string"}


def test_the_columns_of_keys_are_columns_like_others() -> None:
    source = {**COLUMNS, "key_format": "avro"}
    sinks = [{"kind": "kafka", "topic": "out", "key_format": "avro"}]
    pipeline = made({"select": {"store": "upper(store)", "n": "n"}}, source=source, sinks=sinks)
    assert [column.name for column in pipeline.sources["source"].row_columns] == ["n", "id", "store"]
    assert pipeline.key_of(pipeline.stages[0]) == ("id",)
    (sink,) = pipeline.sinks
    assert isinstance(sink, KafkaSink)
    assert sink.key is not None
    assert [str(field.type) for field in message_columns(pipeline, sink, sink.key)] == ["int64"]


def test_keys_default_to_the_registry_of_values() -> None:
    source = {**COLUMNS, "key_format": "protobuf", "format": "avro", "registry": {"connection": "shop"}}
    pipeline = made(source=source)
    assert pipeline.sources["source"].key_subjects == ("in-key",)
    assert pipeline.connections == (Connection("kafka"), Connection("registry", "shop"))
    named = made(source={**source, "key_registry": {"connection": "ids", "subjects": ["a"]}})
    assert named.sources["source"].key_subjects == ("a",)
    assert Connection("registry", "ids") in named.connections
    assert made(source={**COLUMNS, "key_format": "json"}).sources["source"].key_registry is None


@pytest.mark.parametrize(
    ("source", "field", "part"),
    [
        ({"key_format": "xml"}, "key_format", "'xml' is not known"),
        (
            {"key_format": "avro", "key_columns": None},
            "key_columns",
            "`key_format: avro` needs the key's columns",
        ),
        ({"key_format": "text"}, "key_columns", "a key that is text has no columns"),
        (
            {"key_format": "avro", "key_columns": "id bigint, n int"},
            "key_columns",
            "`n` is in `columns`, too",
        ),
        ({"key_format": "json", "key_registry": {}}, "key_registry", "keys in `json` have no schemas"),
        (
            {"key_format": "avro", "key_registry": {"strategy": "record_name"}},
            "key_registry",
            "are not known",
        ),
        ({"key_format": "avro", "key": ["other"]}, "key.0", "the column `other` does not exist"),
        (
            {"key_format": "json", "format": "debezium"},
            "key_format",
            "`format: debezium` reads its keys itself",
        ),
    ],
)
def test_impossible_key_combination_is_refused_with_fix(
    source: dict[str, Any], field: str, part: str
) -> None:
    mistakes = refused(source={**COLUMNS, **source})
    assert [path for path, *_ in mistakes] == [f"source.{field}"], mistakes
    ((_, message, fix),) = mistakes
    assert part in message
    assert fix


def test_another_format_of_keys_needs_another_generation() -> None:
    before, after = (made(source={**COLUMNS, "key_format": format_}) for format_ in ("avro", "json"))
    (change,) = incompatible_changes(before, after)
    assert "source.key_format" in str(change)
