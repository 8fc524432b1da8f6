"""What stages do, on real Kafka and real Spark: windows, timers, buffers, chains, lookups, several stages."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from tests.world import NOW_MS, World
from tidegate import inspect
from tidegate.app import stream_of
from tidegate.batch import Trigger, plan_batch, run_batch
from tidegate.cli import cli
from tidegate.errors import BufferFull, LookupAmbiguous, QuarantineExceeded, UserFunctionFailed
from tidegate_dev.demo.topics import committed_records

pytestmark = [pytest.mark.spark, pytest.mark.broker]

T = NOW_MS - 10_000_000
"""The instant that the tests count from."""
Write = Callable[..., None]


@pytest.fixture
def write(world: World) -> Write:
    """Writes the world's pipeline file: one stage, or several, over `columns`."""

    def write(
        stages: Any,
        columns: str = "x bigint",
        lookup: Sequence[Any] = (),
        with_key: bool = False,
        **source: Any,
    ) -> None:
        listed = stages if isinstance(stages, list) else [stages]
        world.write(
            {"columns": columns, **source},
            *({"name": f"stage{number}", **stage} for number, stage in enumerate(listed)),
            lookup=list(lookup),
            sinks=[{"kind": "kafka", "topic": world.sink, "with_key": with_key}],
        )

    return write


def event(key: str, at: int, source: str | None = None, **value: Any) -> dict[str, Any]:
    """A record `at` milliseconds after T; without a value a deletion."""
    headers = [("tidegate-source", source.encode())] if source else []
    return {"key": key.encode(), "value": value or None, "timestamp_ms": T + at, "headers": headers}


def out(world: World) -> dict[str, list[Any]]:
    """Key -> values in order, as a read_committed consumer sees them."""
    return {key: [value for value, _ in records] for key, records in sent(world).items()}


def sent(world: World) -> dict[str, list[tuple[Any, dict[str, str]]]]:
    """Key -> (value, headers) in order."""
    messages_by_key: dict[str, list[tuple[Any, dict[str, str]]]] = {}
    for record in committed_records(world.servers, world.sink):
        value = None if record.value is None else json.loads(record.value)
        headers = {name: text.decode() for name, text in record.headers}
        assert record.key is not None
        messages_by_key.setdefault(record.key.decode(), []).append((value, headers))
    return messages_by_key


def test_window_is_emitted_once_after_its_grace(world: World, write: Write) -> None:
    window = {"tumbling": "10s", "grace": "5s"}
    write({"reduce": {"n": "count(*)"}, "window": window, "emit": {"on": "window_close", "clock": "stream"}})
    world.send(event("a", 0, x=1), event("a", 3000, x=1), event("b", 14_000, x=1))
    world.run()
    assert out(world) == {}
    world.send(event("a", 9000, x=1), event("b", 15_000, x=1), event("a", 9000, x=1))
    world.run()
    assert out(world) == {"a": [{"n": 3}]}
    _, headers = sent(world)["a"][0]
    assert headers["tidegate-window"] == f"{T}/{T + 10_000}"
    assert world.counts(2)["expired-window-record-drop"] == 1


def test_idle_key_is_flushed_by_the_next_clock(world: World, write: Write) -> None:
    write({"reduce": "collect", "emit": {"on": "threshold", "count": 3, "after": "60s"}})
    world.send(event("busy", 0, x=1), event("busy", 1, x=2), event("busy", 2, x=3), event("idle", 0, x=9))
    world.run(clock_ms=T + 50_000)
    assert out(world) == {"busy": [{"events": [{"x": 1}, {"x": 2}, {"x": 3}]}]}
    world.run(clock_ms=T + 70_000)
    assert out(world)["idle"] == [{"events": [{"x": 9}]}]


def test_a_drain_lets_out_what_is_held_back(world: World, write: Write) -> None:
    write({"reduce": "collect", "emit": {"on": "threshold", "count": 100}})
    world.send(event("a", 0, x=1), event("b", 0, x=2))
    world.run()
    assert out(world) == {}
    world.run(drain=True)
    assert out(world) == {"a": [{"events": [{"x": 1}]}], "b": [{"events": [{"x": 2}]}]}
    world.run(drain=True)
    assert len(out(world)["a"]) == 1


def test_full_buffer_fails_the_batch_without_loss(world: World, write: Write) -> None:
    def bounded(records: int) -> None:
        buffer = {"max_records": records, "when_full": "shut_down"}
        write({"emit": {"on": "time_limit", "after": "60s", "clock": "stream", "buffer": buffer}})

    bounded(2)
    world.send(event("a", 0, x=1), event("b", 1, x=2), event("c", 2, x=3))
    with pytest.raises(BufferFull, match="Raise `max_records`"):
        world.run()
    bounded(3)
    lease = world.app.ledger.acquire(world.stream, "doctor")
    lease.drop_plan()
    lease.release()
    world.send(event("d", 60_000, x=4))
    world.run()
    assert out(world) == {"a": [{"x": 1}]}
    assert world.app.ledger.head(world.stream).seq == 1


