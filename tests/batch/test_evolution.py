"""Columns that are added, widened, renamed and removed, from plan to tables, on real Kafka and Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from deltalake import DeltaTable
from sqlalchemy import create_engine, text

from tests.world import NOW_MS, World
from tidegate import inspect, maintenance
from tidegate.app import App
from tidegate.batch import Trigger, plan_batch
from tidegate.errors import PipelineChanged
from tidegate_dev.demo.topics import read_published

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.long]

LARGE = 2**40
PIPELINE = """\
pipeline: availability
source:
  topics: [{source}]
  format: json
  columns: "product string, {columns}"
  key: [product]
  aliases: {source_aliases}
stages:
  - name: availability
    select: {select}
    aliases: {aliases}
    emit: {{on: change}}
sinks:
  - {{kind: kafka, topic: {sink}}}
  - {{kind: sql, table: availability, mode: append}}
"""
FIRST = {"columns": "qty int", "select": '{available: "qty > 0", n: qty}'}
ADDED = {"columns": "qty int, price float", "select": '{available: "qty > 0", n: qty, price: price}'}
WIDENED = {**ADDED, "columns": "qty bigint, price double"}
RENAMED = {
    "columns": "quantity bigint, price double",
    "source_aliases": "{quantity: [qty]}",
    "select": '{isAvailable: "quantity > 0", n: quantity, price: price}',
    "aliases": "{isAvailable: [available]}",
}
REMOVED = {**RENAMED, "select": '{isAvailable: "quantity > 0", n: quantity}'}


class Shop:
    """A world whose pipeline is edited between batches."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.database = f"sqlite:///{world.folder}/sink.db"
        world.app = App.from_environment(world.environment | {"TIDEGATE_SQL": self.database})

    def edit(self, parts: dict[str, str]) -> None:
        given = {"source_aliases": "{}", "aliases": "{}", **parts}
        topics = {"source": self.world.source, "sink": self.world.sink}
        file = self.world.folder / "pipelines" / "availability.yaml"
        file.write_text(PIPELINE.format(**topics, **given))

    def batch(self, parts: dict[str, str], *records: tuple[str, dict[str, Any]]) -> None:
        """Edit the file, and run a batch of records: each a product and its fields."""
        self.edit(parts)
        values = ({"value": {"product": product, **value}} for product, value in records)
        self.world.send(*values)
        self.world.run()

    def published(self) -> dict[str, list[Any]]:
        return read_published(self.world.servers, self.world.sink)

    def state(self, as_of: int | None = None) -> dict[str, Any]:
        rows = inspect.read_state(self.world.app, self.world.stream, as_of).to_pylist()
        return {row["key"]: row["value"] for row in rows}

    def table(self, kind: Any, *columns: str) -> list[dict[str, Any]]:
        """The rows of a table for others, as any reader of Delta sees them."""
        lake = self.world.app.lake(self.world.stream)
        table = DeltaTable(lake.store.uri(lake.table(kind, "availability"))).to_pyarrow_table()
        rows: list[dict[str, Any]] = table.select(columns).to_pylist()
        return rows

    def sql(self) -> Sequence[Any]:
        with create_engine(self.database).begin() as connection:
            query = text(
                'SELECT key, n, price, available, "isAvailable" FROM availability ORDER BY batch, key'
            )
            return [tuple(row) for row in connection.execute(query)]


def test_schema_evolution_goes_from_plan_to_tables(world: World) -> None:
    shop = Shop(world)
    shop.batch(FIRST, ("a", {"qty": 1}), ("b", {"qty": 1}))
    shop.batch(ADDED, ("a", {"qty": 1}), ("b", {"qty": 1, "price": 0.5}))
    shop.batch(WIDENED, ("b", {"qty": 1, "price": 0.5}), ("a", {"qty": LARGE}))
    shop.batch(
        RENAMED,
        *(("a", {"qty": LARGE}), ("a", {"quantity": LARGE})),
        *(("b", {"quantity": 1, "qty": 9, "price": 0.5}), ("b", {"qty": 0, "price": 0.5})),
    )
    assert maintenance.compact_state(world.app, world.stream).note == "compacted"
    shop.batch(REMOVED, ("a", {"quantity": LARGE}), ("b", {"quantity": 0}), ("a", {"quantity": 5}))
    assert shop.published() == {
        "a": [
            {"available": True, "n": 1},
            {"available": True, "n": LARGE, "price": None},
            {"isAvailable": True, "n": 5},
        ],
        "b": [
            {"available": True, "n": 1},
            {"available": True, "n": 1, "price": 0.5},
            {"isAvailable": False, "n": 0, "price": 0.5},
        ],
    }
    assert shop.state() == {
        "a": {"isAvailable": True, "n": 5, "price": None},
        "b": {"isAvailable": False, "n": 0, "price": 0.5},
    }
    assert shop.state(as_of=1) == {key: {"available": True, "n": 1} for key in "ab"}
    assert shop.state(as_of=3)["a"] == {"available": True, "n": LARGE, "price": None}
    emitted = shop.table("outbox", "seq", "key", "value")
    assert sorted((row["seq"], row["key"], row["value"]["n"]) for row in emitted) == [
        *((1, "a", 1), (1, "b", 1), (2, "b", 1), (3, "a", LARGE), (4, "b", 0), (5, "a", 5)),
    ]
    newest = {row["key"]: row["value"] for row in shop.table("state", "key", "value", "updated_seq")}
    assert (newest["b"]["isAvailable"], newest["b"]["n"]) == (False, 0)
    assert shop.sql() == [
        *(("a", 1, None, 1, None), ("b", 1, None, 1, None), ("b", 1, 0.5, 1, None)),
        *(("a", LARGE, None, 1, None), ("b", 0, 0.5, None, 0), ("a", 5, None, None, 1)),
    ]


def test_narrower_column_and_wrong_alias_are_refused(world: World) -> None:
    shop = Shop(world)
    shop.batch(WIDENED, ("a", {"qty": 1, "price": 0.5}))
    narrow = {**WIDENED, "columns": "qty int, price double"}
    wrong = {**RENAMED, "aliases": "{isAvailable: [avialable]}"}
    for parts, says in ((narrow, r"availability\.n` was bigint and is int"), (wrong, "called avialable")):
        shop.edit(parts)
        with pytest.raises(PipelineChanged, match=says):
            plan_batch(world.app, world.pipeline, Trigger("refused", NOW_MS))
    shop.batch(RENAMED, ("a", {"quantity": 1, "price": 0.5}))
    assert shop.published() == {"a": [{"available": True, "n": 1, "price": 0.5}]}
