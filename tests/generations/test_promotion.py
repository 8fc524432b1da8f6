"""One generation is in charge: what another decides is withheld until it is promoted, and goes out once."""

from __future__ import annotations

import itertools
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.batch.committed import Committed
from tests.examples import share_of
from tests.generations.two_generations import NEW, OLD, SINKS, Beside
from tidegate import failpoints, inspect
from tidegate.app import leased
from tidegate.batch import publish
from tidegate.batch.lookups import _readable
from tidegate.errors import Fenced, Halted, LakeDamaged, LeaseHeld, SettingsInvalid, TidegateError
from tidegate.generations import (
    Approval,
    drop_generation,
    open_generation,
    origin_of,
    promote,
    replaced_stream,
    rollback,
)
from tidegate.inspect import stream_condition
from tidegate.ledger import Snapshot, Stream
from tidegate.ledger.stream_condition import ConditionKind
from tidegate.maintenance.cleaning import remove_history
from tidegate.storage.manifest import manifest_of


@pytest.fixture
def beside(two_generations: Beside, tmp_path: Path) -> Beside:
    return two_generations.copied(tmp_path / "home")


def test_generation_not_in_charge_publishes_nothing(beside: Beside) -> None:
    beside.fill()
    assert beside.sent() == OLD
    ledger = beside.old.app.ledger
    assert ledger.publications(beside.new.stream, 2) == {}
    condition = inspect.stream_condition(beside.old.app, beside.new.stream)
    assert (condition.condition, condition.causes) == (ConditionKind.WITHHELD, ())
    beside.decide(beside.old, 3, [("a", 3)])
    assert beside.sent()[len(OLD) :] == [("visitors/1", 3, "a", 3)]


def test_promotion_publishes_new_and_withholds_old_stream(beside: Beside) -> None:
    beside.fill()
    assert beside.promote(beside.new).is_new
    assert beside.sent() == OLD + NEW
    beside.decide(beside.old, 3, [("a", 3)])
    beside.decide(beside.new, 3, [("a", 30)])
    assert beside.sent() == [*OLD, *NEW, ("visitors/2", 3, "a", 30)]
    table = DeltaTable(f"{beside.old.folder}/lake/firsts").to_pyarrow_table()
    assert sorted(table["n"].to_pylist()) == [1, 1, 2, 10, 10, 20, 20, 30]


def test_rollback_continues_where_the_old_stream_stopped(
    beside: Beside,
) -> None:
    beside.fill()
    beside.promote(beside.new)
    beside.decide(beside.old, 3, [("a", 3)])
    beside.rollback()
    assert beside.sent() == [*OLD, *NEW, ("visitors/1", 3, "a", 3)]
    beside.decide(beside.new, 3, [("a", 30)])
    beside.decide(beside.old, 4, [("a", 4)])
    beside.decide(beside.new, 4, [("a", 40)])
    beside.promote(beside.new)
    later = [("visitors/1", 4, "a", 4), ("visitors/2", 3, "a", 30), ("visitors/2", 4, "a", 40)]
    assert beside.sent() == [*OLD, *NEW, ("visitors/1", 3, "a", 3), *later]


def test_rollback_can_return_to_an_idle_generation(beside: Beside) -> None:
    beside.fill([("a", 30)])
    beside.promote(beside.new)
    with pytest.raises(Halted, match=r"has not read yet what visitors/2 has: 1 offsets"):
        beside.promote(beside.old)
    beside.rollback()
    assert beside.in_charge == 1


def test_generation_that_is_behind_is_not_promoted(beside: Beside) -> None:
    with pytest.raises(Halted, match="has no batch yet"):
        beside.promote(beside.new)
    beside.decide(beside.new, 1, [("a", 10)])
    with pytest.raises(Halted, match=r"1 of them in events\[0\]"):
        beside.promote(beside.new)
    assert (beside.in_charge, beside.sent()) == (1, OLD)
    assert beside.old.app.ledger.lease_holder(beside.old.stream) is None
    assert beside.old.app.ledger.lease_holder(beside.new.stream) is None


def test_a_second_promotion_of_the_same_changes_nothing(beside: Beside) -> None:
    beside.fill()
    first, second = beside.promote(beside.new), beside.promote(beside.new)
    assert (first.is_new, second.is_new) == (True, False)
    assert first.promotion == second.promotion
    assert beside.sent() == OLD + NEW


def test_old_decided_batches_go_out_before_the_switch(beside: Beside) -> None:
    beside.fill([("a", 30)])
    beside.old.commit(3, {"second": [("a", 3)]})
    beside.old.lease.release()
    beside.promote(beside.new)
    assert beside.sent() == [*OLD, ("visitors/1", 3, "a", 3), *NEW, ("visitors/2", 3, "a", 30)]


