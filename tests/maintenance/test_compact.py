"""Compaction beside real batches: what they read and send is the same with it as without."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.storage.tables_for_tests import duck, newest_rows_sql, scan
from tests.world import NOW_MS, World, key_of
from tidegate import inspect, maintenance
from tidegate.app import stream_of
from tidegate.app.tables import shared_table
from tidegate.batch import Trigger, compute_batch, plan_batch, run_batch
from tidegate.ledger import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.broker]

DAY_S = 86_400.0
T = NOW_MS - 10_000_000


def compact(world: World, stream: Stream | None = None, **options: Any) -> maintenance.Compaction:
    return maintenance.compact_state(world.app, stream or world.stream, **options)


def states(world: World, up_to: int) -> list[pa.Table]:
    return [inspect.read_state(world.app, world.stream, as_of=seq) for seq in range(1, up_to + 1)]


def test_state_as_of_every_batch_survives_compaction(world: World) -> None:
    for quantity in (1, 0, 5):
        world.stock(quantity)
        world.stock(quantity, product=2)
        world.stock(3, product=quantity)
        world.run()
    world.send({"value": None, "key": key_of(product=2).encode()})
    world.run()
    before = states(world, 4)
    done = compact(world)
    assert (done.note, done.before.rows, done.after.rows) == ("compacted", 9, 3)
    assert states(world, 4) == before
    world.stock(7)
    world.stock(7, product=2)
    world.run()
    assert world.published()[key_of()] == [True, False, True]
    assert world.published()[key_of(product=2)] == [True, False, True, None, True]
    assert compact(world, only_if_due=True).note == "not due: 1 rows changed since a snapshot of 3"


SPANS: dict[str, dict[str, Any]] = {
    "repeated values and sessions": {
        "stage": {"reduce": {"n": "count(*)"}, "window": {"session": "5s", "grace": "1s"}},
        "emit": {"on": "update", "clock": "stream"},
        "source": {"deduplicate": {"columns": ["x"], "keep": "20s"}},
    },
    "a bounded buffer": {
        "stage": {},
        "emit": {
            "on": "time_limit",
            "after": "20s",
            "clock": "stream",
            "buffer": {"max_records": 2, "when_full": "emit_early"},
        },
    },
    "final windows by root": {
        "stage": {"reduce": {"n": "sum(x)"}, "window": {"tumbling": "10s", "grace": "2s"}},
        "emit": {"on": "window_close", "clock": "run"},
        "source": {"deduplicate": "root"},
    },
}


def _write(world: World, span: Mapping[str, Any], generation: int) -> None:
    source = {"columns": "x bigint", **span.get("source", {})}
    stage = {"name": "out", **span["stage"], "emit": span["emit"]}
    world.write(source, stage, generation=generation, sinks=[{"kind": "table"}])


@pytest.mark.parametrize(
    "name",
    [
        "a bounded buffer",
        pytest.param("repeated values and sessions", marks=pytest.mark.long),
        pytest.param("final windows by root", marks=pytest.mark.long),
    ],
)
def test_snapshot_after_every_batch_changes_no_emission(world: World, name: str) -> None:
    """Two generations read the same records; one is compacted."""
    for number in range(3):
        for at, key, x in ((0, "a", 1), (3, "b", 2), (4, "a", 1), (9, "c", 3), (14, "a", 4), (2, "b", 5)):
            stamp = T + number * 12_000 + at * 1000
            source = f"raw/{at % 2}/{number * 10 + at}".encode()
            world.send(
                {
                    "key": key.encode(),
                    "value": {"x": x + number},
                    "timestamp_ms": stamp,
                    "partition": at % 2,
                    "headers": [("tidegate-source", source)],
                }
            )
        for generation in (1, 2):
            _write(world, SPANS[name], generation)
            world.run(f"{generation}-{number}", clock_ms=T + number * 12_000 + 15_000)
        compact(world, Stream("availability", 1))
    plain, two = (Stream("availability", generation) for generation in (1, 2))
    emitted = [inspect.read_emissions(world.app, stream) for stream in (plain, two)]
    assert emitted[0].num_rows > 3
    assert emitted[0] == emitted[1]
    for seq in (1, 2, 3):
        assert inspect.read_state(world.app, plain, seq) == inspect.read_state(world.app, two, seq)
    assert len(world.app.ledger.snapshots(plain)) == 3
    by_place = name == "a bounded buffer"
    assert viewed(world, plain, by_place) == viewed(world, two, by_place) == entries(world, two)


def viewed(world: World, stream: Stream, by_place: bool) -> list[tuple[Any, ...]]:
    """The state as others see it: key, window and batch of each entry."""
    table = shared_table(world.app, stream, "state", "out")
    view = newest_rows_sql(scan(table), by_place)
    return sorted(duck(f"SELECT key, window_start, updated_seq FROM ({view})"), key=str)


def entries(world: World, stream: Stream) -> list[tuple[Any, ...]]:
    rows = inspect.read_state(world.app, stream).select(["key", "window_start", "updated_seq"])
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=str)


def test_lookup_reads_its_planned_state_despite_compaction(world: World) -> None:
    world.stock(1)
    world.run()
    _look_up(world)
    world.stock(1)
    trigger = Trigger("looking", NOW_MS)
    reader = world.app.pipeline("reader")
    assert plan_batch(world.app, reader, trigger).plan is not None
    compact(world)
    world.stock(0)
    world.run()
    compact(world)
    run_batch(world.app, reader, trigger, world.open_session)
    emissions = inspect.read_emissions(world.app, stream_of(reader))
    assert emissions["value"].to_pylist()[-1] == {"known": True}


def _look_up(world: World) -> None:
    """A pipeline that reads the state of the other one: as it was when its batch was planned."""
    world.write(
        {"columns": "storeId string, id bigint, quantity int", "key": ["storeId", "id"]},
        {"name": "out", "select": {"known": "isAvailable"}, "emit": {"on": "update"}},
        pipeline="reader",
        lookup=[{"table": "availability/availability", "on": ["key"], "columns": ["isAvailable"]}],
        sinks=[{"kind": "table"}],
    )


def test_batch_computes_while_old_state_is_removed(world: World) -> None:
    for quantity in (1, 0):
        world.stock(quantity)
        world.run()
    compact(world)
    later = time.time() + 1000 * DAY_S
    given_up = maintenance.clean(world.app, world.stream, later, safe_age=timedelta(days=2000))
    assert (given_up.given_up, given_up.names) == (2, ())
    world.stock(1)
    plan = plan_batch(world.app, world.pipeline, Trigger("beside", NOW_MS)).plan
    assert plan is not None
    removed: list[maintenance.Cleaned] = []

    def remove() -> None:
        removed.append(maintenance.clean(world.app, world.stream, later, timedelta(days=1)))

    def while_removing(records: int) -> SparkSession:
        thread.start()
        return world.open_session(records)

    thread = threading.Thread(target=remove)
    compute_batch(world.app, plan, "beside", while_removing)
    thread.join()
    assert len(removed[0].names) == 2
    run_batch(world.app, world.pipeline, Trigger("beside", NOW_MS), world.open_session)
    assert world.published() == {key_of(): [True, False, True]}
    assert [row["value"] for row in inspect.read_state(world.app, world.stream).to_pylist()] == [
        {"isAvailable": True}
    ]
