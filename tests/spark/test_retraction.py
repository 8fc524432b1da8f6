"""Groups of a table through the data plane: after any batch they are those of SQL."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kernel.test_retraction import COLUMNS, comparable, expected
from tests.spark.played import Played
from tidegate.yaml.cases import CaseRecord
from tidegate.yaml.load import parse_case_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STAGES = [
    {"name": "products", "emit": {"on": "change"}},
    {"name": "stores", "key": ["store"], "retract": True, "reduce": COLUMNS, "emit": {"on": "update"}},
]
SOURCE = {"topics": ["in"], "format": "json", "columns": "id bigint, store string, q bigint", "key": ["id"]}


@pytest.mark.sample(3, of="a naive model beside Spark")
def test_groups_follow_the_table_batch_by_batch(spark: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(3)
    pipeline = parse_case_pipeline({"pipeline": "p", "source": SOURCE, "stages": STAGES}, "case")
    played = Played(spark, pipeline, tmp_path)
    table: dict[int, Any] = {}
    offsets = [0, 0]
    for batch in range(3):
        records = []
        for number in range(40):
            product = dice.randrange(9)
            row = (dice.choice("abc"), dice.choice((None, 1, 2, 3))) if dice.random() < 0.8 else None
            table.pop(product, None)
            if row is not None:
                table[product] = row
            value = (
                None if row is None else json.dumps({"id": product, "store": row[0], "q": row[1]}).encode()
            )
            place, time = product % 2, 1000 * (40 * batch + number)
            records.append(CaseRecord(str(product), value, time, "in", place, offsets[place]))
            offsets[place] += 1
        played.batch(records)
        newest = {key: emitted[-1]["value"] for key, emitted in played.emissions().items()}
        groups = {key: comparable(value) for key, value in newest.items() if value is not None}
        assert groups == expected(table)
