"""Asset events: one for each batch that is published, whoever has published it; and what they say."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.batch.committed import Committed
from tests.generations.two_generations import Beside
from tests.plugins.runs import CREATED, SUFFIX

pytestmark = pytest.mark.airflow

URI = "tidegate://visitors"


@dataclass
class Airflow:
    """The asset events that Airflow has: it gets those of a task with its success, and answers about them."""

    events: list[dict[str, Any]] = field(default_factory=list)

    def send(self, question: Any) -> Any:
        from airflow.sdk.api.datamodels._generated import AssetEventResponse, AssetResponse
        from airflow.sdk.execution_time.comms import AssetEventsResult

        assert (type(question).__name__, question.ascending) == ("GetAssetEventByAssetAlias", False)
        asset = AssetResponse(name=URI, uri=f"{URI}/", group="asset")
        events = [
            AssetEventResponse(
                id=number,
                timestamp=datetime.now(timezone.utc),
                extra=event["extra"],
                asset=asset,
                created_dagruns=[],
            )
            for number, event in enumerate(self.events)
            if event["source_alias_name"] == question.alias_name
        ]
        return AssetEventsResult(asset_events=events[::-1][: question.limit])

    def succeed(self, context: dict[str, Any]) -> list[int]:
        """A task has succeeded; the batches that its events are of."""
        from airflow.sdk.execution_time.task_runner import _serialize_outlet_events

        events = list(_serialize_outlet_events(context["outlet_events"]))
        json.dumps(events)
        self.events += events
        assert len(events) <= 1
        return [batch["seq"] for event in events for batch in event["extra"]["batches"]]


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    from airflow.sdk.execution_time import task_runner

    airflow = Airflow()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", airflow, raising=False)
    return airflow


def use(committed: Committed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in committed.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Committed:
    committed = Committed(tmp_path, "  - {kind: sql, table: seconds}", f"sqlite:///{tmp_path}/sink.db")
    committed.run_suffix = SUFFIX
    use(committed, monkeypatch)
    return committed


def context(run_id: str, **params: Any) -> dict[str, Any]:
    from airflow.sdk.execution_time.context import OutletEventAccessors

    return {
        "dag_run": SimpleNamespace(run_id=run_id, run_after=CREATED),
        "params": params,
        "outlet_events": OutletEventAccessors(),
    }


def publish(seq: int, generation: int = 1) -> dict[str, Any]:
    """The publish task of a run, up to its success."""
    from tidegate_airflow import factory

    task = context(f"run-{seq}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate_airflow.tasks.has_more_batches", lambda *_: False)
        factory._publish("visitors", generation, f"run-{seq}{SUFFIX}", {}, **task)
    return task


def commit(committed: Committed, seq: int, *rows: tuple[str, int]) -> None:
    """A batch by its own run, which is not published yet."""
    committed.commit(seq, {"first": [], "second": list(rows)}, used=3)
    committed.lease.release()


def test_publication_event_names_batch_stream_and_offsets(
    committed: Committed, airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate.ledger import OffsetRange

    ranges = (OffsetRange("events", 0, 5, 12), OffsetRange("events", 1, 3, 3), OffsetRange("old", 0, 0, 1))
    planned = committed.planned
    monkeypatch.setattr(committed, "planned", lambda seq: replace(planned(seq), ranges=ranges))
    commit(committed, 1, ("1", 11), ("2", 12))
    assert airflow.succeed(publish(1)) == [1]
    (event,) = airflow.events
    assert event["dest_asset_key"] == {"name": URI, "uri": f"{URI}/"}
    assert event["source_alias_name"] == f"{URI}/1"
    assert event["extra"] == {
        "pipeline": "visitors",
        "generation": 1,
        "seq": 1,
        "offsets": {"events": {"0": [5, 12]}, "old": {"0": [0, 1]}},
        "published": {"sql:seconds": 2},
        "batches": [
            {
                "seq": 1,
                "run_id": f"run-1{SUFFIX}",
                "clock": "1970-01-01T00:00:01+00:00",
                "offsets": {"events": {"0": [5, 12]}, "old": {"0": [0, 1]}},
                "counts": {"emitted": 2, "read": 1, "used": 3},
                "published": {"sql:seconds": 2},
            }
        ],
    }


def test_killed_try_leaves_its_event_to_the_retry(committed: Committed, airflow: Airflow) -> None:
    commit(committed, 1, ("1", 11))
    publish(1)  # its emissions left with it
    assert airflow.succeed(publish(1)) == [1]


def test_a_cleared_publication_has_no_second_event(committed: Committed, airflow: Airflow) -> None:
    for seq in (1, 2):
        commit(committed, seq, ("1", seq))
        airflow.succeed(publish(seq))
    assert [airflow.succeed(publish(seq)) for seq in (1, 2)] == [[], []]


def test_batch_without_published_records_has_no_event(committed: Committed, airflow: Airflow) -> None:
    commit(committed, 1)
    assert airflow.succeed(publish(1)) == []


def test_one_event_covers_all_batches_of_a_task() -> None:
    from tidegate.ledger import OffsetRange, Stream
    from tidegate_airflow.assets import event_extra

    def report(seq: int, *ranges: OffsetRange) -> Any:
        plan = SimpleNamespace(seq=seq, run_id="r", clock_ms=0, ranges=ranges)
        return SimpleNamespace(plan=plan, counts={}, published={"kafka:out": seq, "table": 1})

    first = report(7, OffsetRange("in", 0, 5, 9), OffsetRange("in", 1, 2, 2))
    second = report(8, OffsetRange("in", 0, 9, 12), OffsetRange("in", 1, 2, 3))
    extra = event_extra(Stream("visitors", 1), [first, second])
    assert (extra["seq"], [batch["seq"] for batch in extra["batches"]]) == (8, [7, 8])
    assert extra["offsets"] == {"in": {"0": [5, 12], "1": [2, 3]}}
    assert extra["published"] == {"kafka:out": 15, "table": 2}


def test_publication_outside_airflow_gets_an_event_later(committed: Committed, airflow: Airflow) -> None:
    from tidegate_airflow.assets import event_emitted

    commit(committed, 1, ("1", 1))
    airflow.succeed(publish(1))
    for seq in (2, 3):
        commit(committed, seq, ("1", seq))
        committed.publish(seq)
    dry = context("run-4", dry_run=True)
    with event_emitted(dry, "visitors", 1):
        pass
    assert airflow.succeed(dry) == []
    task = context("run-4")
    with event_emitted(task, "visitors", 1):
        pass
    assert airflow.succeed(task) == [2, 3]


@pytest.mark.parametrize("params", [{"dry_run": True, "drain": True}, {"dryrun": True}])
@pytest.mark.parametrize("has_one_task", [False, True])
def test_dry_run_creates_no_ledger(
    committed: Committed,
    airflow: Airflow,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    params: dict[str, bool],
    has_one_task: bool,
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from tidegate_airflow import factory, tasks
    from tidegate_airflow.assets import event_emitted

    ledger = tmp_path / "absent.db"
    monkeypatch.setenv("TIDEGATE_LEDGER", f"sqlite:///{ledger}")
    task = context("run-1", **params)
    times = dict.fromkeys(("logical_date", "data_interval_start", "data_interval_end"))
    task["dag_run"] = SimpleNamespace(run_id="run-1", run_after=CREATED, run_type="manual", **times)
    task["dag"] = SimpleNamespace(timetable=None)
    with pytest.raises(AirflowFailException, match="dryrun") if "dryrun" in params else nullcontext():
        if has_one_task:
            with event_emitted(task, "visitors", 1):
                assert list(tasks.planned_batches("visitors", "visitors", 1, task)) == []
        else:
            assert not factory._plan("visitors", "visitors", 1, **task)
    assert not ledger.exists()


def test_events_that_airflow_forgot_are_not_repeated(committed: Committed, airflow: Airflow) -> None:
    for seq in (1, 2):
        commit(committed, seq, ("1", seq))
        airflow.succeed(publish(seq))
    airflow.events.clear()
    commit(committed, 3, ("1", 3))
    assert airflow.succeed(publish(3)) == [3]


def test_withheld_generation_has_events_after_its_promotion(
    tmp_path: Path, airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Committed, "run_suffix", SUFFIX)
    beside = Beside(tmp_path)
    use(beside.old, monkeypatch)
    beside.fill()
    assert airflow.succeed(publish(2, generation=2)) == []
    beside.promote(beside.new)
    commit(beside.new, 3, ("d", 30))
    assert airflow.succeed(publish(3, generation=2)) == [3]
    (event,) = airflow.events
    assert (event["dest_asset_key"]["name"], event["extra"]["generation"]) == (URI, 2)


@pytest.mark.parametrize("tasks", ["five", "one"])
def test_publishing_task_has_the_alias_as_outlet(tasks: str, committed: Committed) -> None:
    from airflow.sdk import AssetAlias

    from tidegate_airflow.factory import pipeline_dags

    text = committed.file.read_text()
    committed.file.write_text(f"tasks: {tasks}\ngeneration: 3\n{text}")
    dag = pipeline_dags()["visitors"]
    publishing = {task.task_id: task.outlets for task in dag.tasks if task.outlets}
    expected = ["batch"] if tasks == "one" else ["cover", "plan", "publish"]
    assert publishing == {task_id: [AssetAlias(f"{URI}/3")] for task_id in expected}


@pytest.mark.parametrize(
    ("schedule", "timetable", "condition"),
    [
        ('{assets: ["tidegate://stock"]}', "AssetTriggeredTimetable", "tidegate://stock"),
        ("{assets: [a, b]}", "AssetTriggeredTimetable", "a & b"),
        ('{assets: [a, "s3://Shop/prices/"], when: any}', "AssetTriggeredTimetable", "a | s3://Shop/prices"),
        ('{assets: [a], cron: "@hourly"}', "AssetOrTimeSchedule", "a"),
    ],
)
def test_pipeline_is_scheduled_on_assets_by_name(
    schedule: str, timetable: str, condition: str, committed: Committed
) -> None:
    from airflow.sdk import Asset, AssetAny
    from airflow.serialization.serialized_objects import DagSerialization

    from tidegate_airflow.factory import pipeline_dags

    def written(asset: Any) -> str:
        if hasattr(asset, "objects"):
            between = " | " if isinstance(asset, AssetAny) else " & "
            return between.join(map(written, asset.objects))
        is_own = isinstance(asset, Asset)
        assert is_own == asset_name(asset).startswith("tidegate://")
        return asset_name(asset)

    text = committed.file.read_text()
    committed.file.write_text(f"schedule: {schedule}\n{text}")
    dag = pipeline_dags()["visitors"]
    assert type(dag.timetable).__name__ == timetable
    assert written(dag.timetable.asset_condition) == condition
    DagSerialization.to_dict(dag)


def test_a_uri_that_airflow_refuses_stops_no_dag(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.definitions import asset

    from tidegate_airflow.assets import asset_reference

    def refuse(_: Any) -> Any:
        raise ValueError("URI format postgres:// must contain database, schema, and table names")

    monkeypatch.setattr(asset, "_get_uri_normalizer", lambda _: refuse)
    assert asset_reference("postgres://nothing").uri == "postgres://nothing"


def asset_name(asset: Any) -> str:
    return str(getattr(asset, "name", None) or asset.uri)


def test_asset_run_reads_all_present_records(
    committed: Committed,
) -> None:
    from tidegate_airflow.factory import pipeline_dags
    from tidegate_airflow.triggers import trigger_of

    text = committed.file.read_text()
    committed.file.write_text(f'schedule: {{assets: [a], cron: "0 * * * *"}}\n{text}')
    dag = pipeline_dags()["visitors"]
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    now, none = noon + timedelta(minutes=7), {"data_interval_start": None, "data_interval_end": None}
    hour = {"data_interval_start": noon - timedelta(hours=1), "data_interval_end": noon}

    def clock_and_end(run_type: str, logical_date: datetime | None, interval: Any) -> tuple[Any, Any]:
        run = SimpleNamespace(
            run_id="r", run_type=run_type, run_after=now, logical_date=logical_date, **interval
        )
        trigger = trigger_of({"dag_run": run, "dag": dag, "params": {}})
        return trigger.clock_ms, trigger.interval_end_ms

    now_ms, noon_ms = round(now.timestamp() * 1000), round(noon.timestamp() * 1000)
    assert clock_and_end("asset_triggered", None, none) == (now_ms, None)
    assert clock_and_end("scheduled", noon, hour) == (noon_ms, noon_ms)
    assert clock_and_end("manual", now, hour) == (now_ms, None)  # Airflow has made the interval up


def test_run_with_only_events_is_not_skipped(
    committed: Committed, airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_airflow import tasks
    from tidegate_airflow.operators import BatchOperator

    commit(committed, 1, ("1", 1))
    airflow.succeed(publish(1))
    commit(committed, 2, ("1", 2))
    committed.publish(2)
    monkeypatch.setattr(tasks, "planned_batches", lambda *_: iter(()))
    task = context("run-3")
    arguments = ["visitors", "1", "run-3"]
    operator = BatchOperator(
        task_id="batch", pipeline_file="visitors", application="x.py", application_args=arguments
    )
    assert operator.execute(task) is None
    assert airflow.succeed(task) == [2]
