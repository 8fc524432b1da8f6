"""How long quarantine is kept: never shorter than a file says, and never what somebody needs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from tests.batch.aged import DAY, NOW
from tests.quarantines import Quarantined, quarantined
from tidegate import maintenance, quarantine
from tidegate.batch import Trigger, plan_batch
from tidegate.cli import cli
from tidegate.errors import Halted, SettingsInvalid
from tidegate.maintenance import cleaning
from tidegate.maintenance.cleaning import expire, note_in_ledger
from tidegate.quarantine import ReplayedRecords, discard_records, resolve
from tidegate.storage.quarantine_files import QUARANTINE

AGE = timedelta(hours=24)
ALL = quarantine.QuarantineFilter()


class Expiring(Quarantined):
    """A pipeline that keeps quarantine for ten days, whose ledger's clock a test moves."""

    def __init__(self, folder: Path, rule: str = "keep: 10d") -> None:
        super().__init__(folder)
        self.now = NOW
        self.app.ledger._now = lambda: self.now
        self.rule(rule)

    def rule(self, rule: str) -> None:
        text, *_ = self.file.read_text().partition("\nquarantine:")
        self.file.write_text(f"{text}\nquarantine: {{{rule}}}\n")

    def put(self, seq: int, published: bool = True) -> None:
        """A batch with a record in quarantine, a day after the one before."""
        self.batch(seq, [quarantined(seq, seq)])
        if published:
            self.lease.add_publication(seq, "sql:newest", 1)
        self.lease.release()
        self.now += DAY

    def clean(self, days: float = 0.0) -> maintenance.Cleaned:
        """Clean as it would be done this many days later."""
        self.now += days * DAY
        return maintenance.clean(self.app, self.stream, self.now, AGE)

    def batches(self) -> list[int]:
        """Return the batches that still have quarantined records."""
        return [
            seq
            for table in quarantine.iter_quarantine(self.app, self.stream)
            for seq in table["seq"].to_pylist()
        ]

    def files(self) -> list[str]:
        lake = self.app.lake(self.stream)
        files = lake.store.listed(lake.table("quarantine"))
        return sorted({file.path.split("/")[-2] for file in files})

    def request(self, *seqs: int, is_listed: bool = False) -> ReplayedRecords:
        rows = pa.Table.from_pylist([quarantined(seq, seq) for seq in seqs], QUARANTINE)
        return ReplayedRecords(lambda: iter([rows]), "ada", "no use", is_listed)

    def replay(self, *seqs: int) -> Any:
        trigger = Trigger("test", 9_000, now_ms=9_000, replay=self.request(*seqs))
        return plan_batch(self.app, self.pipeline, trigger)


@pytest.fixture
def world(tmp_path: Path) -> Expiring:
    """Four batches, of which the last was committed a day ago."""
    made = Expiring(tmp_path)
    for seq in range(1, 5):
        made.put(seq)
    return made


def test_old_quarantine_expires_first_and_is_removed_later(world: Expiring) -> None:
    names = [world.attempt_name(seq) for seq in range(1, 5)]
    assert world.clean(5.9).expired == {}, "ten days are not over"
    assert (world.batches(), world.files()) == ([1, 2, 3, 4], names)
    cleaned = world.clean(1.2)
    assert (cleaned.expired, cleaned.files) == ({"quarantine": 2}, 0)
    assert (world.batches(), world.files()) == ([3, 4], names)
    assert world.clean(0.9).names == ()
    cleaned = world.clean(0.2)
    assert cleaned.names == tuple(names[:2])
    assert cleaned.expired == {"quarantine": 3}, "which is noted when what was before it is removed"
    assert (world.batches(), world.files()) == ([4], names[2:])


def test_without_a_word_of_it_all_is_kept(tmp_path: Path) -> None:
    world = Expiring(tmp_path, "stop: {share: 100%}")
    for seq in (1, 2, 3):
        world.put(seq)
    assert world.clean(10_000).expired == {}
    assert world.batches() == [1, 2, 3]


def test_it_is_the_newest_batch_whose_word_counts(world: Expiring) -> None:
    world.rule("keep: 1000d")
    world.put(5)
    assert world.clean(100).expired == {}
    world.rule("keep: 1d")
    assert world.clean().expired == {}
    world.put(6)
    assert world.clean(2).expired == {"quarantine": 5}


