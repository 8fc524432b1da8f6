"""`tidegate recover --choose adopt-ledger`: a copy of a ledger takes over the folders that it knows whole."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.app.test_owner import Restorable
from tests.generations.two_generations import NEW, OLD, Beside
from tests.recovery.commands import recover
from tidegate import failpoints
from tidegate.app import App
from tidegate.app.lease import check_owner, claim_promotions
from tidegate.errors import Fenced, LedgerMismatch
from tidegate.failpoints import FailpointRaised
from tidegate.generations import Approval
from tidegate.ledger import Stream, schema
from tidegate.recovery import Situation, carry_out
from tidegate.recovery.ownership import AdoptLedger
from tidegate.storage.store import Store


@pytest.fixture
def stream(tmp_path: Path) -> Restorable:
    stream = Restorable(tmp_path)
    stream.published(1, emitted=1)
    return stream


def _moved(stream: Restorable) -> App:
    """The ledger in another database, whose tables were filled with the rows of the first one."""
    stream.app.ledger._engine.dispose()
    shutil.copy(stream.folder / "l.db", stream.folder / "moved.db")
    moved = stream.with_another_ledger("moved.db")
    with moved.ledger._engine.begin() as connection:
        connection.execute(update(schema.identity).values(ledger="moved"))
    return moved


def test_moved_ledger_takes_over_and_old_one_halts(stream: Restorable) -> None:
    before, moved = stream.app, _moved(stream)
    with pytest.raises(LedgerMismatch, match="--choose adopt-ledger"):
        check_owner(moved, stream.stream)
    situation = Situation(moved, stream.stream)
    proposal = AdoptLedger().propose(situation)
    assert proposal is not None
    assert carry_out(situation, proposal, "me") == ("The folder of visitors/1 belongs to the ledger moved.",)
    assert AdoptLedger().propose(situation) is None
    stream.app = moved
    stream.published(2, emitted=1)
    assert stream.keys() == ["k1", "k2"]
    with pytest.raises(LedgerMismatch, match="belongs to the ledger moved"):
        check_owner(before, stream.stream)


def test_ledger_without_the_folders_batches_is_refused(stream: Restorable) -> None:
    moved = _moved(stream)
    stream.published(2)
    with pytest.raises(LedgerMismatch, match=r"has batch 2 .* whose last batch is 1, .* cannot take over"):
        AdoptLedger().propose(Situation(moved, stream.stream))
    other = stream.with_another_ledger()
    with pytest.raises(LedgerMismatch, match="whose last batch is 0"):
        AdoptLedger().propose(Situation(other, stream.stream))


def test_restored_ledger_learns_what_remains(stream: Restorable) -> None:
    stream.back_up()
    stream.published(2)
    stream.restore()
    with pytest.raises(LedgerMismatch, match=r"Restore the newest backup .* begin with a new `generation`"):
        AdoptLedger().propose(Situation(stream.app, stream.stream))


def test_own_folder_needs_no_adoption(stream: Restorable) -> None:
    assert AdoptLedger().propose(Situation(stream.app, stream.stream)) is None


class Promoted(Beside):
    """Two generations of a pipeline whose ledger can be copied, and put back."""

    def back_up(self) -> None:
        self.old.app.ledger._engine.dispose()
        shutil.copy(self.old.folder / "l.db", self.old.folder / "backup.db")

    def restore(self, ledger: str = "backup.db") -> None:
        self.old.app.ledger._engine.dispose()
        for file in self.old.folder.glob("l.db*"):
            file.unlink()
        shutil.copy(self.old.folder / ledger, self.old.folder / "l.db")
        self.old.app = self.new.app = App.from_environment(self.old.environment)

    def adopt(self, *options: str) -> str:
        result = recover(self.old.environment, "visitors", "--choose", "adopt-ledger", *options)
        assert result.exit_code in (0, 4), (result.output, result.exception)
        return result.output


@pytest.fixture
def promoted(tmp_path: Path) -> Promoted:
    """Both generations have read the same. There is a backup from before anything was promoted."""
    promoted = Promoted(tmp_path / "promoted")
    promoted.fill()
    promoted.back_up()
    return promoted


def test_older_ledger_learns_a_promotion_from_the_folder(promoted: Promoted) -> None:
    promoted.promote(promoted.new, "lost", approval=Approval("ada"))
    lost = promoted.old.app.ledger.charge("visitors").promotions[-1]
    promoted.restore()
    with pytest.raises(LedgerMismatch, match="--choose adopt-ledger"):
        claim_promotions(promoted.old.app, "visitors")
    shown = promoted.adopt()
    assert "Promotion 2 of visitors has put visitors/2 in charge, and this ledger has 1 promotions" in shown
    assert "notes promotion 2, which puts visitors/2 in charge, as ada has approved" in shown
    assert promoted.in_charge == 1
    assert "visitors/2 is in charge." in promoted.adopt("--yes")
    assert promoted.old.app.ledger.charge("visitors").promotions[-1] == lost
    promoted.decide(promoted.new, 3, [("a", 30)])
    promoted.decide(promoted.old, 3, [("a", 3)])  # is withheld
    assert promoted.sent() == [*OLD, *NEW, ("visitors/2", 3, "a", 30)]
    assert "needs no remedy" in promoted.adopt()


def test_generation_with_unsent_decided_batches_withholds_the_rest(
    promoted: Promoted,
) -> None:
    promoted.promote(promoted.new)
    promoted.restore()
    promoted.old.commit(3, {"first": [("a", 3)], "second": [("a", 3)]})
    promoted.old.lease.release()
    promoted.adopt("--yes")
    promoted.decide(promoted.new, 3, [("a", 30)])
    assert promoted.sent() == [*OLD, *NEW, ("visitors/2", 3, "a", 30)]


def test_replaced_generation_sends_no_newly_decided_batch(promoted: Promoted) -> None:
    promoted.decide(promoted.old, 3, [("a", 3)])
    promoted.decide(promoted.new, 3, [("a", 30)])
    promoted.promote(promoted.new)
    promoted.restore()
    promoted.adopt("--yes")
    newest = promoted.old.app.ledger.charge("visitors").promotions[-1]
    assert (newest.generation, newest.first_seq, newest.replaced_seq) == (2, 1, 2)


def test_lost_promotion_waits_for_no_net_differences(promoted: Promoted) -> None:
    promoted.promote(promoted.new, is_net=True)
    assert promoted.old.app.ledger.charge("visitors").promotions[-1].first_seq == 3
    promoted.restore()
    promoted.adopt("--yes")
    newest = promoted.old.app.ledger.charge("visitors").promotions[-1]
    assert (newest.generation, newest.first_seq, newest.is_net) == (2, 3, False)


def test_older_ledger_learns_all_later_promotions(promoted: Promoted) -> None:
    promoted.promote(promoted.new)
    promoted.rollback()
    promoted.promote(promoted.new)
    promoted.rollback()
    lost = promoted.old.app.ledger.charge("visitors")
    promoted.restore()
    promoted.adopt("--yes")
    assert promoted.old.app.ledger.charge("visitors") == lost
    assert promoted.in_charge == 1


def test_missing_mark_between_lost_promotions_is_reported(promoted: Promoted) -> None:
    promoted.promote(promoted.new)
    promoted.rollback()
    promoted.restore()
    promoted.old.app.promotion_marks("visitors").remove(2)
    refused = recover(promoted.old.environment, "visitors", "--choose", "adopt-ledger", "--yes")
    assert isinstance(refused.exception, LedgerMismatch)
    assert "marks of promotions from number 2 on are not all there" in str(refused.exception)


def test_promotion_after_a_ledger_restore_holds(promoted: Promoted) -> None:
    promoted.promote(promoted.new)
    promoted.rollback()
    promoted.restore()
    ledger = promoted.old.app.ledger
    newest = ledger.charge("visitors").promotions[-1]
    own = replace(newest, number=2, run_id="since", decided_at=1.0)
    ledger.add_promotions([own])
    shown = promoted.adopt()
    assert "This ledger has put visitors/1 in charge since, by its promotion 2: that holds." in shown
    assert "The mark of promotion 3, of visitors/1, is removed." in shown
    promoted.adopt("--yes")
    claim_promotions(promoted.old.app, "visitors")
    assert ledger.charge("visitors").promotions[-1] == own


def test_a_promotion_is_not_noted_twice(promoted: Promoted) -> None:
    ledger = promoted.old.app.ledger
    first = ledger.charge("visitors").promotions[0]
    with pytest.raises(Fenced, match="was promoted meanwhile"):
        ledger.add_promotions([first])


@pytest.mark.heavy
@pytest.mark.parametrize("action", ["raise", "lose"])
@pytest.mark.parametrize("is_moved", [False, True], ids=["restored", "moved"])
@pytest.mark.sample(2)
def test_wherever_adopting_breaks_off_the_same_command_continues(
    promoted: Promoted, monkeypatch: pytest.MonkeyPatch, is_moved: bool, action: str
) -> None:
    promoted.promote(promoted.new)
    if is_moved:
        promoted.back_up()
        with promoted.old.app.ledger._engine.begin() as connection:
            connection.execute(update(schema.identity).values(ledger="moved"))
        promoted.back_up()
    promoted.restore()
    points = _points(promoted.copied(promoted.old.folder.with_name("undisturbed")), monkeypatch)
    assert ("marks.adopt", 5) in points if is_moved else ("ledger.add_promotions", 1) in points
    for number, (point, hit) in enumerate(points):
        broken = promoted.copied(promoted.old.folder.with_name(f"broken-{number}"))
        failpoints._hits.clear()
        monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{point}={action}@{hit}")
        failed = recover(broken.old.environment, "visitors", "--choose", "adopt-ledger", "--yes")
        monkeypatch.delenv("TIDEGATE_FAILPOINTS")
        assert failed.exception is not None, (point, hit)
        for generation in (broken.old, broken.new):
            _end_lease(broken, generation.stream)
        again = recover(broken.old.environment, "visitors", "--choose", "adopt-ledger", "--yes")
        assert again.exit_code == 0, (point, hit, again.output, again.exception)
        claim_promotions(broken.old.app, "visitors")
        check_owner(broken.old.app, broken.old.stream)
        assert broken.in_charge == 2, (point, hit)
        app = broken.old.app
        marks = [*app.marks(broken.old.stream).all(), *app.promotion_marks("visitors").all()]
        assert len({mark.ledger for mark in marks}) == 1, (point, hit)


WRITES = ("marks.adopt", "marks.put", "marks.remove", "ledger.add_promotions")


def _points(promoted: Beside, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The writes of an undisturbed use of the remedy: failpoints, each with its hit."""
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "none=raise")
    failpoints._hits.clear()
    done = recover(promoted.old.environment, "visitors", "--choose", "adopt-ledger", "--yes")
    assert done.exit_code == 0, (done.output, done.exception)
    return [(name, hit) for name in WRITES for hit in range(1, failpoints._hits[name] + 1)]