def test_emit_early_buffer_emits_the_oldest(world: World, write: Write) -> None:
    buffer = {"max_records": 2, "when_full": "emit_early"}
    write({"emit": {"on": "time_limit", "after": "60s", "clock": "stream", "buffer": buffer}})
    world.send(event("a", 0, x=1), event("b", 1, x=2))
    world.run()
    world.send(event("c", 2, x=3))
    world.run()
    assert out(world) == {"a": [{"x": 1}]}


def test_slow_drift_gets_out_in_the_end(world: World, write: Write) -> None:
    write({"emit": {"on": "change", "equal": {"within": {"x": 2}}}})
    for at in range(4):
        world.send(event("a", at, x=at))
        world.run()
    assert out(world) == {"a": [{"x": 0}, {"x": 3}]}


def test_hash_of_the_value_detects_changes(world: World, write: Write) -> None:
    write({"emit": {"on": "change", "state": "hash"}})
    for at, value in enumerate([1, 1, 2]):
        world.send(event("a", at, x=value))
        world.run()
    assert out(world) == {"a": [{"x": 1}, {"x": 2}]}


def test_faulty_user_function_is_named_with_the_offset(
    world: World, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "operator")
    write({"emit": {"on": "change", "equal": {"python": "operator:truediv"}}})
    world.send(event("a", 0, x=1), event("a", 1, x=2))
    with pytest.raises(UserFunctionFailed, match=rf"operator:truediv.*{world.source}/0/1"):
        world.run()
    assert world.app.ledger.head(world.stream).seq == 0


@pytest.mark.parametrize(("rule", "total"), [("offset", 9), ("root", 6)])
def test_repeated_records_count_once_by_root(world: World, write: Write, rule: str, total: int) -> None:
    write({"reduce": {"total": "sum(x)"}, "emit": {"on": "update"}}, deduplicate=rule)
    hop = [event("a", at, f"raw/0/{at};hop/0/{at}", x=at) for at in (1, 2)]
    world.send(*hop)
    world.run()
    world.send(hop[0], hop[1], event("a", 3, "raw/0/3", x=3))  # it died, and sent them again
    world.run()
    assert out(world)["a"][-1] == {"total": total}
    _, headers = sent(world)["a"][0]
    assert headers["tidegate-source"] == f"raw/0/1;hop/0/1;{world.source}/0/0"


def test_another_root_topic_or_partition_starts_over(world: World, write: Write) -> None:
    write({"reduce": {"total": "sum(x)"}, "emit": {"on": "update"}}, deduplicate="root")
    world.send(event("a", 0, "raw/0/7", x=1), event("a", 1, "raw/1/3", x=1), event("a", 2, "new/0/1", x=1))
    world.run()
    assert out(world)["a"][-1] == {"total": 3}


def test_rows_exploded_from_one_record_stay_together(world: World, write: Write) -> None:
    write(
        {"reduce": {"good": "count(nullif(screws.ok, false))", "all": "count(*)"}, "emit": {"on": "update"}},
        columns="robot string, screws array<struct<ok: boolean>>",
        key=["robot"],
        explode="screws",
        deduplicate="root",
    )
    body = {"robot": "r1", "screws": [{"ok": True}, {"ok": False}, {"ok": True}]}
    world.send(event("r1", 0, "raw/0/1", **body), event("r1", 0, "raw/0/1", **body))
    world.send(event("r1", 1, "raw/0/2", robot="r1", screws=[]))
    world.run()
    assert out(world)["r1"] == [{"good": 1, "all": 1}, {"good": 1, "all": 2}, {"good": 2, "all": 3}]
    counts = world.counts(1)
    assert (counts["read"], counts["exploded"], counts["deduplicated"]) == (3, 4, 3)


def test_column_values_pass_once_within_their_time(world: World, write: Write) -> None:
    write(
        {"reduce": {"n": "count(*)"}, "emit": {"on": "update"}},
        columns="id string, x bigint",
        deduplicate={"columns": ["id"], "keep": "10s"},
    )
    world.send(event("a", 0, id="1", x=1), event("b", 5, id="1", x=1), event("a", 6, id="2", x=1))
    world.run()
    assert out(world) == {"a": [{"n": 1}, {"n": 2}]}
    world.send(event("b", 7, id="2", x=1), event("b", 20_000, id="2", x=1))
    world.run()
    assert out(world) == {"a": [{"n": 1}, {"n": 2}], "b": [{"n": 1}]}
    assert world.counts(2)["deduplicated"] == 1


