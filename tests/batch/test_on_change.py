"""`lookup: {on_change: emit}` from plan to topic: a changed table makes a batch, which emits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from tests.batch.committed import Committed
from tests.world import NOW_MS, World, key_of
from tidegate.batch.lookups import changed_tables
from tidegate.cli import cli
from tidegate.inspect.words import meaning
from tidegate.kernel import LastRecord
from tidegate.yaml.load import parse_pipeline

LOOKUP = "lookup: [{table: /stores, on: [customerId], columns: [name], on_change: emit}]"


def test_tables_change_with_version_or_edit(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: table}", "sqlite://")
    text = committed.file.read_text()
    committed.file.write_text(f"{text}\n{LOOKUP}\n")
    first = replace(committed.planned(1), lookups={"/stores": {"version": 1, "id": "t"}})
    second = replace(committed.planned(2), lookups={"/stores": {"version": 2, "id": "t"}})

    def changed(lookup: str, plan: Any, before: Any) -> set[str]:
        return set(changed_tables(parse_pipeline(f"{text}\n{lookup}\n", "p.yaml"), plan, lambda: before))

    assert changed(LOOKUP, second, first) == {"/stores"}
    assert changed(LOOKUP, replace(second, lookups=first.lookups), first) == set()
    assert changed(LOOKUP.replace("name", "name, city"), replace(second, lookups=first.lookups), first) == {
        "/stores"
    }
    assert changed(LOOKUP, first, None) == {"/stores"}
    assert changed(LOOKUP.replace(", on_change: emit", ""), second, first) == set()


@pytest.mark.spark
@pytest.mark.broker
def test_table_change_alone_is_emitted(world: World, tmp_path: Path) -> None:
    path = str(tmp_path / "limits")

    def limits(**stores: int) -> None:
        table = pa.table({"storeId": list(stores), "least": list(stores.values())})
        write_deltalake(path, table, mode="overwrite")

    limits(s1=5, s2=5)
    lookup = f"lookup: [{{table: {path}, on: [storeId], columns: [least], on_change: emit}}]"
    world.write_pipeline(extra=lookup, **{"quantity > 0": "quantity > least"})
    world.stock(7, store="s1")
    world.stock(3, store="s2")
    world.run("first")
    limits(s1=8, s2=4)
    assert world.run("second").plan is not None, "the table alone makes a batch"
    assert world.run("third").plan is None
    world.stock(9, store="s1")
    limits(s1=9, s2=1)
    world.run("fourth", clock_ms=NOW_MS + 60_000)
    assert world.published() == {key_of(store="s1"): [True, False], key_of(store="s2"): [False, True]}
    called = CliRunner().invoke(
        cli,
        ["explain", "availability", key_of(store="s2"), "--batch", "3", "--json"],
        env=world.environment,
        catch_exceptions=False,
    )
    assert f"lookup:{path}" in called.output
    assert meaning(f"lookup:{path}") == LastRecord.reasons["lookup"]
