"""New pipelines, in all their kinds: without mistakes, and each passes its first case."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from tests.sampling import sampled
from tidegate.errors import PipelineInvalid, SettingsInvalid
from tidegate.scaffold import WAYS, Draft, flow, pipeline_texts
from tidegate.sinks import KINDS
from tidegate.yaml.cases import load_cases
from tidegate.yaml.load import load_pipeline
from tidegate.yaml.tree import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {
    "key of one column": ("orderId string, quantity int, price double", ("orderId",)),
    "key of several": ("shop string, id bigint, open boolean, day date, quantity int", ("shop", "id", "day")),
    "record's own key": ("quantity int, `timestamp` bigint, note string", ()),
    "nothing beside the key": ("id bigint", ("id",)),
    "values of all kinds": (
        "id bigint, at timestamp, cents decimal(10,2), tags array<string>, place struct<city:string>, n int",
        ("id",),
    ),
    "key that is a time": ("at timestamp, n int", ("at",)),
}


def draft(**chosen: Any) -> Draft:
    return Draft(
        **{"name": "orders", "topic": "in.v1", "columns": "a string, b int", "target": "out", **chosen}
    )


def written(folder: Path, made: Draft) -> dict[Path, str]:
    texts = pipeline_texts(made, folder / "pipelines", folder / "expectations")
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return texts


@pytest.mark.spark
@pytest.mark.parametrize("way", sampled(WAYS, list(WAYS)[:2]))
def test_a_new_pipeline_passes_its_case(way: str, spark: SparkSession, tmp_path: Path) -> None:
    from tidegate.spark.cases import differences

    for number, (what, (columns, key)) in enumerate(COLUMNS.items()):
        made = draft(name=f"p{number}", columns=columns, key=key, way=way)
        _, case_file, _ = written(tmp_path, made)
        (case,) = load_cases(case_file)
        assert case.pipeline.pipeline == made.name
        assert differences(spark, case, 0, 1) == [], what


@pytest.mark.parametrize("sink", KINDS)
def test_each_sink_kind_is_drafted_with_its_field(sink: str, tmp_path: Path) -> None:
    target = "shop.out" if sink == "iceberg" else "out"
    pipeline_file, *_ = written(tmp_path, draft(sink=sink, key=("a",), target=target))
    (declared,) = load_pipeline(pipeline_file).sinks
    assert (declared.kind, declared.with_key) == (sink, True)
    assert getattr(declared, declared.target_field) == target


@pytest.mark.parametrize("sink", KINDS)
def test_each_sink_kind_gets_a_target(sink: str, tmp_path: Path) -> None:
    pipeline_file, *_ = written(tmp_path, draft(sink=sink, key=("a",), target=None))
    (declared,) = load_pipeline(pipeline_file).sinks
    assert "orders" in getattr(declared, declared.target_field)


def test_without_a_suite_there_is_none(tmp_path: Path) -> None:
    texts = written(tmp_path, draft(has_suite=False, schedule=None))
    assert [file.suffix for file in texts] == [".yaml", ".yaml"]
    pipeline = load_pipeline(next(iter(texts)))
    assert (pipeline.quality, pipeline.schedule) == ((), None)


@pytest.mark.parametrize(
    ("chosen", "error", "message"),
    [
        ({"columns": "a strin"}, SettingsInvalid, "Did you mean `string`?"),
        ({"columns": ""}, SettingsInvalid, "`name type, name type`"),
        ({"name": "Orders"}, PipelineInvalid, "lower-case letters"),
        ({"key": ("c",)}, PipelineInvalid, "`c` does not exist"),
        ({"target": "in.v1"}, PipelineInvalid, "would read itself"),
        ({"schedule": "hourly"}, PipelineInvalid, "`@hourly`"),
        ({"topic": 'a"b: c'}, PipelineInvalid, "legal Kafka topic"),
    ],
)
def test_invalid_draft_is_refused_before_writing(
    chosen: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        pipeline_texts(draft(**chosen), Path("p"), Path("e"))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        "a",
        "true",
        "Null",
        "1",
        "a b",
        "a: b",
        "it's",
        '{"a":1}',
        "",
        "é",
        "2026-01-31",
        "\t",
        "#",
        'q"',
        None,
        1.5,
    ],
)
def test_a_value_is_read_as_it_was_written(value: Any) -> None:
    assert read(f"a: {flow({'b': [value, {'c': value}]})}", "p.yaml").data == {
        "a": {"b": [value, {"c": value}]}
    }


def test_the_command_offers_all_of_them() -> None:
    from tidegate.cli.commands import init

    types = {option.name: option.type for option in init.init.params}
    way, sink = types["way"], types["sink"]
    assert isinstance(way, click.Choice)
    assert isinstance(sink, click.Choice)
    assert (set(way.choices), set(sink.choices)) == (set(WAYS), set(KINDS))
