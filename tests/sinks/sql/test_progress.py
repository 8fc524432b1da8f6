"""The progress row of a SQL table: what counts as lost, and what is written in its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sinks.sql.conftest import new_database
from tests.sinks.sql.sink import Sink, emission
from tidegate.errors import LedgerMismatch, ProgressLost, SettingsInvalid
from tidegate.sinks.port import RequireCommitted


def committed(seq: int) -> str:
    """The attempt that the ledger has committed of a batch."""
    return "first"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database. These tests are about numbers, which are the same in each database."""
    return new_database(request.param, request, tmp_path)


@pytest.fixture
def sink(url: str) -> Sink:
    """A table with the batches 1, 2 and 3, and one of another stream."""
    sink = Sink(url)
    for seq in (1, 2, 3):
        sink.publish(seq, [emission("a", seq)], seq - 1)
    Sink(url, shard="g2", stream="visitors/2").publish(9, [emission("a", 1)])
    return sink


def lost(sink: Sink, stated: int | None = None, last: int = 3, head: int = 3) -> int | None:
    with sink.database() as database:
        return sink.progress_row(database).lost(last, head, stated)


def restored(sink: Sink, stated: int | None = None, last: int = 3, head: int = 3) -> int | None:
    with sink.database() as database:
        return sink.progress_row(database).restore(last, head, stated, committed)


def own_row(sink: Sink) -> tuple[int, str] | None:
    rows = sink.query(f"SELECT seq, attempt FROM tidegate_progress WHERE shard = '{sink.shard}'")
    return (rows[0]["seq"], rows[0]["attempt"]) if rows else None


@pytest.mark.sample(5)
@pytest.mark.parametrize("stated", [None, 0, 2])
@pytest.mark.parametrize("taken", ["batch = 3", "batch > 0"])
def test_intact_row_stays_after_a_reader_removed_rows(sink: Sink, taken: str, stated: int | None) -> None:
    sink.query(f"DELETE FROM visitor_batches WHERE {taken}")
    assert lost(sink, stated) is None
    assert restored(sink, stated) is None
    assert own_row(sink) == (3, "first")


def test_intact_row_of_an_unnoted_batch_stays(sink: Sink) -> None:
    assert lost(sink, last=2) is None
    assert lost(sink, last=0) is None


def test_lost_row_is_restored_from_the_table(sink: Sink) -> None:
    sink.query(f"DELETE FROM tidegate_progress WHERE shard = '{sink.shard}'")
    assert lost(sink) == 3
    assert own_row(sink) is None
    assert restored(sink) == 3
    assert own_row(sink) == (3, "first")
    assert sink.publish(4, [emission("a", 4)], 3) == 1


def test_older_row_is_raised_to_the_table(sink: Sink) -> None:
    sink.query(f"UPDATE tidegate_progress SET seq = 1 WHERE shard = '{sink.shard}'")
    assert restored(sink) == 3


def test_a_restored_database_goes_on_from_its_row(sink: Sink) -> None:
    sink.query(f"UPDATE tidegate_progress SET seq = 2 WHERE shard = '{sink.shard}'")
    sink.query("DELETE FROM visitor_batches WHERE batch > 1")  # 2 was taken out before the backup
    assert restored(sink) == 2


def test_a_table_that_is_gone_has_nothing(sink: Sink) -> None:
    sink.query("DROP TABLE visitor_batches")
    with pytest.raises(SettingsInvalid, match="are 0 to 0"):
        lost(sink, stated=2)
    assert restored(sink) == 0
    assert own_row(sink) is None


def test_shorter_table_without_a_row_needs_a_statement(sink: Sink) -> None:
    sink.query(f"DELETE FROM tidegate_progress WHERE shard = '{sink.shard}'")
    sink.query("DELETE FROM visitor_batches WHERE batch = 3")
    with pytest.raises(
        ProgressLost,
        match=r"newest row of visitors/1 is of batch 2, and batch 3 was published.*"
        r"--choose restore-progress --generation 1 --progress sql:visitor_batches=3",
    ):
        lost(sink)
    assert own_row(sink) is None
    assert restored(sink, stated=3) == 3
    assert own_row(sink) == (3, "first")


@pytest.mark.parametrize("stated", [1, 4])
def test_contradicted_statement_is_refused(sink: Sink, stated: int) -> None:
    sink.query(f"DELETE FROM tidegate_progress WHERE shard = '{sink.shard}'")
    sink.query("DELETE FROM visitor_batches WHERE batch = 3")
    with pytest.raises(SettingsInvalid, match="those in question are 2 to 3"):
        lost(sink, stated)


def test_nothing_is_lost_where_nothing_was_published(url: str) -> None:
    sink = Sink(url)
    assert lost(sink, last=0, head=4) is None
    assert restored(sink, last=0, head=4) is None


def committed_up_to(head: int, attempt: str) -> RequireCommitted:
    """A ledger that has committed batches of an attempt."""

    def require(seq: int, is_of: Callable[[str], bool]) -> None:
        if seq > head or not is_of(attempt):
            raise LedgerMismatch(f"batch {seq} is not committed")

    return require


def test_table_ahead_of_the_ledger_halts(sink: Sink) -> None:
    sink.query(f"DELETE FROM tidegate_progress WHERE shard = '{sink.shard}'")
    sink.require_committed = committed_up_to(2, "first")
    with pytest.raises(LedgerMismatch, match="batch 3"):
        lost(sink, last=2, head=2)


def test_check_finds_a_row_of_another_attempt(sink: Sink) -> None:
    with sink.database() as database:
        sink.progress_row(database).check(3)
    sink.require_committed = committed_up_to(3, "another")
    with sink.database() as database, pytest.raises(LedgerMismatch, match="batch 3"):
        sink.progress_row(database).check(3)
    with pytest.raises(LedgerMismatch, match="batch 3"):
        sink.publish(4, [emission("a", 4)], 2)
