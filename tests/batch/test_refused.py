"""`on_failure: quarantine`, on real Kafka and real Spark: rows that break an expectation do not go out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.quarantines import stored_quarantine
from tests.world import NOW_MS, World, key_of
from tidegate.batch import Trigger, plan_batch
from tidegate.errors import SettingsInvalid
from tidegate.formats import EMISSION
from tidegate.inspect.explain import explain
from tidegate_dev.demo.topics import read_published

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def write_suite(world: World, least: int) -> None:
    """Quantities are not below `least`; and something that is not about single rows."""
    world.app.settings.expectations.mkdir(exist_ok=True)
    between = {"column": "quantity", "min_value": least}
    expectations: list[dict[str, Any]] = [
        {"type": "expect_column_values_to_be_between", "kwargs": between},
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"max_value": 100}},
    ]
    file = world.app.settings.expectations / "stock.json"
    file.write_text(json.dumps({"name": "stock", "meta": {}, "expectations": expectations}))


def quantities(world: World) -> dict[str, list[Any]]:
    return {
        key: [value and value["quantity"] for value in values]
        for key, values in read_published(world.servers, world.sink).items()
    }


def test_refused_change_is_quarantined_until_a_good_value(
    world: World,
) -> None:
    select = 'isAvailable: "quantity > 0"'
    world.write_pipeline(
        extra="quality: {suite: stock, on_failure: quarantine}", **{select: f"{select}, quantity: quantity"}
    )
    with pytest.raises(SettingsInvalid, match=r"stock.json does not exist"):
        world.run()
    write_suite(world, 0)
    world.stock(10, -5, 10)
    world.stock(-1, product=2)
    plan = plan_batch(world.app, world.pipeline, Trigger("r", NOW_MS)).plan
    assert plan is not None
    write_suite(world, -100)  # which changes nothing of what is planned
    world.run("r")
    assert quantities(world) == {key_of(): [10]}
    rows = stored_quarantine(world.app, world.stream)
    assert [(row["offset"], row["key"].decode(), json.loads(row["value"])["quantity"]) for row in rows] == [
        (1, key_of(), -5),
        (3, key_of(product=2), -1),
    ]
    assert {row["reason"] for row in rows} == {"expectation: expect_column_values_to_be_between(quantity)"}
    assert {row["part"] for row in rows} == {EMISSION}, "which no replay takes for records"
    counts = world.counts(1)
    assert (counts["read"], counts["used"], counts["refused"], counts["emitted"]) == (4, 4, 2, 1)
    assert (counts["quarantined"], counts["idempotent-update-skip"]) == (0, 1)
    events = explained(world)
    assert ("record", "refused") in events
    assert ("refused", "expect_column_values_to_be_between(quantity)") in events

    write_suite(world, 0)
    world.stock(7, product=2)
    world.send({"key": key_of(product=3).encode(), "value": {"storeId": "s1", "id": 3, "quantity": -1}})
    world.send({"key": key_of(product=3).encode(), "value": None})
    world.stock(3)
    world.run()
    assert quantities(world) == {key_of(): [10, 3], key_of(product=2): [7]}, "nobody has seen product 3"
    assert world.counts(2)["emitted.new"] == 1
    assert len(stored_quarantine(world.app, world.stream)) == 3


def explained(world: World) -> list[tuple[str, str]]:
    """Return the fates of the first product in batch 1, with their reasons."""
    explanations = explain(world.app, world.stream, key_of(), world.open_session, 1)
    return [(event.what, event.fate) for explanation in explanations for event in explanation.events]
