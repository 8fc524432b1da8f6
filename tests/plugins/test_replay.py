"""A replay of quarantine by the form of a trigger: one batch for its run, however often it is tried."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.quarantines import Quarantined, quarantined
from tidegate.ledger import Attempt, Plan
from tidegate.storage.quarantine_files import QUARANTINE, RowBounds, row_groups

pytestmark = pytest.mark.airflow

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
FIXABLE = b'{"customerId": "7", "n": 1}'

CORRECTION = "json_merge_patch(value, {'customerId': CAST(value->>'customerId' AS BIGINT)})"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Quarantined:
    """Two batches with records in quarantine, those of malformed JSON in the first; nobody is at work."""
    from tidegate_airflow import tasks

    made = Quarantined(tmp_path)
    made.batch(1, [quarantined(1, 4, value=FIXABLE), quarantined(1, 2, reason="null_key", value=FIXABLE)])
    made.batch(2, [quarantined(2, 7, value=FIXABLE), quarantined(2, 9, reason="null_key")])
    made.lease.release()
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tasks, "run_ahead", lambda _: None)
    return made


def context(run_id: str = "manual__1", **params: Any) -> dict[str, Any]:
    from airflow.sdk import DAG

    from tidegate_airflow.triggers import run_params

    run = SimpleNamespace(
        run_id=run_id,
        run_type="manual",
        clear_number=0,
        run_after=NOW,
        logical_date=None,
        data_interval_start=None,
        data_interval_end=None,
        triggering_user_name="ada",
    )
    values = {name: param.resolve() for name, param in run_params().items()} | params
    return {"dag_run": run, "dag": DAG("visitors", schedule=None), "params": values}


def in_ledger(run_id: str) -> str:
    return f"{run_id}@{NOW.isoformat()}"


def plans(context: dict[str, Any]) -> bool:
    from tidegate_airflow import tasks

    return tasks.plan("visitors", context)


def open_plan(world: Quarantined) -> Plan:
    plan = world.app.ledger.open_plan(world.stream)
    assert plan is not None
    return plan


def records(world: Quarantined) -> list[dict[str, Any]]:
    """The input of the planned batch, by position."""
    replay = open_plan(world).replay
    assert replay is not None
    store = world.app.lake(world.stream).store
    (file,) = world.app.manifest(world.stream, replay).files_of("quarantine")
    groups = row_groups(store, file, RowBounds())
    return [row for group in groups for row in group.read(QUARANTINE.names).to_pylist()]


def offsets_of(world: Quarantined) -> list[int]:
    return [row["offset"] for row in records(world)]


def died(world: Quarantined, run_id: str) -> None:
    """Long ago: the run's lease has ended."""
    world.app.ledger.acquire(world.stream, run_id).release()


def finish(world: Quarantined, plan: Plan, run_id: str) -> None:
    """Bring the planned batch through all steps."""
    lease = world.app.ledger.acquire(world.stream, run_id)
    written = world.written(plan.seq, world.attempt_name(plan.seq), {"second": [("a", plan.seq)]})
    manifest = world.app.write_manifest(world.stream, written)
    lease.add_attempt(Attempt(world.stream, plan.seq, manifest, {"": {"read": 2}, "second": {"emitted": 1}}))
    attempt = lease.attempt(world.stream, plan.seq)
    assert attempt is not None
    lease.commit(plan, replace(attempt, validated=True))
    lease.release()
    world.publish(plan.seq)


def test_retried_replay_finds_its_batch(world: Quarantined) -> None:
    asked = context(replay=True, replay_because="release 4.2")
    assert plans(asked)
    plan = open_plan(world)
    assert (plan.run_id, plan.span, plan.most_records) == (in_ledger("manual__1"), 0, 4)
    assert plans(asked)
    assert open_plan(world) == plan
    (resolution,) = world.app.ledger.resolutions(world.stream)
    assert (resolution.decided_by, resolution.reason, resolution.seq) == ("ada", "release 4.2", plan.seq)
    died(world, in_ledger("manual__1"))
    assert plans(context("manual__2", replay=True)), "what is planned goes first, whoever comes"
    assert open_plan(world) == plan
    assert len(world.app.ledger.resolutions(world.stream)) == 1


