"""`tidegate recover` replaces a generation that is stuck, and removes retired pipelines."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable
from sqlalchemy import update

from tests.generations.two_generations import NEW, OLD, Beside
from tests.recovery.commands import recover
from tidegate import failpoints
from tidegate.app import leased
from tidegate.app.lease import is_marked_dropped
from tidegate.errors import Halted, LakeDamaged, LeaseHeld, SettingsInvalid
from tidegate.generations import drop_generation, open_generation
from tidegate.ledger import Stream, schema
from tidegate.recovery import Situation, carry_out
from tidegate.recovery.remedy import Options
from tidegate.recovery.sinks import SendAgain


@pytest.fixture
def stuck(tmp_path: Path) -> Beside:
    """Generation 2 is in charge, and the outbox of its third batch, which is decided, is lost."""
    beside = Beside(tmp_path)
    beside.fill()
    beside.promote(beside.new)
    beside.new.commit(3, {"first": [("a", 30)], "second": [("a", 30)]})
    beside.new.lease.release()
    for file in (tmp_path / "lake" / "visitors" / "g2").rglob("outbox/_files/0000000003*/*.parquet"):
        file.unlink()
    with pytest.raises(LakeDamaged):
        beside.new.publish(3)
    return beside


def chosen(beside: Beside, choice: str, *options: str) -> str:
    result = recover(beside.old.environment, "visitors", "--choose", choice, *options)
    assert result.exit_code in (0, 4), (result.output, result.exception)
    return result.output


def test_earlier_generation_replaces_a_stuck_one(stuck: Beside) -> None:
    shown = recover(stuck.old.environment, "visitors", "--generation", "2").output
    assert "promote: visitors/2: Batch 3 is decided and cannot be published: LakeDamaged" in shown
    assert "tidegate recover visitors --choose promote --generation 1 --yes" in shown
    assert "visitors/1 is in charge." in chosen(stuck, "promote", "--generation", "1", "--yes")
    stuck.decide(stuck.old, 3, [("a", 3)])
    assert stuck.in_charge == 1
    assert stuck.sent() == [*OLD, *NEW, ("visitors/1", 3, "a", 3)]
    assert [row.sink for row in stuck.old.app.ledger.given_up(stuck.new.stream)] == [
        "sql:seconds",
        "table:firsts",
    ]


def test_later_generation_replaces_a_stuck_one(stuck: Beside) -> None:
    third = stuck._beside(3)
    open_generation(stuck.old.app, third.pipeline)
    for seq in (1, 2, 3):
        stuck.decide(third, seq, [("a", seq)])
    assert "visitors/3 is in charge." in chosen(stuck, "promote", "--generation", "3", "--yes")
    assert stuck.sent() == [*OLD, *NEW, *(("visitors/3", seq, "a", seq) for seq in (1, 2, 3))]


def test_required_approval_names_who_decides(stuck: Beside) -> None:
    third = stuck._beside(3)
    third.file.write_text(third.file.read_text() + "airflow: {approve_promotion: true}\n")
    open_generation(stuck.old.app, third.pipeline)
    for seq in (1, 2, 3):
        stuck.decide(third, seq, [("a", seq)])
    refused = recover(
        *(stuck.old.environment, "visitors", "--choose", "promote", "--generation", "3", "--yes")
    )
    assert isinstance(refused.exception, SettingsInvalid)
    assert stuck.in_charge == 2
    chosen(stuck, "promote", "--generation", "3", "--yes", "--by", "ada")
    assert stuck.old.app.ledger.charge("visitors").promotions[-1].approved_by == "ada"


def test_given_up_batch_is_left_out_of_net(stuck: Beside) -> None:
    chosen(stuck, "give-up", "--generation", "2", "--yes")
    third = stuck._beside(3)
    open_generation(stuck.old.app, third.pipeline)
    for seq in (1, 2, 3):
        stuck.decide(third, seq, [("a", 20 + seq), ("c", 20)])
    stuck.promote(third, is_net=True)
    assert stuck.sent()[len(OLD) + len(NEW) :] == [
        ("visitors/3", 4, "a", 23),  # consumers hold 20, and not the 30 that they never got
        ("visitors/3", 4, "b", None),
    ]


@pytest.fixture
def retired(tmp_path: Path) -> Beside:
    """A pipeline with two generations, whose files are removed."""
    beside = Beside(tmp_path)
    beside.fill()
    for generation in (beside.old, beside.new):
        generation.file.unlink()
    return beside


def test_forgotten_pipeline_leaves_only_its_sinks(retired: Beside) -> None:
    folder = retired.old.folder
    shown = chosen(retired, "forget")
    assert "visitors/1 leaves the ledger, with 2 batches. " in shown
    assert "visitors/2 leaves the ledger, with 2 batches. " in shown
    assert len(retired.old.app.ledger.streams()) == 2
    chosen(retired, "forget", "--yes")
    assert retired.old.app.ledger.streams() == []
    assert retired.in_charge is None
    left = [file for file in (folder / "lake" / "visitors").rglob("*") if file.is_file()]
    assert {str(file.parent.relative_to(folder / "lake")) for file in left} == {
        "visitors/g1/marks",
        "visitors/g2/marks",
    }
    assert retired.sent() == OLD
    assert DeltaTable(f"{folder}/lake/firsts").to_pyarrow_table().num_rows > 0


@pytest.mark.sample(1)
@pytest.mark.heavy
@pytest.mark.parametrize("action", ["raise", "lose"])
def test_wherever_forgetting_breaks_off_the_same_command_continues(
    retired: Beside, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    copies = tmp_path_factory.mktemp("copies")
    points = _points_of_forget(retired.copied(copies / "undisturbed"), monkeypatch)
    assert {("ledger.forget", 1), ("drop.delete", 1), ("marks.remove", 1), ("marks.put", 2)} <= set(points)
    for number, (point, hit) in enumerate(points):
        broken = retired.copied(copies / f"broken-{number}")
        failpoints._hits.clear()
        monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{point}={action}@{hit}")
        failed = recover(broken.old.environment, "visitors", "--choose", "forget", "--yes")
        monkeypatch.delenv("TIDEGATE_FAILPOINTS")
        assert failed.exception is not None, (point, hit)
        with broken.old.app.ledger._engine.begin() as connection:  # the lease of a killed one runs out
            connection.execute(update(schema.heads).values(holder=None, lease_until=None))
        again = recover(broken.old.environment, "visitors", "--choose", "forget", "--yes")
        assert again.exit_code == 0, (point, hit, again.output, again.exception)
        assert broken.old.app.ledger.streams() == [], (point, hit)
        lake = broken.old.folder / "lake" / "visitors"
        assert {file.parent.name for file in lake.rglob("*") if file.is_file()} == {"marks"}, (point, hit)
        for generation in (broken.old, broken.new):
            assert is_marked_dropped(broken.old.app, generation.stream), (point, hit)
        assert broken.old.app.promotion_marks("visitors").newest() is None


def _points_of_forget(retired: Beside, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The writes of an undisturbed use of `forget`: failpoints, each with its hit."""
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "none=raise")
    failpoints._hits.clear()
    chosen(retired, "forget", "--yes")
    writes = ("ledger.forget", "marks.remove", "marks.put", "drop.delete")
    return [(name, hit) for name in writes for hit in range(1, failpoints._hits[name] + 1)]


