"""A later stage's key whose column has another type than in the state, which only Spark can tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.played import Played
from tidegate.errors import SchemaChanged
from tidegate.model.pipeline import Pipeline
from tidegate.spark.computation import Before
from tidegate.storage.compaction import FoldRule, SnapshotTarget, compact
from tidegate.storage.compatibility import incompatible_changes
from tidegate.storage.layout import snapshot_name
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def by_zone(zone: str) -> Pipeline:
    """Return a pipeline whose first stage keeps hashes only, so that no state row has its columns."""
    hashed = {"select": {"zone": zone}, "emit": {"on": "change", "state": "hash"}}
    grouped = {"key": ["zone", "shop"], "reduce": {"n": "count(*)"}, "emit": {"on": "update"}}
    columns = "shop string, id bigint, at timestamp"
    document: dict[str, Any] = {
        "pipeline": "p",
        "source": {"topics": ["in"], "format": "json", "columns": columns, "key": ["shop", "id"]},
        "stages": [{"name": "changes", **hashed}, {"name": "zones", **grouped}],
    }
    return parse_case_pipeline(document, "p.yaml")


def record(offset: int, id_: int = 1) -> CaseRecord:
    value = {"shop": "a", "id": id_, "at": "2026-01-31T07:00:00Z"}
    return CaseRecord(None, json.dumps(value).encode(), offset, "in", offset=offset)


@pytest.fixture
def played(spark: SparkSession, tmp_path: Path) -> Played:
    played = Played(spark, by_zone("hour(at)"), tmp_path)
    played.batch([record(0)])
    return played


def test_another_type_halts_the_batch(played: Played) -> None:
    edited = by_zone("date_format(at, 'HH')")
    assert incompatible_changes(played.pipeline, edited) == [], "Spark alone can tell"
    played.pipeline = edited
    with pytest.raises(SchemaChanged, match=r"zone in the key of zones was int in the state and is string"):
        played.batch([record(1, id_=2)])


def test_key_type_survives_folding_of_the_state(played: Played) -> None:
    played.batch([record(1, id_=2)])
    files = [file for files in played.before.state.values() for file in files]
    name = snapshot_name(2)
    target = SnapshotTarget(name, 2, lambda stage: f"{stage}/{name}")
    rules = dict.fromkeys(played.before.state, FoldRule(False, False))
    folded = compact(played.lake.store, target, files, rules)
    played.before = Before({stage: folded.files_of("state", stage) for stage in played.before.state})
    played.pipeline = by_zone("date_format(at, 'HH')")
    with pytest.raises(SchemaChanged, match=r"zone in the key of zones"):
        played.batch([record(2, id_=3)])


def test_integers_of_any_width_share_a_text(played: Played) -> None:
    played.pipeline = by_zone("cast(hour(at) as bigint)")
    played.batch([record(1, id_=2)])
    assert [json.loads(key) for key in played.emissions()] == [{"zone": 7, "shop": "a"}]
    assert [row["value"]["n"] for rows in played.emissions().values() for row in rows] == [1, 2]