@pytest.mark.parametrize("holder", ["old", "new"])
def test_promotion_waits_for_a_running_batch(beside: Beside, holder: str) -> None:
    beside.fill()
    at_work = getattr(beside, holder)
    at_work.compute(3, {})
    with pytest.raises(LeaseHeld):
        beside.promote(beside.new)
    assert beside.in_charge == 1


def test_running_old_batch_cannot_commit_after_a_promotion(beside: Beside) -> None:
    beside.fill()
    plan = beside.old.compute(3, {"second": [("a", 3)]})
    attempt = beside.old.lease.attempt(plan.stream, 3)
    assert attempt is not None
    beside.old.lease.release()  # as if its lease had run out
    beside.promote(beside.new)
    with pytest.raises(Fenced):
        beside.old.lease.commit(plan, attempt)


def test_promotion_requires_the_head_it_compared(beside: Beside) -> None:
    beside.fill()
    app = beside.old.app
    promotion = beside.promote(beside.new).promotion
    with leased(app, beside.old.stream, "r") as old, leased(app, beside.new.stream, "r") as new:
        back = {"number": 2, "generation": 1, "replaced_seq": 2, "first_seq": 3, "run_id": "another"}
        stale = type(promotion)(**(vars(promotion) | back))
        with pytest.raises(Fenced):  # its number is taken
            old.promote(stale, new.lease)
        with pytest.raises(Fenced):  # its run has decided another one
            old.promote(
                type(promotion)(**(vars(stale) | {"number": 3, "run_id": promotion.run_id})), new.lease
            )
        with pytest.raises(Fenced):  # the other generation is at batch 2
            old.promote(type(promotion)(**(vars(stale) | {"number": 3, "replaced_seq": 1})), new.lease)
        app.ledger.acquire(beside.new.stream, "r")
        with pytest.raises(Fenced):  # somebody else works on it
            old.promote(type(promotion)(**(vars(stale) | {"number": 3})), new.lease)
    assert beside.in_charge == 2


@pytest.mark.heavy
def test_interrupted_promotion_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = Beside(tmp_path / "filled")
    filled.fill()
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "none=raise")
    places = filled.copied(tmp_path / "undisturbed").met_by_a_promotion()
    assert {"ledger.promote", "ledger.promote.noted", "sql.commit", "table.append"} <= set(places)
    in_charge = set()
    further = itertools.product((place for place in places if place != "ledger.promote"), ("raise", "lose"))
    faults = [*(("ledger.promote", action) for action in ("raise", "lose")), *share_of(further)]
    for number, (name, action) in enumerate(faults):
        beside = filled.copied(tmp_path / f"{number}")
        failpoints._hits.clear()
        monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{name}={action}")
        with suppress(failpoints.FailpointRaised, failpoints.ReplyLost, TidegateError):
            beside.promote(beside.new, "promoter")
        monkeypatch.delenv("TIDEGATE_FAILPOINTS")
        in_charge.add((name, action, beside.in_charge))
        for stream in (beside.old.stream, beside.new.stream):
            beside.old.app.ledger.acquire(stream, "promoter").release()  # a killed one's lease would run out
        beside.promote(beside.new, "promoter")
        assert (beside.in_charge, beside.sent()) == (2, OLD + NEW), (name, action)
    assert {("ledger.promote", "raise", 1), ("ledger.promote", "lose", 2)} <= in_charge


def test_next_run_finishes_an_interrupted_promotion(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    beside.fill([("a", 30)])
    failpoints._hits.clear()
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "ledger.add_publication=lose@2")
    with pytest.raises(failpoints.ReplyLost):
        beside.promote(beside.new)
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    assert beside.sent() == OLD + NEW[:2]
    with leased(beside.old.app, beside.new.stream, "the next run") as lease:
        publish.publish_decided(beside.old.app, lease)
        lease.release()
    assert beside.sent() == [*OLD, *NEW, ("visitors/2", 3, "a", 30)]


def test_a_lookup_reads_the_generation_in_charge(beside: Beside) -> None:
    ledger = beside.old.app.ledger
    assert _readable(ledger, "visitors", 0) == [beside.old.stream]
    beside.fill()
    beside.promote(beside.new)
    assert _readable(ledger, "visitors", 0) == [beside.new.stream]
    beside.rollback()
    assert _readable(ledger, "visitors", 2) == [beside.old.stream]