def test_a_forgotten_pipeline_needs_no_remedy(retired: Beside) -> None:
    chosen(retired, "forget", "--yes")
    assert "visitors/2 needs no remedy forget" in chosen(retired, "forget")


def test_the_numbers_of_a_forgotten_pipeline_stay_used(retired: Beside) -> None:
    chosen(retired, "forget", "--yes")
    with pytest.raises(Halted, match="was dropped"):
        retired.old.app.ledger.acquire(Stream("visitors", 1), "r")


def test_a_pipeline_with_a_file_is_not_forgotten(tmp_path: Path) -> None:
    beside = Beside(tmp_path)
    refused = recover(beside.old.environment, "visitors", "--choose", "forget", "--yes")
    assert isinstance(refused.exception, Halted)
    assert "visitors/1" in str(refused.exception)
    assert beside.old.app.ledger.head(beside.old.stream).seq == 2


def test_a_pipeline_at_work_is_not_forgotten(retired: Beside) -> None:
    with leased(retired.old.app, retired.new.stream, "a run"):
        refused = recover(retired.old.environment, "visitors", "--choose", "forget", "--yes")
    assert isinstance(refused.exception, LeaseHeld)
    assert len(retired.old.app.ledger.streams()) == 2


@pytest.mark.parametrize("point", [None, "drop.delete=raise"])
def test_dropped_generation_needs_no_other_ledger(
    stuck: Beside, monkeypatch: pytest.MonkeyPatch, point: str | None
) -> None:
    if point is not None:
        monkeypatch.setenv("TIDEGATE_FAILPOINTS", point)
    with suppress(failpoints.FailpointRaised):
        drop_generation(stuck.old.app, stuck.old.stream, "drop")
    monkeypatch.delenv("TIDEGATE_FAILPOINTS", raising=False)
    shown = recover(stuck.old.environment, "visitors", "--generation", "1").output
    assert "adopt-ledger" not in shown
    assert "promote" not in shown


def test_withheld_generation_sends_no_batch_again(tmp_path: Path) -> None:
    beside = Beside(tmp_path)
    beside.fill()
    beside.promote(beside.new)
    sent = beside.sent()
    refused = recover(
        *(beside.old.environment, "visitors", "--generation", "1", "--choose", "send-again"),
        *("--sink", "sql:seconds", "--from-batch", "1", "--yes"),
    )
    assert "another generation is in charge, so none is sent" in str(refused.exception)
    assert beside.sent() == sent


def test_stuck_generation_is_replaced_after_a_rollback(tmp_path: Path) -> None:
    beside = Beside(tmp_path)
    beside.fill()
    beside.promote(beside.new)
    beside.rollback()
    beside.old.commit(3, {"first": [("a", 30)], "second": [("a", 30)]})
    beside.old.lease.release()
    for file in (tmp_path / "lake" / "visitors" / "g1").rglob("outbox/_files/0000000003*/*.parquet"):
        file.unlink()
    with pytest.raises(LakeDamaged):
        beside.old.publish(3)
    beside.decide(beside.new, 3, [("a", 31)])
    chosen(beside, "promote", "--generation", "2", "--yes", "--by", "ada")
    assert beside.in_charge == 2


def test_refused_promotion_gives_no_batch_up(stuck: Beside) -> None:
    stuck.old.app.ledger.acquire(stuck.old.stream, "scheduled__1")
    refused = recover(
        *(stuck.old.environment, "visitors", "--choose", "promote", "--generation", "1", "--yes")
    )
    assert isinstance(refused.exception, LeaseHeld)
    assert stuck.old.app.ledger.given_up(stuck.new.stream) == []


def test_batch_published_meanwhile_is_not_sent_again(tmp_path: Path) -> None:
    beside = Beside(tmp_path)
    situation = Situation(beside.old.app, beside.old.stream, Options("send-again", sinks=("sql:seconds",)))
    proposal = SendAgain().propose(situation)
    assert proposal is not None
    beside.decide(beside.old, 3, [("a", 3)])
    assert carry_out(situation, proposal, "ada")[0] == "sql:seconds is published to from batch 4 on."