def test_deletion_passes_deduplication_and_makes_older_records_late(world: World, write: Write) -> None:
    write(
        {"reduce": {"n": "count(*)"}, "emit": {"on": "update", "clock": "run"}},
        columns="id string, x bigint",
        deduplicate={"columns": ["id", "x"], "keep": "10s"},
    )
    world.send(event("a", 0, id="1", x=1), event("a", 1, id=None, x=1), event("a", 1, id=None, x=1))
    world.send(event("a", 10_000))
    world.run()
    world.send(event("a", 0, id="1", x=1), event("a", 1, id="1", x=1), event("a", 0, id="1", x=None))
    world.run()
    assert out(world) == {"a": [{"n": n} for n in (1, 2, 3, 4)]}
    assert world.counts(1)["used"] == 4
    counts = world.counts(2)
    assert [counts[name] for name in ("used", "deduplicated", "expired-window-record-drop")] == [1, 1, 1]


def test_two_stages_regroup_without_a_topic_between_them(world: World, write: Write) -> None:
    robots = {"reduce": {"site": "last(site)", "n": "count(*)"}, "emit": {"on": "update"}}
    sites = {"key": ["site"], "reduce": {"robots": "collect_set(robot)"}, "emit": {"on": "update"}}
    write([robots, sites], columns="robot string, site string", key=["robot"], with_key=True)
    world.send(event("r1", 0, robot="r1", site="north"), event("r2", 1, robot="r2", site="north"))
    world.run()
    world.send(event("r3", 2, robot="r3", site="south"))
    world.run()
    assert out(world) == {
        "north": [{"site": "north", "robots": ["r1"]}, {"site": "north", "robots": ["r1", "r2"]}],
        "south": [{"site": "south", "robots": ["r3"]}],
    }


def test_grouping_stage_ignores_and_counts_a_deletion(world: World, write: Write) -> None:
    robots = {"select": {"x": "x"}, "emit": {"on": "update"}}
    sites = {"key": ["site"], "select": {"x": "x"}, "emit": {"on": "change"}}
    write([robots, sites], columns="site string, robot string, x bigint", key=["site", "robot"])
    r1, r2 = ({"site": "north", "robot": name} for name in ("r1", "r2"))
    world.send(event("r1", 0, **r1, x=1), event("r2", 1, **r2, x=2))
    world.send(event(json.dumps(r1, separators=(",", ":")), 2))
    world.run()
    world.send(event(json.dumps(r2, separators=(",", ":")), 3), event("r2", 4, **r2, x=2))
    world.run()
    assert out(world) == {"north": [{"x": 1}, {"x": 2}]}
    for seq, used in ((1, 2), (2, 1)):
        counts = {name: number for (stage, name), number in _metrics(world, seq) if stage == "stage1"}
        assert (counts["tombstones-ignored"], counts["used"]) == (1, used)


def test_lookup_adds_columns_as_of_the_plan(world: World, write: Write, tmp_path: Path) -> None:
    path = str(tmp_path / "names")
    write_deltalake(path, pa.table({"x": [1, 2], "name": ["one", "two"]}))
    lookup = [{"table": path, "on": ["x"], "columns": ["name"]}]
    write({"select": {"name": "name"}, "emit": {"on": "update"}}, lookup=lookup)
    world.send(event("a", 0, x=1), event("b", 0, x=3))
    plan = plan_batch(world.app, world.pipeline, Trigger("run-1", NOW_MS)).plan
    assert plan is not None
    write_deltalake(path, pa.table({"x": [1], "name": ["changed"]}), mode="overwrite")
    world.run("run-1")
    assert out(world) == {"a": [{"name": "one"}], "b": [{"name": None}]}


def test_ambiguous_lookup_halts_until_its_plan_is_dropped(world: World, write: Write, tmp_path: Path) -> None:
    path = str(tmp_path / "names")
    write_deltalake(path, pa.table({"x": [1, 1], "name": ["one", "uno"]}))
    lookup = [{"table": path, "on": ["x"], "columns": ["name"]}]
    write({"select": {"name": "name"}, "emit": {"on": "update"}}, lookup=lookup)
    world.send(event("a", 0, x=1))
    for _ in range(2):
        with pytest.raises(
            LookupAmbiguous, match=r"2 rows with x = 1.*recover availability .*drop-plan.* --yes"
        ):
            world.run()
        # the plan has the table as it was
        write_deltalake(path, pa.table({"x": [1], "name": ["one"]}), mode="overwrite")
    arguments = ["recover", "availability", "--choose", "drop-plan", "--yes"]
    assert CliRunner().invoke(cli, arguments, env=world.environment).exit_code == 0
    world.run()
    assert out(world) == {"a": [{"name": "one"}]}