def test_withheld_batches_stay_in_the_ledger(beside: Beside) -> None:
    beside.fill([("a", 30)], [("a", 40)])
    app = beside.old.app
    manifest = app.write_manifest(beside.new.stream, manifest_of("snapshot", 4, []))
    app.ledger.add_snapshot(Snapshot(beside.new.stream, 4, manifest), 0)
    lease = app.ledger.acquire(beside.new.stream, "maintenance")
    lease.give_up(4)
    lease.release()
    assert remove_history(app, beside.new.stream, 2e9, timedelta(0)) == 0
    for seq in (3, 4):
        beside.decide(beside.old, seq, [])
    beside.promote(beside.new)
    assert remove_history(app, beside.new.stream, 2e9, timedelta(0)) == 3
    assert [row[1:] for row in beside.sent()[-2:]] == [(3, "a", 30), (4, "a", 40)]


def test_dropped_generation_keeps_output_and_retires_its_number(
    beside: Beside,
) -> None:
    beside.fill()
    beside.promote(beside.new)
    app, old = beside.old.app, beside.old
    lake = app.lake(old.stream)
    files = [file for file in lake.store.listed("visitors/g1") if not file.path.startswith(lake.marks.folder)]
    assert files
    assert drop_generation(app, old.stream, "d") == len(files)
    left = {file.path for file in lake.store.listed("visitors/g1")}
    assert {path for path in left if not path.startswith(lake.marks.folder)} == set()
    assert app.ledger.streams() == [beside.new.stream]
    assert app.ledger.head(old.stream).seq == 0
    assert app.ledger.plan(old.stream, 1) is None
    assert beside.sent() == OLD + NEW
    assert drop_generation(app, old.stream, "d") == 0
    with pytest.raises(Halted, match="was dropped"):
        app.ledger.acquire(old.stream, "r")
    with pytest.raises(SettingsInvalid):
        open_generation(app, old.pipeline)
    with pytest.raises(SettingsInvalid, match="no generation 1"):
        beside.rollback()


def test_the_one_in_charge_is_not_dropped(beside: Beside) -> None:
    with pytest.raises(Halted, match="publishes, so it is not dropped"):
        drop_generation(beside.old.app, beside.old.stream, "d")
    assert beside.old.app.lake(beside.old.stream).store.listed("visitors/g1")


def test_process_of_a_dropped_generation_is_fenced(beside: Beside) -> None:
    beside.fill()
    zombie = beside.old.app.ledger.acquire(beside.new.stream, "d")
    drop_generation(beside.old.app, beside.new.stream, "d")
    with pytest.raises(Fenced):
        zombie.renew()


def test_there_must_be_one_to_stand_beside(tmp_path: Path) -> None:
    beside = Beside(tmp_path)
    other = beside._beside(2)
    other.file.write_text(other.file.read_text().replace("pipeline: visitors", "pipeline: guests"))
    with pytest.raises(SettingsInvalid, match="No generation of guests was ever run"):
        open_generation(beside.old.app, other.pipeline)


def test_generation_whose_first_plan_failed_is_passed_over(tmp_path: Path) -> None:
    old = Committed(tmp_path, SINKS, f"sqlite:///{tmp_path}/sink.db")
    old.commit(1, {"first": [("a", 1)], "second": [("a", 1)]})
    old.app.ledger.acquire(Stream("visitors", 2), "failed").release()
    old.file.write_text(old.file.read_text().replace("source:", "generation: 3\nsource:", 1))
    assert open_generation(old.app, old.pipeline) == 1


def test_generation_whose_first_plan_failed_stands_beside(tmp_path: Path) -> None:
    old = Committed(tmp_path, SINKS, f"sqlite:///{tmp_path}/sink.db")
    old.commit(1, {"first": [("a", 1)], "second": [("a", 1)]})
    old.app.ledger.acquire(Stream("visitors", 2), "failed").release()
    old.file.write_text(old.file.read_text().replace("source:", "generation: 2\nsource:", 1))
    assert origin_of(old.app, old.pipeline) == Stream("visitors", 1)
    assert open_generation(old.app, old.pipeline) == 1
    assert old.app.ledger.charge("visitors").generation == 1
    with pytest.raises(SettingsInvalid, match="cannot be made"):
        open_generation(old.app, old.pipeline)


def test_a_generation_is_made_once(beside: Beside) -> None:
    with pytest.raises(SettingsInvalid, match="cannot be made"):
        open_generation(beside.old.app, beside.new.pipeline)


def test_one_that_was_never_made_is_not_promoted(beside: Beside) -> None:
    with pytest.raises(SettingsInvalid, match="no generation 9"):
        promote(beside.old.app, Stream("visitors", 9), "promoter")


ASKS = "airflow: {approve_promotion: true}\n"


