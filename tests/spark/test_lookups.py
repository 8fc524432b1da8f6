"""Lookups of a state, out of its files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.played import Played
from tidegate.errors import LookupAmbiguous, PipelineInvalid
from tidegate.model.kernel_stages import state_schema
from tidegate.spark.computation import Before
from tidegate.spark.lookups import StateVersion
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def _pipeline(name: str, columns: str, select: str, lookup: dict[str, Any] | None = None) -> Any:
    source = {"topics": ["in"], "format": "json", "columns": columns}
    stage = {"name": "out", "select": {"region": select}, "emit": {"on": "update"}}
    data: dict[str, Any] = {"pipeline": name, "source": source, "stages": [stage]}
    return parse_case_pipeline(data | ({"lookup": [lookup]} if lookup else {}), "case")


def _record(offset: int, key: str, **value: Any) -> CaseRecord:
    return CaseRecord(key, json.dumps(value).encode(), 1_000, "in", offset=offset)


@pytest.fixture
def regions(spark: SparkSession, tmp_path: Path) -> StateVersion:
    """The state of a pipeline: two keys with one value."""
    played = Played(spark, _pipeline("regions", "name string", "name"), tmp_path)
    played.batch([_record(0, "ulm", name="south"), _record(1, "augsburg", name="south")])
    return StateVersion(played.lake.store, tuple(played.before.state["out"]))


def _reader(
    spark: SparkSession, folder: Path, regions: StateVersion, source: str, on: str, column: str
) -> Played:
    lookup = {"table": "regions/out", "on": [on], "columns": [column]}
    pipeline = _pipeline("reader", source, column, lookup)
    return Played(spark, pipeline, folder, before=Before(lookups={"regions/out": regions}))


def test_a_state_has_one_row_for_each_key(spark: SparkSession, tmp_path: Path, regions: StateVersion) -> None:
    reader = _reader(spark, tmp_path, regions, "x int", "key", "region")
    reader.batch([_record(0, "ulm", x=1), _record(1, "bonn", x=2)])
    values = {key: [json.loads(row["text"]) for row in rows] for key, rows in reader.emissions().items()}
    assert values == {"ulm": [{"region": "south"}], "bonn": [{"region": None}]}


@pytest.mark.parametrize(
    ("key", "on"), [(["id"], "id"), (["id", "country"], "country")], ids=["one column", "several"]
)
@pytest.mark.sample(1)
def test_state_is_looked_up_by_key_columns(
    spark: SparkSession, tmp_path: Path, key: list[str], on: str
) -> None:
    """A record's column has the key of the state, and the record's own key is another one."""
    source = {
        "topics": ["in"],
        "format": "json",
        "columns": "id int, country string, name string",
        "key": key,
    }
    stage = {"name": "out", "select": {"region": "name"}, "emit": {"on": "update"}}
    cities = Played(
        spark,
        parse_case_pipeline({"pipeline": "regions", "source": source, "stages": [stage]}, "case"),
        tmp_path,
    )
    cities.batch(
        [_record(0, "", id=7, country="de", name="south"), _record(1, "", id=8, country="at", name="east")]
    )
    state = StateVersion(
        cities.lake.store, tuple(cities.before.state["out"]), reads=frozenset({on, "region"})
    )
    reader = _reader(spark, tmp_path / "reader", state, "id bigint, country string", on, "region")
    reader.batch([_record(0, "x", id=8, country="at"), _record(1, "y", id=9, country="fr")])
    values = {key: [json.loads(row["text"]) for row in rows] for key, rows in reader.emissions().items()}
    assert values == {"x": [{"region": "east"}], "y": [{"region": None}]}


def test_ambiguous_value_of_a_state_stops_the_batch(
    spark: SparkSession, tmp_path: Path, regions: StateVersion
) -> None:
    reader = _reader(spark, tmp_path, regions, "region string", "region", "key")
    with pytest.raises(LookupAmbiguous, match="2 rows with region = 'south'"):
        reader.batch([_record(0, "ulm", region="south")])


def test_a_text_is_not_compared_with_a_timestamp(
    spark: SparkSession, tmp_path: Path, regions: StateVersion
) -> None:
    reader = _reader(spark, tmp_path, regions, "region timestamp", "region", "key")
    with pytest.raises(PipelineInvalid, match="`region` is a text on one side"):
        reader.batch([_record(0, "ulm", region="2026-01-31T10:30:00Z")])


@pytest.mark.parametrize("select", ["name", "reverse(name)"], ids=["a column", "of a type that Spark knows"])
@pytest.mark.sample(1)
def test_empty_state_is_an_empty_table(
    spark: SparkSession, tmp_path: Path, regions: StateVersion, select: str
) -> None:
    pipeline = _pipeline("regions", "name string", select)
    empty = StateVersion(regions.store, (), columns=state_schema(pipeline, pipeline.stages[0]))
    reader = _reader(spark, tmp_path, empty, "x int", "key", "region")
    reader.batch([_record(0, "ulm", x=1)])
    values = {key: [json.loads(row["text"]) for row in rows] for key, rows in reader.emissions().items()}
    assert values == {"ulm": [{"region": None}]}
    reader.before = replace(reader.before, lookups={"regions/out": regions})
    reader.batch([_record(1, "ulm", x=2)])
    newest = reader.emissions()["ulm"][-1]
    assert json.loads(newest["text"]) == {"region": "south"}
