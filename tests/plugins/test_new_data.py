"""Runs that start when records wait: when they are due, what they ask, and the DAG's asset."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.batch.committed import Committed
from tests.model.files import GOOD
from tests.waits import give_up_soon
from tidegate.ledger import Head, Ledger, Stream
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.airflow

AT = ("stock", 0)
STREAM = Stream("availability", 1)


def head(offset: int, seq: int) -> Head:
    return Head(STREAM, seq=seq, offsets={AT: offset})


def watching(records: int = 100, or_after_s: float = 60) -> Any:
    from tidegate_airflow.new_data import BacklogWatch

    watch = BacklogWatch(records, or_after_s)
    assert watch.due({AT: 10}, head(10, seq=1), now=0, is_busy=False) is None
    return watch


def test_records_before_the_watch_start_a_run() -> None:
    from tidegate_airflow.new_data import BacklogWatch

    watch = BacklogWatch(records=100, or_after_s=60)
    assert watch.may_be_due({AT: 1}, now=0)
    assert watch.due({AT: 1}, Head(STREAM), now=0, is_busy=False) == 1


def test_so_many_records_start_a_run() -> None:
    watch = watching(records=100)
    assert not watch.may_be_due({AT: 109}, now=1)
    assert watch.may_be_due({AT: 110}, now=2)
    assert watch.due({AT: 110}, head(10, seq=1), now=2, is_busy=False) == 100


def test_oldest_record_starts_a_run_in_time() -> None:
    watch = watching(or_after_s=60)
    assert not watch.may_be_due({AT: 10}, now=100)  # nothing waits
    assert not watch.may_be_due({AT: 11}, now=159)
    assert watch.may_be_due({AT: 12}, now=160)
    assert watch.due({AT: 12}, head(10, seq=1), now=160, is_busy=False) == 2


def test_busy_stream_starts_no_second_run() -> None:
    watch = watching()
    assert watch.due({AT: 500}, head(10, seq=1), now=1, is_busy=True) is None
    assert watch.due({AT: 500}, head(10, seq=1), now=2, is_busy=False) == 490


def test_backlog_after_a_batch_starts_the_next() -> None:
    watch = watching(records=100)
    assert watch.due({AT: 110}, head(10, seq=1), now=1, is_busy=False) == 100
    assert watch.due({AT: 400}, head(10, seq=1), now=2, is_busy=False) is None
    assert watch.due({AT: 400}, head(110, seq=2), now=3, is_busy=False) == 290


def test_rest_of_a_batch_waits_from_its_start() -> None:
    watch = watching(records=100, or_after_s=60)
    assert watch.due({AT: 110}, head(10, seq=1), now=5, is_busy=False) == 100
    assert watch.due({AT: 120}, head(110, seq=2), now=20, is_busy=False) is None
    assert not watch.may_be_due({AT: 120}, now=64)
    assert watch.may_be_due({AT: 120}, now=65)


def test_run_without_a_batch_is_started_more_seldom() -> None:
    watch = watching(records=1)
    started = [
        now for now in range(4000) if watch.due({AT: 11}, head(10, seq=1), now=now, is_busy=False) is not None
    ]
    assert started == [0, 60, 180, 420, 900, 1500, 2100, 2700, 3300, 3900]


def test_unpublished_batch_starts_runs_without_records() -> None:
    watch = watching(records=100)
    assert watch.due({AT: 110}, head(10, seq=1), now=1, is_busy=False) == 100

    def started(seconds: range, *, is_busy: bool = False, is_unfinished: bool = True) -> list[int]:
        state = {"is_busy": is_busy, "is_unfinished": is_unfinished}
        asked = [now for now in seconds if watch.may_be_due({AT: 110}, now)]
        return [now for now in asked if watch.due({AT: 110}, head(110, seq=2), now, **state) is not None]

    assert started(range(10, 100), is_busy=True) == []  # its own run publishes it
    assert started(range(100, 400)) == [100, 220]
    assert started(range(400, 500), is_unfinished=False) == []
    assert not watch.may_be_due({AT: 110}, now=500)
    assert watch.due({AT: 210}, head(110, seq=2), now=501, is_busy=False) == 100


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 30), st.integers(0, 20))
def test_no_record_waits_longer_than_the_bound(seed: int, records: int, or_after: int, takes: int) -> None:
    """A run reads what exists when it starts; runs follow each other without a queue."""
    from tidegate_airflow.new_data import BacklogWatch

    dice, watch = random.Random(seed), BacklogWatch(records, or_after)
    arrived: list[int] = []
    read, seq, busy_until = 0, 1, -1
    for now in range(300):
        arrived += [now] * (dice.random() < 0.3) * dice.randrange(10)
        if now < busy_until:
            continue
        seq += now == busy_until
        waiting = arrived[read:]
        ends, current = {AT: len(arrived)}, head(read, seq)
        starts = None
        if watch.may_be_due(ends, now):
            starts = watch.due(ends, current, now, is_busy=False)
        elif waiting:
            assert len(waiting) < records
        if starts is None:
            assert not waiting or now - waiting[0] < or_after + takes
        else:
            assert starts == len(waiting) > 0
            read, busy_until = len(arrived), now + takes + 1


def trigger(topics: list[str], patterns: list[str] | None = None, **options: Any) -> Any:
    from tidegate_airflow.new_data import RecordsTrigger

    arguments = {"connection": None, "records": 3, "or_after_ms": 3_600_000, **options}
    return RecordsTrigger("availability", 1, topics=topics, patterns=patterns or [], **arguments)


def test_trigger_is_stored_without_secrets_and_shared() -> None:
    first, second = trigger(["a"]), trigger(["b"], connection="eu")
    path, arguments = first.serialize()
    module, _, name = path.rpartition(".")
    again = getattr(import_module(module), name)(**arguments)
    assert again.serialize() == first.serialize()
    assert set(arguments) == {
        *("pipeline", "generation", "connection", "topics", "patterns", "records", "or_after_ms")
    }
    assert first.shared_stream_key() == trigger(["c"]).shared_stream_key() != second.shared_stream_key()


@pytest.fixture
def at_broker(broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaBroker:
    monkeypatch.setenv("TIDEGATE_KAFKA", broker.bootstrap_servers)
    monkeypatch.setenv("TIDEGATE_LEDGER", f"sqlite:///{tmp_path / 'ledger.db'}")
    monkeypatch.setattr("tidegate_airflow.new_data.LOOK_EVERY_S", 0.05)
    monkeypatch.setattr("tidegate_airflow.connections._connection", lambda _: None)
    return broker


def test_progress_shows_a_batch_that_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_airflow.new_data import _LedgerStream

    committed = Committed(tmp_path, "  - {kind: sql, table: seconds}", f"sqlite:///{tmp_path}/sink.db")
    for name, value in committed.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tidegate_airflow.connections._connection", lambda _: None)
    stream = _LedgerStream(committed.stream.pipeline, committed.stream.generation)
    committed.commit(1, {"first": [("1", 10)], "second": [("1", 11)]})
    committed.lease.release()
    progress = stream.progress()
    assert progress is not None
    assert (progress.head.seq, progress.is_busy, progress.is_unfinished) == (1, False, True)
    committed.publish(1)
    progress = stream.progress()
    assert progress is not None
    assert not progress.is_unfinished


async def first_payload(*triggers: Any, after: Any = None) -> list[dict[str, int]]:
    """Return the payload of the first event of each trigger, as they run in one process."""

    async def fired(trigger: Any) -> dict[str, int]:
        async with aclosing(trigger.run()) as events:
            async for event in events:
                return dict(event.payload)
        raise AssertionError("the stream of events ended")

    running = [asyncio.create_task(fired(trigger)) for trigger in triggers]
    if after is not None:
        await asyncio.sleep(0.5)
        assert not any(task.done() for task in running)
        await asyncio.to_thread(after)
    return list(await asyncio.wait_for(asyncio.gather(*running), 30))


@pytest.mark.broker
def test_trigger_fires_for_records_of_its_topics(at_broker: KafkaBroker, tmp_path: Path) -> None:
    from tests.world import World

    world = World(at_broker.bootstrap_servers, tmp_path, lambda _: None)  # type: ignore[arg-type, return-value]
    prefix = world.stream.pipeline
    for name in ("one", "two", "three"):
        world.create(f"{prefix}-{name}", partitions=1)
    Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    by_name = trigger([f"{prefix}-one", f"{prefix}-missing"], records=1)
    by_pattern = trigger([], [f"{prefix}-t.*"], records=5)

    def send() -> None:
        for name, number in (("one", 1), ("two", 2), ("three", 3)):
            world.send(*({"topic": f"{prefix}-{name}", "value": b"x"} for _ in range(number)))

    assert asyncio.run(first_payload(by_name, by_pattern, after=send)) == [{"waiting": 1}, {"waiting": 5}]


@pytest.mark.broker
def test_silent_broker_and_ledger_are_asked_again(
    at_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.world import World

    world = World(at_broker.bootstrap_servers, tmp_path, lambda _: None)  # type: ignore[arg-type, return-value]
    topic = f"{world.stream.pipeline}-late"
    world.create(topic, partitions=1)
    world.send({"topic": topic, "value": b"x"})
    give_up_soon(monkeypatch, 2)
    monkeypatch.setenv("TIDEGATE_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("TIDEGATE_LEDGER", "sqlite:////no/such/folder/ledger.db")

    def come_back() -> None:
        monkeypatch.setenv("TIDEGATE_KAFKA", at_broker.bootstrap_servers)
        monkeypatch.setenv("TIDEGATE_LEDGER", f"sqlite:///{tmp_path / 'ledger.db'}")

    assert asyncio.run(first_payload(trigger([topic]), after=come_back)) == [{"waiting": 1}]
    assert "Cannot look which records wait" in caplog.text


def with_schedule(folder: Path, *schedules: str) -> dict[str, Any]:
    from airflow.serialization.serialized_objects import DagSerialization

    from tidegate_airflow.factory import pipeline_dags

    for number, schedule in enumerate(schedules):
        text = GOOD.replace('"*/5 * * * *"', schedule, 1).replace("levels", f"levels_{number}", 1)
        (folder / f"levels_{number}.yaml").write_text(text)
    dags = pipeline_dags(folder)
    for dag in dags.values():
        DagSerialization.to_dict(dag)  # as Airflow stores it, with its triggers
    return dags


def test_dag_is_scheduled_by_a_watched_asset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import AssetAll, AssetOrTimeSchedule

    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    on_data = "on_data: {records: 10_000, or_after: 1m}"
    dags = with_schedule(tmp_path, f"{{{on_data}}}", f'{{{on_data}, cron: "@hourly"}}')
    plain, timed = (dags[f"levels_{number}"].timetable for number in (0, 1))
    assert isinstance(timed, AssetOrTimeSchedule)
    condition = plain.asset_condition
    assert isinstance(condition, AssetAll)
    (asset,) = condition.objects
    assert asset.uri == "tidegate-records://levels_0/"
    (watcher,) = asset.watchers
    assert (watcher.trigger.records, watcher.trigger.or_after_ms) == (10_000, 60_000)
    assert watcher.trigger.topics == ["stock"]


def test_file_with_mistakes_is_started_by_hand_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    (dag,) = with_schedule(tmp_path, "{on_data: {records: 9, or_after: 1m}}\nreduce: lastest").values()
    assert "invalid pipeline file" in dag.tags
    assert dag.timetable.can_be_scheduled is False


def test_log_that_ends_before_head_starts_run() -> None:
    watch = watching()
    assert watch.may_be_due({AT: 3}, now=100)
    assert watch.due({AT: 3}, head(10, seq=1), now=100, is_busy=False) == 0
    assert watch.due({AT: 4}, head(10, seq=1), now=101, is_busy=False) is None
