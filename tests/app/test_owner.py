"""A stream's folder belongs to one ledger, and says how far that has come: another one halts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.batch.aged import DAY, STAGE, Aged
from tests.generations.two_generations import Beside
from tidegate import inspect, maintenance
from tidegate.app import App, leased
from tidegate.app.lease import check_owner, claim_folder
from tidegate.app.tables import catch_up_tables
from tidegate.batch import Trigger, plan_batch
from tidegate.errors import Halted, LakeDamaged, LedgerMismatch
from tidegate.generations import drop_generation
from tidegate.inspect.examine import Finding, FindingState, examine_orphan, examine_pipeline
from tidegate.storage import LedgerMark, attempt_name


class Restorable(Aged):
    """A stream whose ledger can be copied, and put back."""

    @property
    def marks(self) -> list[int]:
        return sorted(int(Path(file.path).stem) for file in self.lake.store.listed(self.lake.marks.folder))

    def published(self, seq: int, emitted: int = 0) -> None:
        """A batch from plan to publication, with so many emissions."""
        self.batch(seq, emitted=[(f"k{seq}", number) for number in range(emitted)])
        self.publish(seq)

    def back_up(self) -> None:
        self.app.ledger._engine.dispose()
        shutil.copy(self.folder / "l.db", self.folder / "backup.db")

    def restore(self) -> None:
        self.app.ledger._engine.dispose()
        for file in self.folder.glob("l.db*"):
            file.unlink()
        shutil.copy(self.folder / "backup.db", self.folder / "l.db")
        self.app = App.from_environment(self.environment)

    def with_another_ledger(self, ledger: str = "other.db") -> App:
        return App.from_environment(
            self.environment | {"TIDEGATE_LEDGER": f"sqlite:///{self.folder / ledger}"}
        )

    def use_another_ledger(self) -> None:
        self.app = self.with_another_ledger()

    def files(self) -> list[str]:
        return [file.path for file in self.lake.store.listed(self.lake.base)]


@pytest.fixture
def stream(tmp_path: Path) -> Restorable:
    return Restorable(tmp_path)


def failing_plans(app: App, stream: Restorable, tries: int = 12) -> None:
    """Runs of an hourly DAG that cannot plan: each raises the epoch, and gives the lease back."""
    for number in range(tries):
        with pytest.raises(Halted), leased(app, stream.stream, f"run-{number}"):
            raise Halted("the broker is away")


def test_cleaning_with_a_planless_ledger_touches_nothing(stream: Restorable) -> None:
    for seq in (1, 2, 3):
        stream.published(seq, emitted=1)
    before, other = stream.files(), stream.with_another_ledger()
    failing_plans(other, stream)
    cleaned = maintenance.clean(other, stream.stream, stream.now + 2 * DAY)
    assert (cleaned.files, cleaned.note) == (0, "no batch was planned yet")
    assert stream.files() == before
    assert stream.keys() == ["k1", "k2", "k3"]


def test_cleaning_with_another_ledger_that_has_batches_halts(stream: Restorable) -> None:
    for seq in (1, 2, 3):
        stream.published(seq, emitted=1)
    before = stream.files()
    stream.use_another_ledger()
    with pytest.raises(LedgerMismatch, match="belongs to the ledger"):
        claim_folder(stream.app, stream.stream)
    stream.batch(1)  # as if it had written to another lake until then
    stream.now += 2 * DAY
    with pytest.raises(LedgerMismatch, match="belongs to the ledger"):
        maintenance.clean(stream.app, stream.stream, stream.now)
    assert set(before) <= set(stream.files())


def _compact(stream: Restorable) -> Any:
    return maintenance.compact_state(stream.app, stream.stream)


def _plan(stream: Restorable) -> Any:
    return plan_batch(stream.app, stream.pipeline, Trigger("later", clock_ms=9_000))


def _publish(stream: Restorable) -> Any:
    return stream.publish(1)


def _catch_up(stream: Restorable) -> Any:
    return catch_up_tables(stream.app, stream.stream, [stream.pipeline])


def _clean(stream: Restorable) -> Any:
    return stream.clean(days=2)


WORK = [_plan, _publish, _catch_up, _clean, _compact]


@pytest.mark.parametrize("work", WORK)
def test_another_ledger_halts_before_it_does_anything(
    stream: Restorable, work: Callable[[Restorable], Any]
) -> None:
    stream.published(1, emitted=1)
    stream.use_another_ledger()
    stream.batch(1)
    before = stream.files()
    with pytest.raises(LedgerMismatch, match="belongs to the ledger"):
        work(stream)
    assert stream.files() == before


@pytest.mark.parametrize("work", WORK)
def test_restored_ledger_halts_despite_silent_lost_batches(
    stream: Restorable, work: Callable[[Restorable], Any]
) -> None:
    stream.published(1, emitted=1)
    stream.back_up()
    for seq in (2, 3, 4):
        stream.published(seq)
    stream.restore()
    before = stream.files()
    with pytest.raises(LedgerMismatch, match=r"has batch 4 of visitors/1 .* its last batch is 1"):
        work(stream)
    assert stream.files() == before


def test_second_copy_of_a_ledger_halts(stream: Restorable) -> None:
    stream.published(1, emitted=1)
    stream.back_up()
    stream.batch(2, emitted=[("first copy", 2)])
    stream.publish(2)
    stream.restore()
    stream.batch(2, emitted=[("second copy", 2)])
    with pytest.raises(LedgerMismatch, match="which this ledger has not committed: it has another attempt"):
        stream.publish(2)


def test_unmarked_folder_halts_a_ledger_with_batches(stream: Restorable) -> None:
    stream.published(1)
    shutil.rmtree(Path(stream.lake.root) / stream.lake.base)
    with pytest.raises(LakeDamaged, match="has no mark, and the ledger has 1 batches"):
        stream.publish(1)


def test_the_folder_is_marked_before_the_first_plan(stream: Restorable) -> None:
    assert stream.marks == [0]


def test_the_owner_and_the_two_newest_marks_stay(stream: Restorable) -> None:
    for seq in range(1, 6):
        stream.published(seq)
    assert stream.marks == [0, 4, 5]


def test_next_step_marks_a_committed_unmarked_batch(stream: Restorable) -> None:
    name = stream.batch(1)
    assert stream.marks == [0]
    with leased(stream.app, stream.stream, "retry"):
        assert stream.marks == [0, 1]
    newest = stream.lake.marks.newest()
    assert newest is not None
    assert (newest.number, newest.name) == (1, name)


def test_unmarked_batch_can_be_committed_after_restore(stream: Restorable) -> None:
    stream.back_up()
    stream.batch(1, emitted=[("lost", 1)])
    stream.restore()
    stream.batch(1, emitted=[("again", 1)])
    assert list(stream.publish(1).values()) == [1]


def test_stale_copy_finds_newer_marks_after_removal(stream: Restorable) -> None:
    stream.published(1)
    stream.back_up()
    for seq in (2, 3, 4):
        stream.published(seq)
    stream.restore()
    late = LedgerMark(stream.lake.marks.newest().ledger, 2, attempt_name(2, 1))  # type: ignore[union-attr]
    stream.lake.marks.put(late)
    with pytest.raises(LedgerMismatch, match="has batch 4"):
        check_owner(stream.app, stream.stream)


def test_a_mark_that_cannot_be_read_is_damage(stream: Restorable) -> None:
    (Path(stream.lake.root) / stream.lake.marks.path(0)).write_text('{"format": 99}')
    with pytest.raises(LakeDamaged, match=r"0000000000\.json, which names the ledger that owns the folder"):
        check_owner(stream.app, stream.stream)


def test_dropped_generation_of_another_ledger_keeps_files(stream: Restorable) -> None:
    """The other ledger has dropped its own generation of this name, and was then pointed at this lake."""
    stream.published(1)
    before, other = stream.files(), stream.with_another_ledger()
    lake = stream.environment | {
        "TIDEGATE_LEDGER": f"sqlite:///{stream.folder}/other.db",
        "TIDEGATE_LAKE": f"{stream.folder}/elsewhere",
    }
    elsewhere = App.from_environment(lake)
    with leased(elsewhere, stream.stream, "run") as lease:
        other.ledger.open_generation(type(stream.stream)("visitors", 2), 1)
        lease.release()
    drop_generation(elsewhere, type(stream.stream)("visitors", 2), "drop")
    with pytest.raises(LedgerMismatch):
        drop_generation(other, stream.stream, "drop")
    assert stream.files() == before


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    """A generation in charge, and one beside it that has read as much."""
    beside = Beside(tmp_path / "beside")
    beside.fill()
    return beside


def _restored(beside: Beside, change: Callable[[], Any]) -> App:
    """The ledger as it was before a change."""
    folder = beside.old.folder
    beside.old.app.ledger._engine.dispose()
    shutil.copy(folder / "l.db", folder / "backup.db")
    change()
    ledger = {"TIDEGATE_LEDGER": f"sqlite:///{folder / 'backup.db'}"}
    return App.from_environment(beside.old.environment | ledger)


def test_a_ledger_from_before_a_promotion_publishes_nothing(beside: Beside) -> None:
    restored = _restored(beside, lambda: beside.promote(beside.new))
    beside.old.app = restored
    sent = beside.sent()
    beside.old.commit(3, {"first": [("a", 3)], "second": [("a", 3)]})
    beside.old.lease.release()
    with pytest.raises(LedgerMismatch, match="Promotion 2 of visitors has put visitors/2 in charge"):
        beside.old.publish(3)
    assert beside.sent() == sent


def test_ledger_from_before_a_drop_halts(beside: Beside) -> None:
    beside.promote(beside.new)

    def drop() -> None:
        drop_generation(beside.old.app, beside.old.stream, "drop")

    restored = _restored(beside, drop)
    with pytest.raises(LedgerMismatch, match="visitors/1 was dropped, and this ledger does not have that"):
        check_owner(restored, beside.old.stream)


def test_another_ledger_cannot_reuse_a_dropped_folder(beside: Beside) -> None:
    beside.promote(beside.new)
    drop_generation(beside.old.app, beside.old.stream, "drop")
    ledger = {"TIDEGATE_LEDGER": f"sqlite:///{beside.old.folder / 'other.db'}"}
    other = App.from_environment(beside.old.environment | ledger)
    with (
        pytest.raises(LedgerMismatch, match="belongs to the ledger"),
        leased(other, beside.old.stream, "run"),
    ):
        pass


def test_unmarked_drop_is_marked_when_repeated(beside: Beside) -> None:
    app, old = beside.old.app, beside.old.stream
    beside.promote(beside.new)
    with leased(app, old, "drop") as lease:
        lease.drop()
    assert drop_generation(app, old, "drop") > 0
    assert drop_generation(app, old, "drop") == 0
    newest = app.marks(old).newest()
    assert newest is not None
    assert (newest.number, newest.name) == (3, "dropped")


def _wrong(findings: Iterator[Finding]) -> list[str]:
    return [f"{finding.check}: {finding.text}" for finding in findings if finding.state is FindingState.WRONG]


def test_doctor_reports_another_ledger(stream: Restorable) -> None:
    stream.published(1)
    reader = App.for_reading(
        stream.environment | {"TIDEGATE_LEDGER": f"sqlite:///{stream.folder / 'none.db'}"}
    )
    (finding,) = _wrong(examine_pipeline(reader, "visitors", stream.pipeline))
    assert finding.startswith("pipeline visitors: fenced: LedgerMismatch: The folder of visitors/1")
    assert not (stream.folder / "none.db").exists()


def test_doctor_reports_a_restored_ledger(stream: Restorable) -> None:
    stream.published(1)
    stream.back_up()
    stream.published(2)
    stream.restore()
    (finding,) = _wrong(examine_pipeline(stream.app, "visitors", stream.pipeline))
    assert "LedgerMismatch: The lake has batch 2 of visitors/1" in finding
    (finding,) = _wrong(examine_orphan(stream.app, stream.stream))
    assert "LedgerMismatch: The lake has batch 2 of visitors/1" in finding


def test_the_marks_are_no_stage(stream: Restorable) -> None:
    stream.published(1)
    state = inspect.read_state(stream.app, stream.stream, None, STAGE)
    assert state["key"].to_pylist() == ["k1"]
