"""Fields of structs where a pipeline file names columns."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import made, refused
from tidegate.model.kernel_stages import message_columns
from tidegate.model.pipeline import Pipeline
from tidegate.sinks.kafka.model import KafkaSink
from tidegate.storage.compatibility import incompatible_changes

COLUMNS = (
    "name string, device struct<id: bigint, site: struct<id: string, room: int>, price: double>, "
    "meta struct<at: bigint, lines: array<struct<sku: string, n: int>>>, tags map<string, string>"
)
NAMED = {"select": {"name": "name"}}


def nested(*stages: dict[str, Any], **source: Any) -> Pipeline:
    return made(*(stages or (NAMED,)), source={"columns": COLUMNS, "key": None, **source})


def mistakes(*stages: dict[str, Any], **source: Any) -> list[tuple[str, str, str]]:
    return refused(*(stages or (NAMED,)), source={"columns": COLUMNS, "key": None, **source})


def test_nested_key_becomes_a_named_column() -> None:
    source = nested({"select": {"x": "id + 1"}, "where": "id > 5"}, key=["device.id", "name"]).sources[
        "source"
    ]
    assert (source.key, source.key_paths) == (("id", "name"), ("device.id", "name"))
    assert {column.name: column.type for column in source.row_columns}["id"] == "bigint"


def test_all_columns_are_emitted_without_the_field() -> None:
    (stage,) = nested({}, key=["device.site.id"]).stages
    assert [*stage.select] == ["name", "device", "meta", "tags"]


def test_fields_work_where_columns_do() -> None:
    nested(timestamp="meta.at")
    nested(deduplicate={"columns": ["device.id", "device.site.id"], "keep": "1h"})
    nested(sequence={"columns": ["meta.at"]})
    nested({"select": {"s": "meta.lines.sku"}}, explode="meta.lines", key=["meta.lines.sku"])
    nested({"select": {"s": "n"}}, explode="meta.lines", key=["meta.lines.n"], filter="meta.lines.n > 1")


def test_later_stage_regroups_by_a_field() -> None:
    sinks = [{"kind": "kafka", "topic": "out", "key_format": "avro", "with_key": True}]
    first = {"select": {"device": "device", "name": "name"}}
    pipeline = made(
        first,
        {"key": ["device.site.id"], "reduce": {"n": "count(*)"}, "where": "id <> 'x'"},
        {"select": {"id": "id", "n": "n"}},
        source={"columns": COLUMNS, "key": None},
        sinks=sinks,
    )
    assert (pipeline.stages[1].key, pipeline.stages[1].key_paths) == (("id",), ("device.site.id",))
    (sink,) = pipeline.sinks
    assert isinstance(sink, KafkaSink)
    assert sink.key is not None
    assert [str(field.type) for field in message_columns(pipeline, sink, sink.key)] == ["string"]


@pytest.mark.parametrize(
    ("source", "field", "message", "fix"),
    [
        ({"key": ["devise.id"]}, "key", "the column `devise` does not exist", "Did you mean `device`?"),
        ({"key": ["device.ids"]}, "key", "`device` has no field `ids`", "Did you mean `id`?"),
        ({"key": ["device.site.x"]}, "key", "`device.site` has no field `x`", "Its fields are `id`, `room`."),
        ({"key": ["name.id"]}, "key", "`name` is string, and has no fields", "Name a column, or a field"),
        ({"key": ["tags.a"]}, "key", "`tags` is map<string,string>, and has no fields", "Name a column"),
        ({"key": ["device.price"]}, "key", "`device.price` is double, and numbers", "Use columns such as"),
        ({"key": ["device.site"]}, "key", "`device.site` is struct<", "Use columns such as"),
        (
            {"key": ["device.id", "device.site.id"]},
            "key",
            "`device.id` and `device.site.id` would both be the column `id`",
            "`device_site_id: device.site.id`",
        ),
        ({"key": ["device.id", "device.id"]}, "key", "`device.id` is named twice", "Name it once."),
        (
            {"columns": f"{COLUMNS}, ID int", "key": ["device.id"]},
            "key",
            "`device.id` would be the column `id`, which exists already",
            "`device_id: device.id`",
        ),
        ({"timestamp": "meta.att"}, "timestamp", "`meta` has no field `att`", "Did you mean `at`?"),
        ({"timestamp": "recor"}, "timestamp", "the column `recor` does not exist", "Did you mean `record`?"),
        (
            {"timestamp": "device.price"},
            "timestamp",
            "`device.price` is double, which is not a time",
            "bigint",
        ),
        ({"explode": "meta.at"}, "explode", "`meta.at` is bigint, and has no elements", "Declare it as"),
        ({"explode": "meta.line"}, "explode", "`meta` has no field `line`", "Did you mean `lines`?"),
        (
            {"sequence": {"columns": ["device.price"]}},
            "sequence",
            "`device.price` is double, which",
            "Use whole",
        ),
    ],
)
def test_mistakes_in_paths_have_a_fix(source: dict[str, Any], field: str, message: str, fix: str) -> None:
    ((place, what, how),) = mistakes(**source)
    assert place.startswith(f"source.{field}")
    assert what.startswith(message)
    assert fix in how


def test_field_of_an_unknown_type_is_selected_before() -> None:
    stages = ({"select": {"d": "named_struct('id', hash(name))"}}, {"key": ["d.id"], "select": {"d": "d"}})
    ((field, message, fix),) = mistakes(*stages)
    assert field.startswith("stages.1.key")
    assert message == "the type of `d`, and so its fields, cannot be told from this file"
    assert fix == "Select the field in the stage before: `id: d.id`, and name `id`."


def test_another_field_of_one_name_is_another_key() -> None:
    before, after = nested(key=["device.id"]), nested(key=["device.site.id"])
    changes = [change.field for change in incompatible_changes(before, after)]
    assert changes == ["source.key", "source.columns.id"]
    stages = [
        made(
            {"select": {"a": "device", "b": "device"}},
            {"key": [key], "reduce": {"n": "count(*)"}},
            source={"columns": COLUMNS, "key": None},
        )
        for key in ("a.id", "b.id")
    ]
    assert [change.field for change in incompatible_changes(*stages)] == ["stages.s1.key"]
