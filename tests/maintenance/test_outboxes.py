"""How long emissions are kept: never shorter than a file says, and never what somebody still needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.batch.aged import STAGE, Aged
from tests.storage.tables_for_tests import shared_table as delta_table
from tests.storage.tables_for_tests import values_of
from tidegate import inspect
from tidegate.app.outboxes import StoredOutboxes
from tidegate.app.tables import remove_tables_ahead, shared_table
from tidegate.cli import cli
from tidegate.errors import EmissionsExpired, Halted
from tidegate.generations.outputs import consumed, own_feeds
from tidegate.inspect.emissions import newest_emissions
from tidegate.inspect.examine import damaged_files
from tidegate.inspect.key_history import key_history
from tidegate.ledger import Promotion, Stream
from tidegate.ledger.history import remove_stream

SINK = "sql:newest"


class Expiring(Aged):
    """Six batches, a day after the other, whose emissions are kept for forty days. Time travel goes back for
    thirty.
    """

    def __init__(self, folder: Path, rule: str = "outboxes: {keep: 40d}") -> None:
        super().__init__(folder, f"  - {{kind: {SINK.replace(':', ', table: ')}, mode: upsert}}")
        self.rule(rule)
        for seq in range(1, 7):
            self.put(seq)

    def rule(self, rule: str) -> None:
        text, *_ = self.file.read_text().partition("\noutboxes:")
        self.file.write_text(f"{text}\n{rule}\n")

    def put(self, seq: int, published: bool = True) -> None:
        """A batch that changes and emits the keys `k<seq>` and `a`, and a snapshot after it."""
        self.batch(seq, emitted=[(f"k{seq}", seq), ("a", seq)], keys=["a"])
        if published:
            lease = self.app.ledger.acquire(self.stream, "test")
            lease.add_publication(seq, SINK, 2)
            lease.release()
        self.snapshot(seq, after=seq - 1)
        self.now += 86_400

    def expire(self) -> None:
        """Let the emissions of the first two batches expire."""
        self.clean(34.5)
        assert self.clean(1.2).expired == {"outbox": 2}

    @property
    def expired(self) -> int:
        return self.app.ledger.expired(self.stream, "outbox").seq

    def emitted(self) -> list[int]:
        """Return the batches whose emissions are shown."""
        rows = inspect.read_emissions(self.app, self.stream, stage=STAGE)
        return sorted(set(rows["seq"].to_pylist())) if rows.num_rows else []

    def in_table(self) -> list[int]:
        """Return the batches in the table for other engines, as a reader that is not tidegate sees it."""
        folder = shared_table(self.app, self.stream, "outbox", STAGE).folder
        return sorted({seq for (seq,) in values_of(delta_table(self.lake.store, folder), "seq")})


@pytest.fixture
def world(tmp_path: Path) -> Expiring:
    return Expiring(tmp_path)


def test_old_emissions_expire_first_and_are_removed_later(world: Expiring) -> None:
    names = world.names("outbox")
    assert world.clean(33.5).expired == {}, "forty days are not over"
    assert world.clean(2).expired == {"outbox": 2}
    assert world.emitted() == [3, 4, 5, 6]
    assert world.names("outbox") == names
    assert world.clean(0.9).expired == {}
    assert world.in_table() == [3, 4, 5, 6]
    assert world.names("outbox") == names
    assert world.clean(1.2).expired == {"outbox": 4}, "which is noted when what was before it is removed"
    assert world.names("outbox") == names[2:]
    world.clean(2)
    world.clean(2)
    assert world.in_table() == world.emitted() == [6]
    assert world.names("outbox") == names[5:]
    assert damaged_files(world.app, world.stream)[1] == []


def test_emissions_without_a_rule_stay_for_good(tmp_path: Path) -> None:
    world = Expiring(tmp_path, "")
    for _ in range(3):
        assert world.clean(1000).expired == {}
    assert world.emitted() == world.in_table() == [1, 2, 3, 4, 5, 6]


def test_emissions_stay_while_state_is_readable(tmp_path: Path) -> None:
    world = Expiring(tmp_path, "outboxes: {keep: 1d}")
    assert world.clean(20).expired == {}
    assert world.clean(15).expired == {}, "state is given up, but readers may still be at work"
    assert world.clean(1.1).expired == {"outbox": 5}
    world.clean(2)
    assert world.emitted() == [6], "the newest batch is that of the oldest state"


def test_withheld_emissions_never_expire(world: Expiring) -> None:
    other = world.app.ledger.acquire(Stream("visitors", 2), "test")
    lease = world.app.ledger.acquire(world.stream, "test")
    lease.promote(Promotion("visitors", 1, 1, 1, 0, is_net=False, run_id="first"), other.lease)
    other.promote(Promotion("visitors", 2, 2, 1, 6, is_net=False, run_id="second"), lease.lease)
    lease.release()
    for seq in (7, 8):
        world.put(seq, published=False)
    for _ in range(3):
        world.clean(100)
    assert world.emitted() == [7, 8], "a promotion would send them"


def test_reader_of_expired_emissions_gets_an_error(world: Expiring) -> None:
    world.expire()
    with pytest.raises(EmissionsExpired, match=r"batch 1 of visitors/1 .* batch 3 and later"):
        inspect.read_emissions(world.app, world.stream, 1, STAGE)
    with pytest.raises(EmissionsExpired, match="so what consumers have of visitors/1 cannot be told"):
        consumed(world.app, own_feeds(world.app, world.stream, SINK, 6))
    manifest = world.app.manifest(world.stream, world.app.ledger.committed(world.stream)[0][1])
    with pytest.raises(EmissionsExpired):
        StoredOutboxes(world.app, world.stream).files(manifest, STAGE)


def test_page_and_command_say_what_has_expired(world: Expiring) -> None:
    world.expire()
    page = newest_emissions(world.app, world.stream, STAGE)
    assert (page.before, page.expired) == (None, 2)
    history = key_history(world.app, world.stream, "a")
    assert history is not None
    assert history.expired == 2
    assert [batch.seq for batch in history.batches if batch.stages[1].emissions] == [6, 5, 4, 3]
    run = CliRunner().invoke(cli, ["emissions", "visitors"], env=world.environment)
    assert "The emissions of batches up to 2 have expired." in run.output
    run = CliRunner().invoke(cli, ["emissions", "visitors", "--batch", "2"], env=world.environment)
    assert isinstance(run.exception, EmissionsExpired)


def test_sink_cannot_be_compared_with_expired_emissions(world: Expiring) -> None:
    for seq in range(7, 10):
        world.batch(seq)
    (sink,) = world.app.sinks(world.stream, world.pipeline)
    assert sink.published(6) is not None
    lease = world.app.ledger.acquire(world.stream, "test")
    lease.add_publication(9, SINK, 0)
    world.now += 60 * 86_400
    lease.expire("outbox", 6)
    lease.release()
    with pytest.raises(Halted, match=f"--progress {SINK}"):
        sink.published(6)


def test_table_that_is_made_anew_lacks_expired_emissions(world: Expiring) -> None:
    world.expire()
    shared_table(world.app, world.stream, "outbox", STAGE).remove()
    remove_tables_ahead(world.app, world.stream, [world.pipeline])
    world.clean(0)
    assert world.in_table() == world.emitted()


def test_dry_run_expires_nothing(world: Expiring) -> None:
    world.clean(34.5)
    assert world.clean(1.2, dry_run=True).expired == {"outbox": 2}
    assert world.expired == 0


def test_dropped_generation_begins_without_a_limit(world: Expiring) -> None:
    world.expire()
    lease = world.app.ledger.acquire(world.stream, "test")
    with world.app.ledger._engine.begin() as connection:
        remove_stream(connection, lease.lease, world.now)
    assert world.expired == 0


def test_programs_get_only_rows_after_expiry(world: Expiring) -> None:
    world.expire()
    arguments = ["emissions", "visitors", "--stage", STAGE, "--json"]
    run = CliRunner().invoke(cli, arguments, env=world.environment)
    assert {row["seq"] for row in json.loads(run.stdout)} == {3, 4, 5, 6}
