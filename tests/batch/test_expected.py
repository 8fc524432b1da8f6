"""`expected` from plan to topic: silent keys of a table, in replays and in another generation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from tests.world import NOW_MS, World, key_of
from tidegate import quarantine
from tidegate.cli import cli
from tidegate.inspect import read_emissions
from tidegate.ledger import Stream

CHANGE = "emit: {on: change, equal: exact}"
MINUTE = 60_000


def corrected(rows: pa.Table) -> pa.Table:
    """Records in quarantine with a value that can be read."""
    value = json.dumps({"storeId": "s2", "id": 1, "quantity": 5}).encode()
    place = rows.schema.get_field_index("value")
    return rows.set_column(place, rows.schema.field(place), pa.array([value] * len(rows), pa.binary()))


def emitted(world: World, stream: Stream) -> list[Any]:
    rows = read_emissions(world.app, stream, stage="availability").to_pylist()
    return [(row["seq"], row["key"], row["value"], row["reason"], row["timestamp"]) for row in rows]


@pytest.mark.spark
@pytest.mark.broker
def test_silent_keys_are_reported_once(world: World, tmp_path: Path) -> None:
    path = str(tmp_path / "products")

    def products(*stores: str) -> None:
        table = pa.table({"store": stores, "id": pa.array([1] * len(stores), pa.int32())})
        write_deltalake(path, table, mode="overwrite")

    def run(minute: int, **trigger: Any) -> bool:
        return world.run(clock_ms=NOW_MS + minute * MINUTE, **trigger).plan is not None

    def command(*arguments: str) -> str:
        called = CliRunner().invoke(cli, [*arguments], env=world.environment, catch_exceptions=False)
        assert called.exit_code == 0, called.output
        return called.output

    products("s1", "s2")
    expected = f"emit: {{on: quiet, after: 10s}}\n    expected: {{table: {path}, key: [store, id]}}"
    world.write_pipeline(**{CHANGE: expected})
    world.stock(7, store="s1")
    world.send({"value": b"{"})
    assert run(0)
    assert run(1), "what waits makes a batch"
    assert not run(2), "both silences are over"
    products("s1", "s2", "s3")
    assert run(3), "the table alone makes a batch"
    first, second, third = (key_of(store=store) for store in ("s1", "s2", "s3"))
    shown = emitted(world, world.stream)
    assert [(seq, key, reason) for seq, key, _, reason, _ in shown] == [
        (2, first, "quiet"),
        (2, second, "absent"),
        (3, third, "absent"),
    ]
    assert '"absent"' in command("explain", "availability", third, "--batch", "3", "--json")

    world.write_pipeline(**{CHANGE: expected, "quantity > 0": "quantity > 1"})
    command("generation", "new", "availability", "--from-batch", "3", "--yes")
    assert emitted(world, Stream("availability", 2)) == shown

    world.write_pipeline(**{CHANGE: expected})
    request = quarantine.ReplayedRecords(
        lambda: map(corrected, quarantine.iter_open(world.app, world.stream, quarantine.QuarantineFilter())),
        "ada",
    )
    assert run(4, replay=request)
    assert not run(5), "the silence of an old record is over as it comes"
    assert emitted(world, world.stream)[3:] == [(4, second, {"isAvailable": True}, "quiet", NOW_MS - 1000)]
    assert world.published() == {first: [True], second: [None, True], third: [None]}
