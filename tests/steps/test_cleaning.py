"""What is given up, and what is removed: only what nobody reads, and only after a safe age."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from tests.steps.committed import Committed
from tidegate import steps
from tidegate.errors import Fenced, StateGivenUp
from tidegate.lake import attempt_name, names_in, snapshot_name
from tidegate.ledger import Attempt, Snapshot, Stream
from tidegate.steps.cleaning import oldest_kept

NOW = 1_000_000.0
DAY = 86_400.0
AT_ONCE = timedelta(0)
STAGE = "second"


class Aged(Committed):
    """A stream whose ledger's clock a test moves, and whose state is written by hand: one key a batch."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "  - {kind: table}")
        self.now = NOW
        self.app.ledger._now = lambda: self.now
        self.path = self.app.lake(self.stream).state(STAGE)

    def write(self, name: str, *seqs: int, path: str | None = None) -> str:
        rows = [{"key": f"k{seq}", "value": {"m": seq}, "updated_seq": seq, "live": True} for seq in seqs]
        table = pa.Table.from_pylist(rows).append_column("attempt", pa.array([name] * len(rows)))
        write_deltalake(path or self.path, table, mode="append", partition_by=["attempt"])
        return name

    def batch(self, seq: int) -> str:
        """A committed batch under a real name."""
        held = self.app.ledger.acquire(self.stream, "test")
        name = attempt_name(seq, held.lease.epoch)
        plan = replace(super().compute(seq, {}), run_id=f"run-{seq}")
        held = self.app.ledger.acquire(self.stream, "test")
        held.commit(plan, Attempt(self.stream, seq, self.write(name, seq), {"": {"read": 1}}))
        held.release()
        return name

    def snapshot(self, seq: int, after: int = 0) -> str:
        name = self.write(snapshot_name(seq), *range(1, seq + 1))
        assert self.app.ledger.add_snapshot(Snapshot(self.stream, seq, name), after)
        return name

    def clean(self, days: float = 0, safe_age: timedelta = timedelta(hours=24), **more: Any) -> steps.Cleaned:
        """As it would be so many days later."""
        self.now += days * DAY
        return steps.clean(self.app, self.stream, self.now, safe_age, **more)

    def keys(self, as_of: int | None = None) -> list[str]:
        return list(steps.read_state(self.app, self.stream, as_of, STAGE)["key"].to_pylist())


@pytest.fixture
def aged(tmp_path: Path) -> Aged:
    return Aged(tmp_path)


def test_state_is_read_through_the_newest_snapshot_before_the_batch(aged: Aged) -> None:
    names = [aged.batch(seq) for seq in (1, 2, 3)]
    snapshot = aged.snapshot(2)
    ledger = aged.app.ledger
    assert ledger.state_attempts(aged.stream) == [snapshot, names[2]]
    assert ledger.state_attempts(aged.stream, 1) == names[:1]
    assert [aged.keys(as_of) for as_of in (1, 2, 3)] == [["k1"], ["k1", "k2"], ["k1", "k2", "k3"]]


def test_what_time_travel_needs_stays_and_the_rest_goes_in_two_steps(aged: Aged) -> None:
    names = [aged.batch(1), aged.batch(2)]
    first = aged.snapshot(2)
    names.append(aged.batch(3))
    second = aged.snapshot(3, after=2)
    assert aged.clean(days=29).given_up is None
    assert aged.clean(days=2).given_up == 3
    assert names_in(aged.path) == sorted([*names, first, second])
    with pytest.raises(StateGivenUp, match="oldest that is kept is that after batch 3"):
        aged.keys(as_of=2)
    assert aged.clean(days=0.9).names == ()
    cleaned = aged.clean(days=0.2)
    assert cleaned.names == tuple(sorted([*names, first]))
    assert names_in(aged.path) == [second]
    assert aged.keys() == ["k1", "k2", "k3"]


def test_nothing_is_given_up_without_a_snapshot_or_before_time_travel_reaches_one(aged: Aged) -> None:
    aged.batch(1)
    assert aged.clean(days=100).given_up is None
    aged.batch(2)
    aged.snapshot(2)
    assert oldest_kept(aged.app, aged.stream, aged.now) == 1
    assert aged.clean().given_up is None
    assert aged.keys(as_of=1) == ["k1"]


def test_what_an_open_plan_of_another_pipeline_reads_is_kept(aged: Aged) -> None:
    aged.batch(1)
    plan = aged.app.ledger.plan(aged.stream, 1)
    assert plan is not None
    pin = {"pipeline": "visitors", "generation": 1, "seq": 1, "stage": STAGE}
    other = aged.app.ledger.acquire(Stream("other", 1), "test")
    open_plan = replace(plan, stream=other.stream, lookups={"visitors/second": pin})
    other.add_plan(open_plan)
    aged.batch(2)
    aged.snapshot(2)
    assert aged.clean(days=100).given_up is None
    other.commit(open_plan, Attempt(other.stream, 1, "b1", {}))
    assert aged.clean().given_up == 2


def test_a_stream_at_work_is_left_alone_this_time(aged: Aged) -> None:
    aged.batch(1)
    aged.snapshot(1)
    aged.now += 100 * DAY
    held = aged.app.ledger.acquire(aged.stream, "a run")
    cleaned = aged.clean()
    assert (cleaned.given_up, cleaned.note) == (None, "a run is at work: old state is given up the next time")
    held.release()
    assert aged.clean().given_up == 1
    assert aged.app.ledger.lease_holder(aged.stream) is None


