"""Slots: each hash in one, each slot one range."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812

from tidegate.kernel.keys import GREATEST_HASH, LEAST_HASH
from tidegate.spark.shuffle import Slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

numbers = st.integers(1, 5_000)


@given(numbers)
def test_slot_ranges_cover_all_hashes(number: int) -> None:
    slots = Slots(number)
    ranges = [slots.range(slot) for slot in range(number)]
    assert ranges[0].first == LEAST_HASH
    assert ranges[-1].last == GREATEST_HASH
    assert all(before.last + 1 == after.first for before, after in itertools.pairwise(ranges))


@pytest.mark.parametrize(
    ("records", "cores", "state_bytes", "number"),
    [
        pytest.param(0, 2, 0, 1, id="there is always one, for the timers"),
        pytest.param(10_000, 8, 0, 1, id="a small batch is one task"),
        pytest.param(30_000, 2, 0, 2, id="a larger one is work for each core"),
        pytest.param(1_600_000, 2, 0, 4, id="a large one has to fit in memory"),
        pytest.param(10_000, 2, 5_400_000_000, 6, id="a small one on a large state reads it side by side"),
    ],
)
def test_slots_follow_the_records_and_state(records: int, cores: int, state_bytes: int, number: int) -> None:
    assert Slots.of_batch(records, cores, state_bytes) == Slots(number)


@pytest.mark.spark
@pytest.mark.parametrize("number", [1, 2, 3, 7, 60, 4_096])
def test_spark_puts_each_hash_into_its_slot(spark: SparkSession, number: int) -> None:
    slots = Slots(number)
    bounds = [bound for slot in range(number) for bound in slots.range(slot)]
    rows = spark.createDataFrame([(bound,) for bound in bounds], "hash long")
    placed = rows.select("hash", slots.slot_of(F.col("hash")).alias("slot")).collect()
    assert all(
        slots.range(row["slot"]).first <= row["hash"] <= slots.range(row["slot"]).last for row in placed
    )