def test_unpublished_letters_do_not_expire(tmp_path: Path) -> None:
    world = Expiring(tmp_path)
    for seq in (1, 2, 3, 4):
        world.put(seq, published=seq < 3)
    assert world.clean(100).expired == {"quarantine": 1}, "what comes after it may not be out"


def test_planned_replay_keeps_records_open(world: Expiring) -> None:
    outcome = world.replay(2, 3)
    assert outcome.plan is not None
    world.app.ledger.acquire(world.stream, "test").release()
    assert expire(world.app, world.stream, "quarantine", world.now + 100 * DAY, AGE) == 1


def test_replay_planned_during_expiry_keeps_its_records(
    world: Expiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note_after_a_plan(app: Any, stream: Any, note: Any) -> Any:
        assert world.replay(2, 3).plan is not None
        app.ledger.acquire(stream, "test").release()
        return note_in_ledger(app, stream, note)

    monkeypatch.setattr(cleaning, "note_in_ledger", note_after_a_plan)
    assert expire(world.app, world.stream, "quarantine", world.now + 100 * DAY, AGE) == 1
    assert world.app.ledger.expired(world.stream, "quarantine").seq == 1


def test_input_of_an_unplanned_replay_is_removed(
    world: Expiring,
) -> None:
    outcome = world.replay(4)
    assert outcome.plan is not None
    (planned,) = (made.manifest.name for made in world.app.ledger.resolutions(world.stream))
    lease = world.app.ledger.acquire(world.stream, "test")
    killed, _ = resolve.written_resolution(world.app, lease, world.request(3), 5)
    lease.release()
    assert killed is not None
    cleaned = world.clean(0.5)
    assert cleaned.names == (killed.manifest.name,)
    assert cleaned.files == 2, "its records and its manifest"
    assert planned in world.files()
    lease = world.app.ledger.acquire(world.stream, "test")
    lease.drop_plan()
    lease.release()
    assert world.clean().names == (planned,)


def test_what_was_decided_of_records_goes_with_them(world: Expiring) -> None:
    discard_records(world.app, world.stream, world.request(1, 2))
    (discarded,) = (made.manifest.name for made in world.app.ledger.resolutions(world.stream))
    world.clean(7.2)
    world.clean(0.5)
    assert world.app.ledger.expired(world.stream, "quarantine").seq == 2
    assert discarded in world.files()
    assert discarded in world.clean(0.6).names
    (decided,) = world.app.ledger.resolutions(world.stream)
    assert (decided.decided_by, decided.reason) == ("ada", "no use"), "the ledger still tells"
    assert quarantine.count_by_status(world.app, world.stream, ALL)[quarantine.Status.OPEN] == len(
        world.batches()
    )


def test_request_for_expired_quarantine_says_so(world: Expiring) -> None:
    world.clean(7.9)
    assert world.app.ledger.expired(world.stream, "quarantine").seq == 2
    run = CliRunner()
    output = run.invoke(
        cli, ["quarantine", "history", "visitors", "events/0/1"], env=world.environment
    ).output
    assert "was never in quarantine of visitors/1 since batch 3; earlier quarantine has expired" in " ".join(
        output.split()
    )
    for command in ("list", "count"):
        output = run.invoke(cli, ["quarantine", command, "visitors"], env=world.environment).output
        assert "The quarantine of batches up to 2 has expired." in output
    with pytest.raises(SettingsInvalid, match="of batches up to 2 it is not kept"):
        discard_records(world.app, world.stream, world.request(1, is_listed=True))


def test_dead_letter_topic_cannot_be_checked_after_expiry(tmp_path: Path) -> None:
    world = Expiring(tmp_path, "keep: 10d, topic: dead")
    for seq in (1, 2, 3):
        world.put(seq)
    lease = world.app.ledger.acquire(world.stream, "test")
    lease.add_publication(2, "dead-letters:dead", 1)
    lease.release()
    *_, sink = world.app.sinks(world.stream, world.pipeline)
    assert sink.published(2) is not None
    world.clean(100)
    assert world.app.ledger.expired(world.stream, "quarantine").seq == 2
    with pytest.raises(Halted, match="--progress dead-letters:dead"):
        sink.published(2)
    assert sink.published(3) is not None