def test_promotion_needs_approval_if_any_file_asks(beside: Beside) -> None:
    beside.fill()
    beside.old.file.write_text(beside.old.file.read_text() + ASKS)
    with pytest.raises(SettingsInvalid, match=r"Trigger the DAG visitors\.promote .*--approved-by NAME"):
        beside.promote(beside.new)
    assert (beside.in_charge, beside.sent()) == (1, OLD)
    assert beside.promote(beside.new, approval=Approval("anna")).promotion.approved_by == "anna"
    assert beside.sent() == OLD + NEW
    assert not beside.promote(beside.new).is_new  # who finishes it needs none


def test_nobody_approves_that_a_generation_goes_back(beside: Beside) -> None:
    beside.fill()
    beside.promote(beside.new)
    (beside.old.file.parent / "defaults.yaml").write_text(ASKS)
    beside.rollback()
    assert beside.in_charge == 1
    with pytest.raises(SettingsInvalid, match="have to be approved"):
        beside.promote(beside.new)


@pytest.mark.parametrize("text", ["stages: none", "stages: [{{", "airflow: {owner: 7}"])
def test_mistaken_file_keeps_asking_for_approval(beside: Beside, text: str) -> None:
    beside.fill()
    mistaken = beside.new.file.read_text().replace("stages:", "later:")
    beside.new.file.write_text(f"{mistaken}{text}\n{ASKS}")
    with pytest.raises(SettingsInvalid, match="have to be approved"):
        beside.promote(beside.new)


def test_file_refused_beside_another_pipeline_asks_for_approval(beside: Beside) -> None:
    beside.fill()
    text = beside.old.file.read_text().replace("path: firsts", "path: others")
    # The table `firsts` of the generations lies in the folder of this pipeline.
    beside.old.file.with_name("firsts.yaml").write_text(
        text.replace("pipeline: visitors", "pipeline: firsts")
    )
    beside.new.file.write_text(beside.new.file.read_text() + ASKS.replace("true", "false"))
    with pytest.raises(SettingsInvalid, match="have to be approved"):
        beside.promote(beside.new)


def test_an_approval_holds_for_the_next_decision_alone(beside: Beside) -> None:
    beside.fill()
    approval = Approval("anna", after=1)
    beside.promote(beside.new, approval=approval)
    beside.rollback()
    with pytest.raises(
        Halted, match=r"anna has approved .* after promotion 1 .* promotion 3 has since put generation 1"
    ):
        beside.promote(beside.new, approval=approval)
    assert beside.in_charge == 1


def test_a_second_rollback_does_not_go_forward_again(beside: Beside) -> None:
    beside.fill()
    beside.old.file.write_text(beside.old.file.read_text() + ASKS)
    beside.promote(beside.new, approval=Approval("anna"))
    beside.rollback()
    with pytest.raises(SettingsInvalid, match="has gone back to the first one already"):
        beside.rollback()
    assert beside.in_charge == 1


def test_rerun_promotion_does_nothing_after_a_rollback(beside: Beside) -> None:
    beside.fill()
    beside.promote(beside.new, "a run")
    assert not beside.promote(beside.new, "a run").is_new  # its retry finishes it
    beside.rollback()
    with pytest.raises(Halted, match="The run a run has put visitors/2 in charge already, as promotion 2"):
        beside.promote(beside.new, "a run")
    with pytest.raises(Halted, match="visitors/1 is in charge, by promotion 3"):
        replaced_stream(beside.old.app, beside.new.stream, "a run")
    assert beside.in_charge == 1


def test_retried_rollback_goes_back_once(beside: Beside) -> None:
    beside.fill()
    beside.promote(beside.new)
    app = beside.old.app
    assert rollback(app, "visitors", "back").is_new
    assert not rollback(app, "visitors", "back").is_new
    beside.promote(beside.new)
    with pytest.raises(Halted, match="visitors/2 is in charge, by promotion 4"):
        rollback(app, "visitors", "back")
    assert beside.in_charge == 2


def test_older_batch_that_fails_halts_the_stream(beside: Beside) -> None:
    beside.fill()
    for file in (beside.old.folder / "lake/visitors/g2").rglob("outbox/_files/0000000001*/*.parquet"):
        file.unlink()
    with pytest.raises(LakeDamaged):
        beside.promote(beside.new)
    assert stream_condition(beside.old.app, beside.new.stream).condition.label == "halted"


def test_withheld_beside_a_retired_one_is_reported(beside: Beside) -> None:
    beside.fill()
    beside.old.file.unlink()
    condition = stream_condition(beside.old.app, beside.new.stream)
    assert "nothing of visitors is published: generation 1 is in charge" in condition.causes[0].what