def test_dead_attempts_go_and_living_ones_never(aged: Aged) -> None:
    committed = aged.batch(1)
    held = aged.app.ledger.acquire(aged.stream, "zombie")
    dead = [
        aged.write(attempt_name(1, held.lease.epoch), 1),
        aged.write(attempt_name(2, held.lease.epoch), 2),
    ]
    computed = aged.write(attempt_name(2, held.lease.epoch), 2)
    held.add_attempt(Attempt(aged.stream, 2, computed, {}))
    held.release()
    now = aged.app.ledger.acquire(aged.stream, "a run")
    at_work = aged.write(attempt_name(2, now.lease.epoch), 2)
    unknown = aged.write("written by hand", 7)
    cleaned = aged.clean()
    assert cleaned.names == tuple(sorted(dead))
    assert (cleaned.removed.rows, cleaned.removed.files) == (2, 2)
    assert names_in(aged.path) == sorted([committed, computed, at_work, unknown])


def test_dead_attempts_leave_outbox_and_quarantine_too_and_committed_ones_never_do(aged: Aged) -> None:
    committed, dead = aged.batch(1), attempt_name(1, 1)
    lake = aged.app.lake(aged.stream)
    for path in (lake.outbox(STAGE), lake.quarantine):
        aged.write(committed, 1, path=path)
        aged.write(dead, 1, path=path)
    aged.snapshot(1)
    aged.clean(days=40)
    aged.clean(days=40)
    assert names_in(lake.outbox(STAGE)) == names_in(lake.quarantine) == [committed]
    assert committed not in names_in(aged.path)


def test_a_snapshot_that_was_never_noted_goes_when_it_no_longer_can_be(aged: Aged) -> None:
    aged.batch(1)
    waiting = aged.write(snapshot_name(1), 1)
    assert aged.clean(days=3).names == ()
    kept = aged.snapshot(1)
    assert not aged.app.ledger.add_snapshot(Snapshot(aged.stream, 1, waiting), 0)
    assert aged.clean().names == (waiting,)
    assert kept in names_in(aged.path)


def test_files_are_deleted_a_safe_age_after_nobody_reads_them(aged: Aged) -> None:
    committed = aged.batch(1)
    aged.write(attempt_name(1, 1), 1)
    half_written = Path(aged.path) / f"attempt={attempt_name(2, 1)}" / "part-0.parquet"
    half_written.parent.mkdir()
    half_written.write_bytes(b"half a file")
    files = set(Path(aged.path).rglob("*.parquet"))
    assert len(files) == 3
    assert aged.clean().files == 0
    assert set(Path(aged.path).rglob("*.parquet")) == files
    assert aged.clean(safe_age=AT_ONCE, dry_run=True).files == 2
    assert aged.clean(safe_age=AT_ONCE).files == 2
    (left,) = Path(aged.path).rglob("*.parquet")
    assert left.parent.name == f"attempt={committed}"
    assert aged.keys() == ["k1"]


def test_a_dry_run_removes_nothing(aged: Aged) -> None:
    aged.batch(1)
    dead = aged.write(attempt_name(1, 1), 1)
    aged.snapshot(1)
    cleaned = aged.clean(days=40, dry_run=True)
    assert (cleaned.given_up, cleaned.names) == (1, (dead,))
    assert dead in names_in(aged.path)
    assert aged.app.ledger.snapshots(aged.stream)[0].given_up_at is None


def test_a_computation_that_began_on_the_older_list_is_fenced(aged: Aged) -> None:
    aged.batch(1)
    aged.snapshot(1)
    slow = aged.app.ledger.acquire(aged.stream, "slow")
    slow.release()  # its lease has run out
    assert aged.clean(days=40).given_up == 1
    with pytest.raises(Fenced):
        slow.add_attempt(Attempt(aged.stream, 2, "late", {}))


def test_readers_and_writers_go_on_while_names_are_removed(aged: Aged) -> None:
    """The removal finds its way between appends, and each read is right."""
    for seq in range(1, 6):
        aged.batch(seq)
    aged.snapshot(5)
    aged.clean(days=40)
    aged.now += 2 * DAY
    stop, written, wrong = threading.Event(), [], []

    def append() -> None:
        while not stop.is_set():
            with suppress(
                CommitFailedError
            ):  # unlike Spark's, deltalake's appends can conflict with a removal
                written.append(aged.write(attempt_name(6, 999), 6))

    def read() -> None:
        while not stop.is_set():
            if aged.keys() != [f"k{seq}" for seq in range(1, 6)]:
                wrong.append(aged.keys())

    others = [threading.Thread(target=_told(work, wrong)) for work in (append, read)]
    for each in others:
        each.start()
    while len(written) < 2:
        time.sleep(0.01)
    cleaned = aged.clean()
    stop.set()
    for each in others:
        each.join()
    assert wrong == []
    assert len(cleaned.names) == 5
    assert set(written) < set(names_in(aged.path))
    assert len(names_in(aged.path)) == len(written) + 1


def _told(work: Callable[[], None], wrong: list[Any]) -> Callable[[], None]:
    def run() -> None:
        try:
            work()
        except Exception as error:
            wrong.append(error)

    return run


def test_after_batch_0_there_is_no_state_whatever_is_given_up(aged: Aged) -> None:
    aged.batch(1)
    aged.snapshot(1)
    aged.clean(days=40)
    assert aged.app.ledger.state_attempts(aged.stream, 0) == []
