"""Compaction on real Kafka, Spark and Delta: what is read and sent is the same with it as without."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import yaml

from tests.world import NOW_MS, World, key_of
from tidegate import core, failpoints, steps
from tidegate.lake import names_in, newest_per_key, snapshot_name
from tidegate.ledger import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.broker]

DAY_S = 86_400.0
T = NOW_MS - 10_000_000


def compact(world: World, stream: Stream | None = None, **options: Any) -> steps.Compaction:
    return steps.compact_state(world.app, stream or world.stream, world.open_session, **options)


def states(world: World, up_to: int) -> list[pa.Table]:
    return [steps.read_state(world.app, world.stream, as_of=seq) for seq in range(1, up_to + 1)]


def test_the_state_as_of_every_batch_and_what_follows_are_the_same(world: World) -> None:
    for quantity in (1, 0, 5):
        world.stock(quantity)
        world.stock(quantity, product=2)
        world.stock(3, product=quantity)
        world.run()
    world.send({"value": None, "key": key_of(product=2).encode()})
    world.run()
    before, attempts = states(world, 4), world.app.ledger.committed(world.stream)
    dry = compact(world, dry_run=True)
    assert (dry.note, dry.snapshot, dry.before.files) == ("would be compacted", None, 4)
    done = compact(world)
    assert (done.note, done.before.rows, done.after.rows, done.after.files) == ("compacted", 9, 3, 1)
    assert states(world, 4) == before
    assert world.app.ledger.committed(world.stream) == attempts
    assert compact(world).note == "is compacted already"
    world.stock(7)
    world.stock(7, product=2)
    world.run()
    assert world.published()[key_of()] == [True, False, True]
    assert world.published()[key_of(product=2)] == [True, False, True, None, True]
    assert compact(world, only_if_due=True).note == "not due: 1 rows changed since a snapshot of 3"


def test_one_that_dies_and_one_that_is_overtaken_change_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for quantity in (1, 0):
        world.stock(quantity)
        world.run()
    before = states(world, 2)
    path = world.app.lake(world.stream).state("availability")
    monkeypatch.setattr(failpoints, "_hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "compact.write_state=lose")
    with pytest.raises(ConnectionError):
        compact(world)
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    (dead,) = set(names_in(path)) - {name for _, name in world.app.ledger.committed(world.stream)}
    assert states(world, 2) == before
    faster: list[steps.Compaction] = []

    def overtaken() -> SparkSession:
        faster.append(compact(world))
        return world.open_session()

    late = steps.compact_state(world.app, world.stream, overtaken)
    assert (faster[0].note, late.note) == ("compacted", "another compaction was faster")
    assert states(world, 2) == before
    cleaned = steps.clean(world.app, world.stream, time.time())
    assert dead in cleaned.names
    assert len(cleaned.names) == 2
    assert states(world, 2) == before


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
    data = {
        "pipeline": "availability",
        "generation": generation,
        "source": {
            "topics": [world.source],
            "format": "json",
            "columns": "x bigint",
            **span.get("source", {}),
        },
        "stages": [{"name": "out", **span["stage"], "emit": span["emit"]}],
        "sinks": [{"kind": "table"}],
    }
    (world.folder / "pipelines" / "availability.yaml").write_text(yaml.safe_dump(data, sort_keys=False))


@pytest.mark.parametrize(
    "name",
    [
        "a bounded buffer",
        pytest.param("repeated values and sessions", marks=pytest.mark.long),
        pytest.param("final windows by root", marks=pytest.mark.long),
    ],
)
def test_with_a_snapshot_after_every_batch_emissions_and_state_are_those_without(
    world: World, name: str
) -> None:
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
    one, two = (Stream("availability", generation) for generation in (1, 2))
    emitted = [steps.read_emissions(world.app, each) for each in (one, two)]
    assert emitted[0].num_rows > 3
    assert emitted[0] == emitted[1]
    for seq in (1, 2, 3):
        assert steps.read_state(world.app, one, seq) == steps.read_state(world.app, two, seq)
    assert len(world.app.ledger.snapshots(one)) == 3


def test_a_lookup_finds_what_was_planned_whatever_is_compacted_meanwhile(world: World) -> None:
    world.stock(1)
    world.run()
    _look_up(world)
    world.stock(1)
    trigger = steps.Trigger("looking", NOW_MS)
    reader = world.app.pipeline("reader")
    assert steps.plan_batch(world.app, reader, trigger).plan is not None
    compact(world)
    world.stock(0)
    world.run()
    compact(world)
    steps.run_batch(world.app, reader, trigger, world.open_session)
    found = steps.read_emissions(world.app, steps.stream_of(reader))
    assert found["value"].to_pylist()[-1] == {"known": True}


def _look_up(world: World) -> None:
    """A pipeline that reads the state of the other one: as it was when its batch was planned."""
    data = {
        "pipeline": "reader",
        "source": {
            "topics": [world.source],
            "format": "json",
            "columns": "storeId string, id bigint, quantity int",
            "key": ["storeId", "id"],
        },
        "lookup": [{"table": "availability/availability", "on": ["key"], "columns": ["isAvailable"]}],
        "stages": [{"name": "out", "select": {"known": "isAvailable"}, "emit": {"on": "update"}}],
        "sinks": [{"kind": "table"}],
    }
    (world.folder / "pipelines" / "reader.yaml").write_text(yaml.safe_dump(data, sort_keys=False))


def test_a_batch_computes_while_old_state_is_given_up_and_removed(world: World) -> None:
    """Spark appends to the very tables that names are removed from."""
    for quantity in (1, 0):
        world.stock(quantity)
        world.run()
    compact(world)
    later = time.time() + 1000 * DAY_S
    given_up = steps.clean(world.app, world.stream, later, safe_age=timedelta(days=2000))
    assert (given_up.given_up, given_up.names) == (2, ())
    world.stock(1)
    plan = steps.plan_batch(world.app, world.pipeline, steps.Trigger("beside", NOW_MS)).plan
    assert plan is not None
    removed: list[steps.Cleaned] = []

    def remove() -> None:
        removed.append(steps.clean(world.app, world.stream, later, timedelta(days=1)))

    def while_removing() -> SparkSession:
        thread.start()
        return world.open_session()

    thread = threading.Thread(target=remove)
    steps.compute_batch(world.app, plan, "beside", while_removing)
    thread.join()
    assert len(removed[0].names) == 2
    steps.run_batch(world.app, world.pipeline, steps.Trigger("beside", NOW_MS), world.open_session)
    assert world.published() == {key_of(): [True, False, True]}
    assert [row["value"] for row in steps.read_state(world.app, world.stream).to_pylist()] == [
        {"isAvailable": True}
    ]


ROWS = [
    # key, window, partition, value, live, seq
    ("a", None, 0, 1, True, 1),
    ("a", None, 1, 2, True, 2),
    ("b", None, 0, None, False, 3),
    ("w", 10, 0, 5, True, 1),
    ("w", 10, 0, None, False, 4),
    ("w", 20, 0, 6, True, 2),
]


@pytest.mark.parametrize("bounded", [False, True])
def test_spark_folds_to_the_newest_row_of_each_entry(spark: SparkSession, bounded: bool) -> None:
    from tidegate.engine.compact import fold

    names = ("key", "window_start", "partition", "n", "live", "updated_seq")
    rows = [dict(zip(names, row, strict=True)) for row in ROWS]
    schema = pa.schema(
        [
            pa.field("key", pa.string()),
            *[pa.field(name, pa.int64()) for name in ("window_start", "window_end", "updated_seq")],
            pa.field("live", pa.bool_()),
            pa.field("topic", pa.string()),
            pa.field("partition", pa.int32()),
            pa.field("value", pa.struct([("n", pa.int64())])),
            pa.field("attempt", pa.string()),
        ]
    )
    for row in rows:
        start, n = row["window_start"], row.pop("n")
        row |= {"window_end": start and start + 10, "topic": "t", "attempt": "x"}
        row["value"] = None if n is None else {"n": n}
    state = pa.Table.from_pylist(rows, schema)
    bound = core.Bound(max_records=3) if bounded else None
    kept = core.Stage(core.Latest(), core.TimeLimit(5), deduplicate="root", bound=bound)
    forgetting = core.Stage(core.Latest(), core.Update(), window=core.Tumbling(10), bound=bound)
    frame = spark.createDataFrame(state)
    all_rows = pa.Table.from_pylist([row.asDict(True) for row in fold(frame, [kept], 2).collect()])
    living = pa.Table.from_pylist([row.asDict(True) for row in fold(frame, [forgetting], 2).collect()])
    assert all_rows.num_rows == (5 if bounded else 4)
    expected = newest_per_key(state, bounded).select(["key", "updated_seq"])
    order = [("key", "ascending"), ("updated_seq", "ascending")]
    assert living.select(["key", "updated_seq"]).sort_by(order) == expected.sort_by(order)


def test_a_snapshots_name_is_not_an_attempts() -> None:
    from tidegate.lake import Name, attempt_name

    assert Name.parse(snapshot_name(7)) == Name(7, None)
    assert Name.parse(attempt_name(7, 3)) == Name(7, 3)
    assert [Name.parse(text) for text in ("a1", "snapshot-7", attempt_name(7, 3) + "0")] == [None] * 3
