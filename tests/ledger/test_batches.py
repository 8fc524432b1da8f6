"""Many batches and many streams at once: what a page reads, however long the past is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import event

from tests.ledger import test_ledger
from tests.ledger.test_ledger import STREAM, Clock, attempt
from tidegate.errors import SinkUnavailable
from tidegate.ledger import LeasedLedger, Ledger, Plan, Stream
from tidegate.ledger.database import open_database
from tidegate.ledger.report import batch_history


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(url: str, clock: Clock) -> Ledger:
    return Ledger(open_database(url), clock)


def plan(seq: int = 1, run_id: str = "r1") -> Plan:
    compiled = '{"format": 1, "pipeline": {"of": {"stages": [{"of": {"name": "s"}}]}}}'
    return replace(test_ledger.plan(seq, run_id), spec_compiled=compiled)


def commit(ledger: Ledger, *seqs: int) -> LeasedLedger:
    lease = ledger.acquire(STREAM, "r1")
    for seq in seqs:
        lease.add_plan(plan(seq, run_id=f"r{seq}"))
        lease.add_attempt(attempt(seq, f"a{seq}"))
        lease.commit(plan(seq, run_id=f"r{seq}"), attempt(seq, f"a{seq}"))
    return lease


def seqs(ledger: Ledger, before: int | None = None, limit: int = 50) -> list[int]:
    return [facts.seq for facts in ledger.batches(STREAM, before, limit)]


@contextmanager
def statements(ledger: Ledger) -> Iterator[list[str]]:
    """Yield the list of SQL statements of the block."""
    asked: list[str] = []

    def note(_c: object, _k: object, statement: str, *_: object) -> None:
        asked.append(statement)

    event.listen(ledger._engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(ledger._engine, "before_cursor_execute", note)


def test_unplanned_stream_has_no_batches(ledger: Ledger) -> None:
    assert ledger.batches(STREAM) == []
    assert ledger.stream_statuses([STREAM]) == []


def test_batches_are_listed_newest_first_and_limited(ledger: Ledger) -> None:
    commit(ledger, 1, 2, 3, 4, 5)
    assert seqs(ledger) == [5, 4, 3, 2, 1]
    assert seqs(ledger, limit=2) == [5, 4]
    assert seqs(ledger, before=4, limit=2) == [3, 2]
    assert seqs(ledger, before=1) == []


def test_planned_undecided_batch_is_the_newest(ledger: Ledger) -> None:
    lease = commit(ledger, 1)
    lease.add_plan(plan(2, run_id="r2"))
    newest, committed = ledger.batches(STREAM)
    assert (newest.seq, newest.committed_at, newest.attempt) == (2, None, None)
    assert (committed.seq, committed.plan) == (1, plan(1, run_id="r1"))


def test_committed_batch_shows_its_committed_attempt(ledger: Ledger) -> None:
    lease = ledger.acquire(STREAM, "r1")
    lease.add_plan(plan(1))
    lease.add_attempt(attempt(1, "a1"))
    later = ledger.acquire(STREAM, "r1")
    later.add_attempt(attempt(1, "a2"))
    (undecided,) = ledger.batches(STREAM)
    assert undecided.attempt == attempt(1, "a2")
    later.commit(plan(1), attempt(1, "a1"))
    (decided,) = ledger.batches(STREAM)
    assert decided.attempt == attempt(1, "a1")


def test_a_batch_has_its_metrics_publications_and_failure(ledger: Ledger, clock: Clock) -> None:
    lease = commit(ledger, 1)
    lease.set_metrics(1, "", {"seconds.plan": 0.5, "quality.passed": 1.0})
    lease.set_metrics(1, "out", {"emitted": 7.0})
    lease.add_publication(1, "kafka:a", 7)
    lease.note_failure(1, "publish", SinkUnavailable("It is away", "Start it."))
    (entry,) = batch_history(ledger, STREAM)
    assert entry.report is not None
    assert (entry.report.seconds, entry.report.passed_quality) == ({"plan": 0.5}, True)
    assert entry.report.published == {"kafka:a": 7}
    assert entry.report.counts == {"read": 10, "emitted": 2}
    assert entry.failure is not None
    assert (entry.failure.step, entry.failure.error) == ("publish", "SinkUnavailable")
    assert entry.committed_at_ms == round(clock() * 1000)


def test_removed_batch_keeps_run_and_commit(ledger: Ledger) -> None:
    commit(ledger, 1, 2, 3)
    with ledger._engine.begin() as connection:
        for table in ("plans", "attempts"):
            connection.exec_driver_sql(f"DELETE FROM tidegate_{table} WHERE seq = 1")
    *_, oldest = batch_history(ledger, STREAM)
    assert (oldest.seq, oldest.run_id, oldest.report, oldest.planned_at_ms) == (1, "r1", None, None)
    assert oldest.committed_at_ms is not None


def test_status_shows_lease_holder_and_head(ledger: Ledger, clock: Clock) -> None:
    lease = commit(ledger, 1)
    lease.add_plan(plan(2, run_id="r2"))
    never = Stream("never", 1)
    (status,) = ledger.stream_statuses([never, STREAM])
    assert (status.stream, status.head, status.holder) == (STREAM, ledger.head(STREAM), "r1")
    assert (status.open_seq, status.planned_at, status.committed_at) == (2, clock(), clock())
    lease.release()
    (status,) = ledger.stream_statuses([STREAM])
    assert status.holder is None


def test_streams_with_current_failures_are_named(ledger: Ledger) -> None:
    lease = commit(ledger, 1, 2)
    lease.note_failure(1, "publish", SinkUnavailable("It is away", "Start it."))
    assert ledger.failing_streams() == {}
    lease.note_failure(2, "publish", SinkUnavailable("It is away", "Start it."))
    assert [failure.seq for failure in ledger.failing_streams()[STREAM]] == [2]


def test_page_of_batches_costs_constant_queries(ledger: Ledger) -> None:
    commit(ledger, 1)
    with statements(ledger) as of_one:
        ledger.batches(STREAM, limit=25)
    commit(ledger, *range(2, 41))
    with statements(ledger) as of_many:
        assert len(ledger.batches(STREAM, limit=25)) == 25
    assert len(of_many) == len(of_one)