def _end_lease(beside: Beside, stream: Stream) -> None:
    """End the lease, as if the lease of a killed command had expired."""
    with beside.old.app.ledger._engine.begin() as connection:
        heads = schema.heads
        this = heads.c.generation == stream.generation
        connection.execute(update(heads).where(this).values(holder=None, lease_until=None))


@pytest.mark.heavy
def test_mark_is_whole_wherever_its_replacement_stops(
    stream: Restorable, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Store.write

    def write_half(store: Store, path: str, content: bytes) -> None:
        write(store, path, content[: len(content) // 2])
        raise FailpointRaised(path)

    before = stream.lake.marks.all()
    monkeypatch.setattr(Store, "write", write_half)
    with pytest.raises(FailpointRaised):
        stream.lake.marks.adopt("another")
    assert stream.lake.marks.all() == before


def test_adopted_rollback_publishes_the_next_batch(promoted: Promoted) -> None:
    promoted.decide(promoted.old, 3, [("a", 3)])
    promoted.decide(promoted.new, 3, [("a", 30)])
    promoted.promote(promoted.new)
    promoted.rollback()
    promoted.restore()
    promoted.old.suffix = promoted.new.suffix = "0000000b"
    promoted.adopt("--yes")
    for number in ("1", "2"):
        again = ("--generation", number, "--choose", "send-again", "--yes")
        assert recover(promoted.old.environment, "visitors", *again).exit_code == 0
    promoted.decide(promoted.old, 3, [("a", 3)])
    assert ("visitors/1", 3, "a", 3) in promoted.sent()
