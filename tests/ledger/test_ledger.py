"""The ledger: leases and epochs fence, plans are immutable, the head moves by one and only once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, make_url, text

from tests.manifests import manifest_ref, names
from tidegate.errors import (
    Fenced,
    Halted,
    LakeUnavailable,
    LeaseHeld,
    LedgerUnavailable,
    QualityFailed,
    SettingsInvalid,
    StateGivenUp,
)
from tidegate.ledger import (
    LEASE_SECONDS,
    Attempt,
    Failure,
    Head,
    LeasedLedger,
    Ledger,
    OffsetRange,
    Plan,
    PlannedSpec,
    Run,
    Snapshot,
    Stream,
    Times,
    database,
)
from tidegate.ledger.database import open_database

STREAM = Stream("p", 1)


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(url: str, clock: Clock) -> Ledger:
    return Ledger(open_database(url), clock)


def plan(seq: int = 1, run_id: str = "r1", end: int = 10) -> Plan:
    ranges = (OffsetRange("t", 0, 0, end), OffsetRange("t", 1, 0, 0))
    return Plan(STREAM, seq, run_id, 5, 6, ranges, {"t": "id-1"}, "pipeline: p", "{}")


def attempt(seq: int = 1, name: str = "a1", times: Times | None = None) -> Attempt:
    return Attempt(
        STREAM, seq, manifest_ref(name), {"": {"read": 10}, "s": {"emitted": 2}}, times=times or {}
    )


def test_a_new_stream_has_an_empty_head(ledger: Ledger) -> None:
    assert ledger.head(STREAM).seq == 0
    assert ledger.streams() == []


def test_another_run_cannot_take_a_held_lease(ledger: Ledger) -> None:
    ledger.acquire(STREAM, "r1")
    with pytest.raises(LeaseHeld, match="r1"):
        ledger.acquire(STREAM, "r2")


def test_same_run_takes_its_lease_over(ledger: Ledger) -> None:
    first, second = ledger.acquire(STREAM, "r1"), ledger.acquire(STREAM, "r1")
    assert second.lease.epoch == first.lease.epoch + 1


def test_lease_without_a_heartbeat_expires(ledger: Ledger, clock: Clock) -> None:
    ledger.acquire(STREAM, "r1")
    clock.now += LEASE_SECONDS
    assert ledger.acquire(STREAM, "r2").lease.holder == "r2"


def test_a_renewed_lease_does_not_run_out(ledger: Ledger, clock: Clock) -> None:
    lease = ledger.acquire(STREAM, "r1")
    clock.now += LEASE_SECONDS - 1
    lease.renew()
    clock.now += LEASE_SECONDS - 1
    with pytest.raises(LeaseHeld):
        ledger.acquire(STREAM, "r2")


def test_lease_of_a_clock_ahead_blocks_nobody(ledger: Ledger, clock: Clock) -> None:
    clock.now += 5 * 3600
    stale = ledger.acquire(STREAM, "r1")
    clock.now -= 5 * 3600
    assert ledger.lease_holder(STREAM) is None
    assert ledger.acquire(STREAM, "r2").lease.epoch == stale.lease.epoch + 1


def test_a_released_lease_is_free(ledger: Ledger) -> None:
    ledger.acquire(STREAM, "r1").release()
    assert ledger.lease_holder(STREAM) is None
    ledger.acquire(STREAM, "r2")


def test_generations_have_leases_and_heads_of_their_own(ledger: Ledger) -> None:
    ledger.acquire(STREAM, "r1")
    ledger.acquire(Stream("p", 2), "r2")


STALE_WRITES: dict[str, Callable[[LeasedLedger], object]] = {
    "renew": lambda lease: lease.renew(),
    "add_plan": lambda lease: lease.add_plan(plan()),
    "add_run": lambda lease: lease.add_run(Run("r9", None, "note")),
    "add_attempt": lambda lease: lease.add_attempt(attempt()),
    "replace_files": lambda lease: lease.replace_files(attempt()),
    "set_validated": lambda lease: lease.set_validated(attempt(), True),
    "commit": lambda lease: lease.commit(plan(), attempt()),
    "add_publication": lambda lease: lease.add_publication(1, "kafka:t", 1),
    "set_sink_identity": lambda lease: lease.set_sink_identity("kafka:t", "id"),
    "set_metrics": lambda lease: lease.set_metrics(1, "", {"x": 1.0}),
    "note_failure": lambda lease: lease.note_failure(1, "compute", QualityFailed("what")),
    "remove_failure": lambda lease: lease.remove_failure("plan"),
    "drop_plan": lambda lease: lease.drop_plan(),
    "give_up": lambda lease: lease.give_up(1),
    "accept_gap": lambda lease: lease.accept_gap([OffsetRange("t", 0, 0, 5)]),
}


@pytest.mark.parametrize("write", STALE_WRITES.values(), ids=STALE_WRITES.keys())
def test_a_stale_epoch_can_write_nothing(ledger: Ledger, write: Callable[[LeasedLedger], object]) -> None:
    stale = ledger.acquire(STREAM, "r1")
    ledger.acquire(STREAM, "r1")
    with pytest.raises(Fenced):
        write(stale)


def test_stale_release_keeps_the_new_lease(ledger: Ledger) -> None:
    stale = ledger.acquire(STREAM, "r1")
    ledger.acquire(STREAM, "r1")
    stale.release()
    assert ledger.lease_holder(STREAM) == "r1"


def test_a_plan_comes_back_word_for_word(ledger: Ledger) -> None:
    ledger.acquire(STREAM, "r1").add_plan(plan())
    assert ledger.open_plan(STREAM) == plan()
    assert ledger.run(STREAM, "r1") == Run("r1", 1)


def test_draining_plan_with_lookups_round_trips(ledger: Ledger) -> None:
    pinned = {"/t": {"version": 3}, "p/s": {"pipeline": "p", "generation": 1, "seq": 2, "attempts": ["a"]}}
    draining = replace(plan(), drain=True, lookups=pinned)
    ledger.acquire(STREAM, "r1").add_plan(draining)
    assert ledger.open_plan(STREAM) == draining


def test_a_plan_cannot_be_written_twice(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    lease.add_plan(plan())
    with pytest.raises(Fenced):
        lease.add_plan(plan(run_id="r1b", end=20))
    assert ledger.open_plan(STREAM) == plan()


def test_commit_moves_head_offsets_and_topic_ids(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    lease.add_plan(plan())
    lease.add_attempt(attempt())
    lease.commit(plan(), attempt())
    head = ledger.head(STREAM)
    assert (head.seq, head.offsets, head.topic_ids) == (1, {("t", 0): 10, ("t", 1): 0}, {"t": "id-1"})
    assert ledger.committed(STREAM) == [(1, manifest_ref("a1"))]
    assert ledger.open_plan(STREAM) is None


def test_head_has_the_epoch_of_last_records(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    read, idle = OffsetRange("t", 0, 0, 10, 4), OffsetRange("t", 1, 0, 7, 2)
    lease.commit(replace(plan(), ranges=(read, idle)), attempt())
    assert ledger.head(STREAM).epochs == {("t", 0): 4, ("t", 1): 2}
    read, idle = OffsetRange("t", 0, 10, 12), OffsetRange("t", 1, 7, 7)
    lease.commit(replace(plan(seq=2), ranges=(read, idle)), attempt(seq=2))
    assert ledger.head(STREAM).epochs == {("t", 1): 2}, "of what was read, nobody could tell"
    lease.accept_gap([OffsetRange("t", 1, 7, 9)])
    assert ledger.head(STREAM).epochs == {}, "it was that of a record before the gap"


def test_a_batch_is_committed_once(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    lease.commit(plan(), attempt())
    with pytest.raises(Fenced):
        lease.commit(plan(), attempt(name="a2"))
    assert ledger.committed(STREAM) == [(1, manifest_ref("a1"))]


def test_a_batch_cannot_be_committed_before_its_predecessor(ledger: Ledger) -> None:
    with pytest.raises(Fenced):
        ledger.acquire(STREAM, "r1").commit(plan(seq=2), attempt(seq=2))


def test_committed_attempt_counts_despite_a_newer_one(ledger: Ledger) -> None:
    first = ledger.acquire(STREAM, "r1")
    first.add_attempt(attempt(name="a1"))
    second = ledger.acquire(STREAM, "r1")
    second.add_attempt(attempt(name="a2"))
    assert ledger.attempt(STREAM, 1) == attempt(name="a2")
    second.commit(plan(), attempt(name="a1"))
    assert ledger.attempt(STREAM, 1) == attempt(name="a1")


def test_counts_are_stored_per_stage(ledger: Ledger) -> None:
    ledger.acquire(STREAM, "r1").add_attempt(attempt())
    stored = ledger.attempt(STREAM, 1)
    assert stored is not None
    assert [stored.stage_counts(stage) for stage in ("", "s", "t")] == [{"read": 10}, {"emitted": 2}, {}]


def test_times_are_those_of_the_committed_head(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    assert ledger.times(STREAM) == {}
    first: Times = {"s": {("t", 0): 7, ("t", 11): -1}, "later": {}}
    lease.add_attempt(attempt(times=first))
    assert ledger.times(STREAM) == {}
    lease.commit(plan(), attempt())
    lease.add_attempt(attempt(seq=2, name="a2", times={"s": {("t", 0): 9}}))
    assert ledger.times(STREAM) == first


def test_head_clocks_are_the_largest_committed(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    assert ledger.head(STREAM).clocks == {}
    for seq, clock_ms, is_cut in ((1, 50, False), (2, 30, False), (3, 70, True), (4, 99, False)):
        ranges = (OffsetRange("t", 0, 0, 9, is_cut=is_cut), OffsetRange("t", 1, 0, 9))
        clocks = ledger.head(STREAM).clocks_of([("t", 0), ("t", 1)])
        planned = replace(plan(seq, f"r{seq}"), clock_ms=clock_ms, ranges=ranges, clocks=clocks)
        lease.add_plan(planned)
        assert ledger.plan(STREAM, seq) == planned
        if seq < 4:
            lease.commit(planned, attempt(seq, f"a{seq}"))
    assert ledger.head(STREAM).clocks == {("t", 0): 50, ("t", 1): 70}
    assert ledger.head(Stream("p", 2)).clocks == {}


def test_run_without_a_batch_advances_the_clocks(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    lease.add_run(Run("r1", None, "nothing to read"), {("t", 0): 50, ("t", 1): -1})
    assert ledger.head(STREAM) == Head(STREAM, clocks={("t", 0): 50, ("t", 1): -1})
    lease.add_run(Run("r2", 1, "adopted"))
    assert ledger.head(STREAM).clocks == {("t", 0): 50, ("t", 1): -1}


@pytest.mark.parametrize(
    ("clocks", "of_a_new_one"), [({}, -1), ({("t", 0): 7, ("t", 1): 7}, 7), ({("t", 0): -1, ("t", 1): 7}, -1)]
)
def test_new_partition_gets_the_clock_fully_read(
    clocks: dict[tuple[str, int], int], of_a_new_one: int
) -> None:
    assert Head(STREAM, clocks=clocks).clocks_of([("t", 2)]) == {("t", 2): of_a_new_one}


def test_publications_are_noted_per_sink(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    lease.add_publication(1, "kafka:t", 7)
    lease.add_publication(1, "kafka:t", 7)
    lease.add_publication(2, "kafka:t", 0)
    assert ledger.publications(STREAM, 1) == {"kafka:t": 7}
    assert ledger.last_published(STREAM, "kafka:t") == 1
    lease.add_publication(3, "kafka:t", 9)
    assert ledger.last_published(STREAM, "kafka:t") == 3
    assert ledger.last_published(STREAM, "kafka:u") == 0


def test_resent_older_batch_is_not_the_last(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    lease.add_publication(4, "kafka:t", 8)
    lease.add_publication(3, "kafka:t", 9)
    assert ledger.last_published(STREAM, "kafka:t") == 4


def committed(ledger: Ledger, *seqs: int) -> LeasedLedger:
    """A stream with these batches."""
    lease = ledger.acquire(STREAM, "r1")
    for seq in seqs:
        lease.commit(plan(seq), attempt(seq, f"a{seq}"))
    return lease


def test_state_is_a_snapshot_plus_later_attempts(ledger: Ledger) -> None:
    committed(ledger, 1, 2, 3)
    assert names(ledger.state_manifests(STREAM)) == ["a1", "a2", "a3"]
    assert ledger.add_snapshot(Snapshot(STREAM, 2, manifest_ref("s2")), after=0)
    of_batches = [names(ledger.state_manifests(STREAM, seq)) for seq in (0, 1, 2, 3)]
    assert of_batches == [[], ["a1"], ["s2"], ["s2", "a3"]]
    assert ledger.committed(STREAM, after=1) == [(2, manifest_ref("a2")), (3, manifest_ref("a3"))]
    assert ledger.add_snapshot(Snapshot(STREAM, 3, manifest_ref("s3")), after=2)
    assert ledger.state_manifests(STREAM) == [manifest_ref("s3")]
    assert ledger.state_manifests(STREAM, 2) == [manifest_ref("s2")]


def test_snapshot_is_noted_only_over_its_base(ledger: Ledger, clock: Clock) -> None:
    committed(ledger, 1, 2, 3)
    assert ledger.add_snapshot(Snapshot(STREAM, 2, manifest_ref("s2")), after=0)
    for late in (
        Snapshot(STREAM, 2, manifest_ref("other")),
        Snapshot(STREAM, 3, manifest_ref("other")),
        Snapshot(STREAM, 1, manifest_ref("older")),
    ):
        assert not ledger.add_snapshot(late, after=0)
    assert not ledger.add_snapshot(Snapshot(STREAM, 2, manifest_ref("again")), after=2)
    assert ledger.snapshots(STREAM) == [Snapshot(STREAM, 2, manifest_ref("s2"), made_at=clock.now)]
    assert ledger.snapshots(Stream("p", 2)) == []


def test_one_of_many_concurrent_snapshots_is_noted(url: str) -> None:
    committed(Ledger.open(url), 1, 2, 3, 4)
    noted: list[bool] = []
    barrier = threading.Barrier(4)

    def note(seq: int) -> None:
        own_ledger = Ledger.open(url)
        barrier.wait(600)
        noted.append(own_ledger.add_snapshot(Snapshot(STREAM, seq, manifest_ref(f"s{seq}")), after=0))

    threads = [threading.Thread(target=note, args=(seq,)) for seq in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(noted) == [False, False, False, True]


def test_snapshot_takes_no_lease(ledger: Ledger) -> None:
    lease = committed(ledger, 1)
    assert ledger.add_snapshot(Snapshot(STREAM, 1, manifest_ref("s1")), after=0)
    lease.add_plan(plan(2, "r2"))
    assert ledger.head(STREAM).seq == 1


def test_removed_state_is_refused_naming_the_oldest(ledger: Ledger, clock: Clock) -> None:
    lease = committed(ledger, 1, 2, 3)
    ledger.add_snapshot(Snapshot(STREAM, 2, manifest_ref("s2")), after=0)
    lease.give_up(2)
    given_up = clock.now
    clock.now += 5
    lease.give_up(2)
    assert ledger.snapshots(STREAM) == [Snapshot(STREAM, 2, manifest_ref("s2"), given_up, given_up)]
    with pytest.raises(StateGivenUp, match=r"batch 1 is no longer kept.*that after batch 2"):
        ledger.state_manifests(STREAM, 1)
    of_batches = [names(ledger.state_manifests(STREAM, seq)) for seq in (0, 2, 3)]
    assert of_batches == [[], ["s2"], ["s2", "a3"]]


def test_which_batch_was_the_head_at_an_instant(ledger: Ledger, clock: Clock) -> None:
    lease = ledger.acquire(STREAM, "r1")
    for seq in (1, 2):
        clock.now += 10
        lease.commit(plan(seq), attempt(seq, f"a{seq}"))
    assert [ledger.head_at(STREAM, at) for at in (1009.0, 1010.0, 1019.0, 5000.0)] == [0, 1, 1, 2]


def test_instants_never_go_back_with_machine_clock(ledger: Ledger, clock: Clock) -> None:
    lease = ledger.acquire(STREAM, "r1")
    lease.commit(plan(1), attempt(1, "a1"))
    before, clock.now = clock.now, clock.now - 40 * 86_400
    lease.commit(plan(2), attempt(2, "a2"))
    ledger.add_snapshot(Snapshot(STREAM, 2, manifest_ref("s2")), after=0)
    lease.give_up(2)
    lease.expire("quarantine", 1)
    assert ledger.head_at(STREAM, before - 1) == 0
    assert ledger.head_at(STREAM, before) == 2
    assert ledger.snapshots(STREAM)[0].given_up_at == before
    assert ledger.expired(STREAM, "quarantine").at == before


def test_instants_follow_the_database_clock(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Ledger.open(postgres_url)
    before = right.now()
    ahead = before + 400 * 86_400
    monkeypatch.setattr(time, "time", lambda: ahead)
    lease = Ledger.open(postgres_url).acquire(STREAM, "r1")
    lease.commit(plan(1), attempt(1, "a1"))
    assert right.head_at(STREAM, before + 86_400) == 1


def test_pipeline_texts_are_listed_once_newest_last(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    for seq, text_ in enumerate(("one", "two", "one"), start=1):
        lease.add_plan(replace(plan(seq, f"r{seq}"), spec_text=text_))
        lease.commit(plan(seq), attempt(seq, f"a{seq}"))
    assert ledger.planned_specs(STREAM) == [PlannedSpec("two", "{}"), PlannedSpec("one", "{}")]


def test_pipeline_is_stored_once_for_many_batches(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    plans = [
        replace(plan(seq, f"r{seq}"), spec_text="long " * 1000, spec_compiled=f"form {seq // 4}")
        for seq in range(1, 8)
    ]
    for planned in plans:
        lease.add_plan(planned)
        lease.commit(planned, attempt(planned.seq, f"a{planned.seq}"))
    with ledger._engine.begin() as connection:
        (rows,) = connection.execute(text("SELECT count(*) FROM tidegate_pipelines")).one()
    assert rows == 2
    assert [ledger.plan(STREAM, planned.seq) for planned in plans] == plans


def test_plan_without_its_pipeline_keeps_its_pins(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    lease.add_plan(replace(plan(), lookups={"a/b": {"seq": 3}}))
    with ledger._engine.begin() as connection:
        connection.execute(text("DELETE FROM tidegate_pipelines"))
    with pytest.raises(Halted, match=r"batch 1 of p/1 .*tidegate_pipelines"):
        ledger.plan(STREAM, 1)
    assert ledger.open_lookups() == [{"a/b": {"seq": 3}}]


def test_open_lookups_are_those_of_every_stream(ledger: Ledger) -> None:
    other = Stream("other", 2)
    for stream in (STREAM, other):
        lease = ledger.acquire(stream, "r1")
        lease.add_plan(replace(plan(), stream=stream, lookups={"table": {"version": stream.generation}}))
    assert ledger.open_lookups() == [{"table": {"version": 2}}, {"table": {"version": 1}}]
    lease.commit(replace(plan(), stream=other), attempt())
    assert ledger.open_lookups() == [{"table": {"version": 1}}]


def test_live_names_are_committed_next_and_snapshots(ledger: Ledger) -> None:
    lease = committed(ledger, 1)
    ledger.add_snapshot(Snapshot(STREAM, 1, manifest_ref("s1")), after=0)
    for name in ("b1", "b2"):
        lease.add_attempt(attempt(2, name))
    names = ledger.known_names(STREAM)
    assert (names.head, names.epoch, names.committed) == (1, lease.lease.epoch, {1: manifest_ref("a1")})
    assert (names.computed, [snapshot.name for snapshot in names.snapshots]) == ({"b1", "b2"}, ["s1"])
    assert ledger.known_names(Stream("p", 2)).epoch == 0


def test_metrics_of_a_later_try_replace_earlier(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    lease.set_metrics(1, "s", {"a": 1.0, "b": 2.0})
    lease.set_metrics(1, "s", {"a": 3.0})
    assert ledger.metrics(STREAM, 1) == {("s", "a"): 3.0, ("s", "b"): 2.0}


def test_last_failure_is_stored_with_any_text(ledger: Ledger, clock: Clock) -> None:
    lease = ledger.acquire(STREAM, "r1")
    assert ledger.failure(STREAM, 1) is None
    lease.note_failure(1, "compute", LakeUnavailable("first", "fix"))
    clock.now += 1
    lease.note_failure(1, "validate", QualityFailed("nul \0, half \ud800, é", "a fix"))
    noted = Failure(STREAM, 1, "validate", "QualityFailed", "nul , half ?, é", "a fix", 1_001_000)
    assert ledger.failure(STREAM, 1) == noted
    assert ledger.failure(STREAM, 2) is ledger.failure(Stream("p", 2), 1) is None


def test_stale_epoch_keeps_its_successors_note(ledger: Ledger) -> None:
    stale, newer = ledger.acquire(STREAM, "r1"), ledger.acquire(STREAM, "r1")
    newer.note_failure(1, "compute", QualityFailed("newer"))
    with pytest.raises(Fenced):
        stale.note_failure(1, "compute", LakeUnavailable("stale"))
    noted = ledger.failure(STREAM, 1)
    assert noted is not None
    assert noted.what == "newer"


def test_failure_of_a_dropped_plan_is_not_inherited(ledger: Ledger) -> None:
    lease = committed(ledger, 1)
    for seq in (1, 2):
        lease.note_failure(seq, "publish", QualityFailed("what"))
    lease.drop_plan()
    assert ledger.failure(STREAM, 1) is not None
    assert ledger.failure(STREAM, 2) is None


def test_a_dropped_plan_leaves_room_for_another(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    lease.add_plan(plan())
    lease.add_attempt(attempt())
    assert lease.drop_plan() == 1
    assert lease.drop_plan() is None
    assert ledger.attempt(STREAM, 1) is None
    lease.add_plan(plan(run_id="r2", end=20))


def test_accepted_gap_moves_one_partition_and_is_recorded(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    lease.commit(plan(), attempt())
    lease.accept_gap([OffsetRange("t", 0, 10, 25)])
    assert ledger.head(STREAM).offsets == {("t", 0): 25, ("t", 1): 0}
    noted = ledger.run(STREAM, "gap__epoch_1")
    assert noted is not None
    assert noted.note == "accepted as lost: t[0] 10-24"


def test_one_of_many_requests_gets_the_lease(url: str) -> None:
    winners: list[str] = []
    barrier = threading.Barrier(8)

    def ask(name: str) -> None:
        own_ledger = Ledger.open(url)
        barrier.wait(600)
        try:
            winners.append(own_ledger.acquire(STREAM, name).lease.holder)
        except LeaseHeld:
            return

    threads = [threading.Thread(target=ask, args=(f"r{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1


def test_stalled_transaction_is_ended_by_the_server(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_BUSY_TIMEOUT_MS", 500)
    stopped = Ledger.open(postgres_url).acquire(STREAM, "stopped")
    other = Ledger.open(postgres_url)
    with ExitStack() as stack:
        stack.enter_context(stopped._fenced("renew"))
        with pytest.raises(LedgerUnavailable, match="lock timeout"):
            other.acquire(STREAM, "stopped")
        assert _patiently(lambda: other.acquire(STREAM, "stopped")).lease.epoch == 2
        with pytest.raises(LedgerUnavailable):
            stack.close()


@pytest.mark.parametrize(("setting", "expected"), [("off", "on"), ("remote_apply", "remote_apply")])
def test_commits_are_durable_despite_database_defaults(
    postgres_url: str, setting: str, expected: str
) -> None:
    name = make_url(postgres_url).database
    administrator = create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    with administrator.connect() as connection:
        connection.execute(text(f"ALTER DATABASE {name} SET synchronous_commit = {setting}"))
    administrator.dispose()
    engine = open_database(postgres_url)
    for _ in range(2):  # the second has the first one's connection
        with engine.begin() as connection:
            assert connection.execute(text("SHOW synchronous_commit")).scalar() == expected
    engine.dispose()


def _patiently(acquire: Callable[[], LeasedLedger]) -> LeasedLedger:
    """Ask for the lease as often as retries ask."""
    for _ in range(10):
        with suppress(LedgerUnavailable):
            return acquire()
    raise AssertionError("its session was not ended")


def test_a_ledger_of_a_newer_schema_is_refused(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE tidegate_schema (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text("INSERT INTO tidegate_schema VALUES ('9999')"))
    with pytest.raises(SettingsInvalid, match="newer one"):
        Ledger.open(url)
    assert inspect(engine).get_table_names() == ["tidegate_schema"]


@pytest.mark.process
@pytest.mark.parametrize("action", ["kill", "kill_after"])
@pytest.mark.sample(1)
def test_killed_table_creation_leaves_an_openable_ledger(url: str, action: str, tmp_path: Path) -> None:
    engine = create_engine(url)
    armed = {
        "TIDEGATE_FAILPOINTS": f"ledger.migrate={action}",
        "TIDEGATE_FAILPOINTS_FIRED": str(tmp_path / "fired"),
    }
    opens = "import sys; from tidegate.ledger import Ledger; Ledger.open(sys.argv[1])"
    for code in (-signal.SIGKILL, 0):  # what has fired does not fire again
        died = subprocess.run([sys.executable, "-c", opens, url], env=os.environ | armed, check=False)
        assert died.returncode == code
        is_made = code == 0 or action == "kill_after"
        assert bool(inspect(engine).get_table_names()) == is_made
    assert Ledger.open(url).streams() == []


def test_invalid_url_shows_an_example() -> None:
    with pytest.raises(SettingsInvalid, match="postgresql"):
        Ledger.open("not a url")


def test_unopenable_database_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").mkdir()
    with pytest.raises(LedgerUnavailable, match="run again"):
        Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")


def test_url_password_is_not_in_the_error() -> None:
    with pytest.raises(LedgerUnavailable) as caught:
        Ledger.open("postgresql+psycopg://tidegate:hunter2@127.0.0.1:1/ledger?connect_timeout=1")
    assert "hunter2" not in str(caught.value)


def test_read_only_server_is_transient(url: str) -> None:
    if not url.startswith("postgresql"):
        pytest.skip("SQLite has no replicas")
    ledger = Ledger.open(url)
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(
            text(f"ALTER DATABASE {engine.url.database} SET default_transaction_read_only = on")
        )
    engine.dispose()
    ledger._engine.dispose()
    with pytest.raises(LedgerUnavailable, match="read-only"):
        ledger.acquire(STREAM, "r1")