@pytest.mark.parametrize(
    ("params", "offsets"),
    [
        ({"replay_reasons": ["null_key"]}, [2, 9]),
        ({"replay_last_batch": 1}, [2, 4]),
        ({"replay_first_batch": 2, "replay_reasons": ["malformed"]}, [7]),
        ({"replay_since": "1970-01-01T00:00:04Z", "replay_until": "1970-01-01T00:00:09Z"}, [4, 7]),
        ({"replay_reasons": ["malformed"], "replay_set": CORRECTION}, [4, 7]),
    ],
)
def test_the_form_chooses_which_records_come_in_again(
    world: Quarantined, params: dict[str, Any], offsets: list[int]
) -> None:
    assert plans(context(replay=True, **params))
    assert offsets_of(world) == offsets


def test_an_edit_is_made_of_what_comes_in(world: Quarantined) -> None:
    assert plans(
        context(replay=True, replay_reasons=["malformed"], replay_set="json_merge_patch(value, {'n': 5})")
    )
    assert {row["value"] for row in records(world)} == {b'{"customerId":"7","n":5}'}


def test_replay_without_open_records_has_no_work(world: Quarantined) -> None:
    assert not plans(context(replay=True, replay_reasons=["key_not_text"]))
    assert world.app.ledger.open_plan(world.stream) is None
    assert not plans(context(replay=True)), "the run had its turn: what it asks for is what it asked for"


def test_dry_replay_counts_and_decides_nothing(world: Quarantined, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert not plans(context(replay=True, dry_run=True, replay_reasons=["malformed"]))
    assert "replays 2 open records of quarantine" in caplog.text
    assert world.app.ledger.resolutions(world.stream) == []
    assert world.app.ledger.run(world.stream, in_ledger("manual__1")) is None


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"replay_reasons": ["malformed"]}, "with replay_reasons, and without `replay`"),
        ({"replay": True, "drain": True}, "with `replay`, which reads nothing, and with drain"),
        ({"replay": True, "max_records": 5}, "with `replay`, which reads nothing, and with max_records"),
        ({"replay": True, "replay_since": "yesterday"}, "`replay_since` is 'yesterday', which is no instant"),
        ({"replay": True, "replay_set": "n = 5"}, "DuckDB cannot evaluate `n = 5`"),
        ({"replay": True, "replay_reasons": ["tired"]}, "has no reason tired"),
        ({"replay": True, "replay_set": "value->'none'"}, "The edit does not fit events/0/"),
    ],
)
def test_invalid_replay_fails_before_planning(
    world: Quarantined, params: dict[str, Any], message: str
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=message):
        plans(context(**params))
    assert world.app.ledger.open_plan(world.stream) is None
    assert world.app.ledger.resolutions(world.stream) == []


def test_a_backfill_replays_nothing(world: Quarantined) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    asked = context(replay=True)
    asked["dag_run"].run_type = "backfill"
    with pytest.raises(AirflowFailException, match="A backfill reads intervals"):
        plans(asked)


def test_replay_follows_an_earlier_open_batch(world: Quarantined) -> None:
    from tidegate_airflow import tasks

    assert plans(context("manual__0", replay=True, replay_reasons=["null_key"]))
    died(world, in_ledger("manual__0"))
    asked = context(replay=True)
    assert plans(asked)
    first = open_plan(world)
    assert first.run_id == in_ledger("manual__0")
    finish(world, first, in_ledger("manual__1"))
    assert tasks.has_more_batches("visitors", 1, asked)
    batches = tasks.planned_batches("visitors", "visitors", 1, asked, first=2)
    assert next(batches) == in_ledger("manual__1") + "#2"
    assert (open_plan(world).run_id, offsets_of(world)) == (in_ledger("manual__1") + "#2", [4, 7])

    finish(world, open_plan(world), in_ledger("manual__1") + "#2")
    assert list(batches) == []
    assert tasks.has_more_batches("visitors", 1, asked), "what `cover` has made is found again, and done"
    again = list(tasks.planned_batches("visitors", "visitors", 1, asked, first=2))
    assert again == [in_ledger("manual__1") + "#2"]
    assert len(world.app.ledger.resolutions(world.stream)) == 2