def test_windowed_lookup_finds_the_named_window(world: World, write: Write) -> None:
    hour = 3_600_000
    start = T - T % hour
    window = {"tumbling": "1h", "grace": "1h"}
    write({"reduce": {"n": "count(*)"}, "window": window, "emit": {"on": "update"}})
    world.send(*[event("a", start - T + at, x=1) for at in (0, 1, hour)])
    world.run()
    _write_reader(world)
    asked = world.app.pipeline("reader")
    world.send(*[event("a", 0, x=0, window_start=at) for at in (start, start + hour, start + 2 * hour)])
    run_batch(world.app, asked, Trigger("looking", NOW_MS), world.open_session)
    values = inspect.read_emissions(world.app, stream_of(asked))["value"].to_pylist()
    ends = [start + hour, start + 2 * hour, None]
    assert values[3:] == [{"n": n, "ends": end} for n, end in zip([2, 1, None], ends, strict=True)]


def _write_reader(world: World) -> None:
    """A pipeline that looks up the state of the other one, window by window."""
    table, on = "availability/stage0", ["key", "window_start"]
    world.write(
        {"columns": "x bigint, window_start bigint"},
        {"name": "out", "select": {"n": "n", "ends": "window_end"}, "emit": {"on": "update"}},
        pipeline="reader",
        lookup=[{"table": table, "on": on, "columns": ["n", "window_end"]}],
        sinks=[{"kind": "table"}],
    )


def test_metrics_report_buffers_and_lateness(world: World, write: Write) -> None:
    write({"emit": {"on": "time_limit", "after": "60s", "clock": "stream"}})
    world.send(event("a", 5000, x=1), event("a", 2000, x=2), event("b", 5000, x=3))
    world.run()
    metrics = {name: value for (stage, name), value in _metrics(world, 1) if stage == "stage0"}
    assert metrics["suppression-buffer-records"] == 2
    assert metrics["intermediate-result-suppression"] == 1
    assert metrics["record-lateness-max"] == 3000
    assert metrics["record-lateness-avg"] == 1000
    assert metrics["state-rows"] == 2
    assert metrics["state-bytes"] > 0
    world.send(event("c", 70_000, x=4))
    world.run()
    metrics = {name: value for (stage, name), value in _metrics(world, 2) if stage == "stage0"}
    assert metrics["suppression-buffer-records"] == 1
    assert metrics["suppression-buffer-records-max"] == 2
    assert metrics["emitted.time_limit"] == 2
    assert metrics["suppression-overtime-min"] == 5000


def _metrics(world: World, seq: int) -> Any:
    return world.app.ledger.metrics(world.stream, seq).items()


def test_where_names_key_columns_whoever_tests_it(world: World, write: Write) -> None:
    by_spark = {
        "select": {"x": "x"},
        "emit": {"on": "update"},
        "where": "shop in ('a', 'b') and exists(array(x), n -> n > 1)",
    }
    by_kernel = {
        "reduce": {"n": "count(*)"},
        "emit": {"on": "update"},
        "where": "shop = 'a' and id = 7 and n * 1000000000 < 3000000000",
    }
    write([by_spark, by_kernel], "shop string, id int, x int", key=["shop", "id"])
    world.send(
        *(
            event("k", at, shop=shop, id=7, x=x)
            for at, (shop, x) in enumerate([("a", 1), ("a", 2), ("b", 3), ("c", 4), ("a", 5)])
        )
    )
    world.run()
    assert out(world) == {'{"shop":"a","id":7}': [{"n": 1}, {"n": 2}]}
    assert world.counts(1)["filtered"] == 2, "by the first stage"


def test_bound_of_quarantine_counts_later_stages(world: World) -> None:
    stages = (
        {"name": "latest", "emit": {"on": "update"}},
        {"name": "shops", "key": ["shop"], "emit": {"on": "update"}},
    )
    sinks = [{"kind": "kafka", "topic": world.sink}]
    world.write(
        {"columns": "shop string, x bigint"},
        *stages,
        sinks=sinks,
        quarantine={"stop": {"count": 2}},
    )
    world.send(*(event(str(number), 0, shop=None, x=1) for number in range(3)), event("b", 1, shop="s", x=1))
    with pytest.raises(
        QuarantineExceeded, match="got 4 records and put 3 into quarantine: null_key_column 3, which"
    ):
        world.run()
    assert out(world) == {}
