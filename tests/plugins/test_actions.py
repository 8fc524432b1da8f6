"""Actions in place of a batch: runs of a pipeline's DAG that a form requests."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.generations.two_generations import NEW, OLD, Beside
from tests.plugins.runs import CREATED
from tests.quarantines import Quarantined, quarantined
from tidegate.ledger import Stream

pytestmark = pytest.mark.airflow

SQL_ONLY = "  - {kind: sql, table: seconds}"


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beside:
    """A generation beside the one in charge, which has read the same."""
    made = Beside(tmp_path, SQL_ONLY)
    made.fill()
    for name, value in made.old.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Quarantined:
    made = Quarantined(tmp_path)
    made.batch(1, [quarantined(1, 4), quarantined(1, 2, reason="null_key")])
    made.lease.release()
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def run(run_id: str = "manual__1", run_type: str = "manual", clear_number: int = 0, **params: Any) -> bool:
    """Run the first task of a DAG with parameters. Returns whether a batch was planned."""
    from airflow.sdk import DAG

    from tidegate_airflow import tasks
    from tidegate_airflow.triggers import run_params

    dag_run = SimpleNamespace(
        run_id=run_id,
        run_type=run_type,
        clear_number=clear_number,
        run_after=CREATED,
        logical_date=None,
        data_interval_start=None,
        data_interval_end=None,
        triggering_user_name="ada",
    )
    values = {name: param.resolve() for name, param in run_params().items()} | params
    return tasks.plan(
        "visitors", {"dag_run": dag_run, "dag": DAG("visitors", schedule=None), "params": values}
    )


def refused(**params: Any) -> str:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException) as raised:
        run(**params)
    return str(raised.value)


def test_promotion_is_decided_once_per_run(beside: Beside) -> None:
    params = {"action": "promote", "action_generation": 2}
    assert not run(**params)
    assert beside.sent() == OLD + NEW
    run(**params)
    assert beside.sent() == OLD + NEW
    assert len(beside.old.app.ledger.charge("visitors").promotions) == 2


def test_rollback_puts_generation_before_in_charge(beside: Beside) -> None:
    run("manual__1", action="promote", action_generation=2)
    run("manual__2", action="rollback")
    assert beside.in_charge == 1


def test_promotion_that_needs_approval_is_refused(beside: Beside) -> None:
    beside.old.file.write_text(beside.old.file.read_text() + "airflow: {approve_promotion: true}\n")
    assert "Trigger the DAG" in refused(action="promote", action_generation=2)
    assert beside.in_charge == 1


def test_difference_is_logged_and_changes_nothing(beside: Beside, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert not run(action="diff", action_generation=2)
    assert "sql:seconds: 0 same, 2 changed, 1 added, 0 removed" in caplog.text
    assert beside.in_charge == 1


def test_discard_resolves_only_the_chosen_record(world: Quarantined) -> None:
    topic = quarantined(1, 4)["topic"]
    assert not run(action="discard", replay_record=f"{topic}/0/4", replay_because="a test")
    (resolution,) = world.app.ledger.resolutions(world.stream)
    assert (resolution.seq, resolution.manifest.file_rows) == (None, 1)
    assert (resolution.decided_by, resolution.reason) == ("ada", "a test")
    assert world.app.ledger.open_plan(world.stream) is None


def test_cleared_run_decides_nothing_again(world: Quarantined) -> None:
    topic = quarantined(1, 4)["topic"]
    message = refused(clear_number=1, action="discard", replay_record=f"{topic}/0/4", replay_because="a test")
    assert "`discard` would decide about what there is now" in message
    assert world.app.ledger.resolutions(world.stream) == []


def test_compaction_is_done_though_not_due(world: Quarantined, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert not run(action="compact")
    assert f"compact: {world.stream} batch 1: " in caplog.text


def test_check_of_broken_file_names_its_mistakes(
    world: Quarantined, caplog: pytest.LogCaptureFixture
) -> None:
    file = world.app.settings.pipelines / "visitors.yaml"
    file.write_text(file.read_text().replace("emit:", "emmit:"))
    with caplog.at_level(logging.INFO):
        assert not run(action="check")
    assert "WRONG: visitors.yaml: " in caplog.text


def test_recovery_is_only_shown_without_confirmation(
    world: Quarantined, caplog: pytest.LogCaptureFixture
) -> None:
    lease = world.app.ledger.acquire(world.stream, "died")
    lease.add_plan(world.planned(2))
    lease.release()
    with caplog.at_level(logging.INFO):
        run(action="recover", action_remedy="drop-plan")
    assert "recover: drop-plan: " in caplog.text
    assert world.app.ledger.open_plan(world.stream) is not None
    run(action="recover", action_remedy="drop-plan", action_confirm=True)
    assert world.app.ledger.open_plan(world.stream) is None
    (recovery,) = world.app.ledger.recoveries(Stream("visitors", 1))
    assert (recovery.remedy, recovery.decided_by) == ("drop-plan", "ada")


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"action": "erase"}, "no action 'erase'"),
        ({"action": "promote"}, "needs `action_generation`"),
        ({"action_net": True}, "no `action`"),
        ({"action": "check", "action_remedy": "drop-plan"}, "does not take that"),
        ({"action": "recover", "action_confirm": True}, "goes with `action_remedy`"),
        ({"action": "check", "max_records": 5}, "Leave out either"),
        ({"action": "check", "drain": True}, "Leave out either"),
        ({"action": "compact", "replay_record": "a/0/1"}, "without `replay`"),
        ({"action": "discard", "replay_record": "a-0-1"}, "no position"),
        ({"action": "check", "run_type": "backfill"}, "A backfill reads intervals"),
    ],
)
def test_contradicting_parameters_do_nothing(params: dict[str, Any], reason: str) -> None:
    assert reason in refused(**params)


def test_form_offers_every_action_and_remedy() -> None:
    from tidegate.recovery import REMEDIES
    from tidegate_airflow import actions, triggers

    assert set(actions._ACTIONS) == set(triggers.ACTIONS)
    assert {remedy.name for remedy in REMEDIES} - set(triggers.REMEDIES) == {"move"}
