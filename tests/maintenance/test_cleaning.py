"""What is given up, and what is removed: only what nobody reads, and only after a safe age."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.batch.aged import AT_ONCE, DAY, STAGE, Aged
from tests.manifests import manifest_ref, names
from tidegate.cli import cli
from tidegate.errors import Fenced, StateGivenUp
from tidegate.ledger import Attempt, Ledger, Snapshot, Stream
from tidegate.maintenance.cleaning import oldest_needed
from tidegate.storage import attempt_name, snapshot_name


@pytest.fixture
def aged(tmp_path: Path) -> Aged:
    return Aged(tmp_path)


def test_state_reads_through_the_newest_snapshot(aged: Aged) -> None:
    attempts = [aged.batch(seq) for seq in (1, 2, 3)]
    snapshot = aged.snapshot(2)
    ledger = aged.app.ledger
    assert names(ledger.state_manifests(aged.stream)) == [snapshot, attempts[2]]
    assert names(ledger.state_manifests(aged.stream, 1)) == attempts[:1]
    assert [aged.keys(as_of) for as_of in (1, 2, 3)] == [["k1"], ["k1", "k2"], ["k1", "k2", "k3"]]


def test_time_travel_keeps_its_files_in_two_steps(aged: Aged) -> None:
    attempts = [aged.batch(1), aged.batch(2)]
    first = aged.snapshot(2)
    attempts.append(aged.batch(3))
    second = aged.snapshot(3, after=2)
    assert aged.clean(days=29).given_up is None
    assert aged.clean(days=2).given_up == 3
    assert aged.names() == sorted([*attempts, first, second])
    with pytest.raises(StateGivenUp, match="oldest state that is kept is that after batch 3"):
        aged.keys(as_of=2)
    assert aged.clean(days=0.9).names == ()
    cleaned = aged.clean(days=0.2)
    assert cleaned.names == tuple(sorted([*attempts, first]))
    assert (cleaned.files, cleaned.batches) == (5, 2)  # and the first snapshot's manifest
    assert aged.names() == [second]
    assert aged.keys() == ["k1", "k2", "k3"]


def test_a_changelog_that_a_snapshot_names_again_stays(aged: Aged) -> None:
    attempts = [aged.batch(seq) for seq in (1, 2)]
    first = aged.app.manifest(aged.stream, aged.app.ledger.committed(aged.stream)[0][1])
    made = aged.write(snapshot_name(2), 2)
    manifest = replace(made, files=(*first.files, *made.files))
    ref = aged.app.write_manifest(aged.stream, manifest)
    assert aged.app.ledger.add_snapshot(Snapshot(aged.stream, 2, ref), 0)
    aged.clean(days=40)
    assert aged.clean(days=2).names == (attempts[1],)
    assert aged.names() == sorted([attempts[0], made.name])
    assert aged.keys() == ["k1", "k2"]


def test_nothing_expires_without_a_usable_snapshot(aged: Aged) -> None:
    aged.batch(1)
    assert aged.clean(days=100).given_up is None
    aged.batch(2)
    aged.snapshot(2)
    assert oldest_needed(aged.app, aged.stream, aged.now) == 1
    assert aged.clean().given_up is None
    assert aged.keys(as_of=1) == ["k1"]


def test_open_plan_of_another_pipeline_keeps_files(aged: Aged) -> None:
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
    other.commit(open_plan, Attempt(other.stream, 1, manifest_ref("b1"), {}))
    assert aged.clean().given_up == 2


def test_busy_stream_is_skipped(aged: Aged) -> None:
    aged.batch(1)
    aged.snapshot(1)
    aged.now += 100 * DAY
    lease = aged.app.ledger.acquire(aged.stream, "a run")
    cleaned = aged.clean()
    assert (cleaned.given_up, cleaned.note) == (None, "a run is at work: old state is given up the next time")
    lease.release()
    assert aged.clean().given_up == 1
    assert aged.app.ledger.lease_holder(aged.stream) is None


def test_dead_attempts_go_and_living_ones_never(aged: Aged) -> None:
    committed = aged.batch(1)
    lease = aged.app.ledger.acquire(aged.stream, "zombie")
    dead = [aged.write(attempt_name(seq, lease.lease.epoch), seq).name for seq in (1, 2)]
    computed = aged.write(attempt_name(2, lease.lease.epoch), 2)
    ref = aged.app.write_manifest(aged.stream, computed)
    lease.add_attempt(Attempt(aged.stream, 2, ref, {}))
    lease.release()
    now = aged.app.ledger.acquire(aged.stream, "a run")
    at_work = aged.write(attempt_name(2, now.lease.epoch), 2).name
    unknown = aged.write("written by hand", 7).name
    cleaned = aged.clean()
    assert cleaned.names == tuple(sorted(dead))
    assert cleaned.files == 2
    assert cleaned.bytes > 0
    assert aged.names() == sorted([committed, computed.name, at_work, unknown])


def test_leftovers_of_a_lost_task_are_removed(aged: Aged) -> None:
    committed = aged.batch(1)
    path = f"{aged.lake.files('state', STAGE, committed)}/00001-of-a-lost-try.parquet"
    aged.lake.store.write(path, b"half a file")
    cleaned = aged.clean()
    assert (cleaned.names, cleaned.files, cleaned.bytes) == ((committed,), 1, len(b"half a file"))
    assert aged.keys() == ["k1"]


def test_dead_attempts_are_removed_with_everything(
    aged: Aged,
) -> None:
    committed, dead = aged.batch(1, emitted=[("k1", 1)]), attempt_name(1, 1)
    aged.app.write_manifest(aged.stream, aged.write(dead, 1, emitted=[("k1", 1)]))
    aged.lake.store.write(f"{aged.lake.files('quarantine', '', dead)}/0.parquet", b"x")
    snapshot = aged.snapshot(1)
    aged.clean(days=40)
    aged.clean(days=40)
    assert aged.names("outbox") == [committed]
    assert aged.names("quarantine", stage="") == []
    assert aged.names("manifests", stage="") == sorted([committed, snapshot])
    assert aged.names() == [snapshot]


def test_unnoted_snapshot_is_removed_when_impossible(aged: Aged) -> None:
    aged.batch(1)
    waiting = aged.write(snapshot_name(1), 1)
    assert aged.clean(days=3).names == ()
    newest = aged.snapshot(1)
    late = Snapshot(aged.stream, 1, aged.app.write_manifest(aged.stream, waiting))
    assert not aged.app.ledger.add_snapshot(late, 0)
    assert aged.clean().names == (waiting.name,)
    assert aged.names() == sorted([aged.app.ledger.committed(aged.stream)[0][1].name, newest])


def test_files_are_removed_after_a_safe_age(aged: Aged) -> None:
    aged.batch(1)
    (file,) = aged.write(attempt_name(1, 1), 1).files
    path = Path(aged.lake.root) / file.path
    os.utime(path, (aged.now, aged.now))
    assert aged.clean(days=0.9).files == 0
    assert path.exists()
    assert aged.clean(safe_age=AT_ONCE, dry_run=True).files == 1
    assert aged.clean(days=0.2).files == 1
    assert not path.exists()
    assert aged.keys() == ["k1"]


def test_dry_run_removes_nothing_and_creates_no_tables(aged: Aged) -> None:
    aged.batch(1)
    dead = aged.write(attempt_name(1, 1), 1).name
    aged.snapshot(1)
    before = aged.lake.store.listed("")
    cleaned = aged.clean(days=40, dry_run=True)
    assert (cleaned.given_up, cleaned.names) == (1, (dead,))
    assert aged.lake.store.listed("") == before
    assert aged.app.ledger.snapshots(aged.stream)[0].given_up_at is None


def test_computation_on_an_older_list_is_fenced(aged: Aged) -> None:
    aged.batch(1)
    aged.snapshot(1)
    slow = aged.app.ledger.acquire(aged.stream, "slow")
    slow.release()  # its lease has run out
    assert aged.clean(days=40).given_up == 1
    with pytest.raises(Fenced):
        slow.add_attempt(Attempt(aged.stream, 2, manifest_ref("late"), {}))


def test_readers_and_writers_continue_during_removal(aged: Aged) -> None:
    """Each read is right, and what is written stays."""
    for seq in range(1, 6):
        aged.batch(seq)
    snapshot = aged.snapshot(5)
    aged.clean(days=40)
    aged.now += 2 * DAY
    ended, written, wrong = threading.Event(), [], []
    began = threading.Barrier(3)

    def write() -> None:
        written.append(aged.write(attempt_name(6, 999), 6).name)

    def read() -> None:
        if aged.keys() != [f"k{seq}" for seq in range(1, 6)]:
            wrong.append(aged.keys())

    def go_on(work: Callable[[], None]) -> None:
        try:
            work()
            began.wait()
            while not ended.is_set():
                work()
        except Exception as error:
            wrong.append(error)

    threads: list[Any] = [threading.Thread(target=go_on, args=(work,)) for work in (write, read)]
    for other in threads:
        other.start()
    began.wait()
    cleaned = aged.clean()
    ended.set()
    for other in threads:
        other.join()
    assert wrong == []
    assert len(cleaned.names) == 5
    assert aged.names() == sorted([*written, snapshot])


def test_batch_0_never_has_state(aged: Aged) -> None:
    aged.batch(1)
    aged.snapshot(1)
    aged.clean(days=40)
    assert aged.app.ledger.state_manifests(aged.stream, 0) == []


def test_machine_clock_ahead_expires_nothing_early(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged = Aged(tmp_path, ledger=postgres_url)
    aged.now = Ledger.open(postgres_url).now()
    aged.batch(1)
    aged.snapshot(1)
    aged.batch(2)
    with monkeypatch.context() as patch:
        ahead = time.time() + 400 * DAY
        patch.setattr(time, "time", lambda: ahead)
        done = CliRunner().invoke(cli, ["compact", "visitors"], env=aged.environment)
    assert done.exit_code == 0, done.output
    assert all(snapshot.given_up_at is None for snapshot in aged.app.ledger.snapshots(aged.stream))
    assert aged.keys(as_of=1) == ["k1"]
    assert aged.clean(days=31).given_up is not None  # by the ledger's clock it is due then
