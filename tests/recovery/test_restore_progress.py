"""The remedy `restore-progress`: it changes only progress that is lost, and sends only what is missing."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from click.testing import Result

from tests.batch.committed import Committed
from tests.generations.two_generations import Beside
from tests.recovery.commands import recover
from tidegate.batch import check_progress
from tidegate.errors import Halted, LedgerMismatch, ProgressLost, SettingsInvalid
from tidegate.inspect import stream_condition
from tidegate.ledger.stream_condition import ConditionKind

FIRSTS = "SELECT key, n, batch FROM firsts ORDER BY batch, ordinal"
SECONDS = "SELECT key, m, batch FROM seconds ORDER BY key"


@pytest.fixture
def committed(tmp_path: Path) -> Committed:
    """A queue and a table by key, with three batches. Batch 2 has something for the table only."""
    sinks = "  - {kind: sql, table: firsts, stage: first}\n  - {kind: sql, table: seconds, mode: upsert}"
    committed = Committed(tmp_path, sinks, f"sqlite:///{tmp_path}/sink.db")
    batches = {
        1: {"first": [("1", 10), ("2", 20)], "second": [("1", 11), ("2", 21)]},
        2: {"first": [], "second": [("1", 12)]},
        3: {"first": [("3", 30)], "second": []},
    }
    for seq, emitted in batches.items():
        committed.commit(seq, emitted)
        committed.publish(seq)
    return committed


def restore(committed: Committed, *options: str, acts: bool = True) -> Result:
    committed.app.ledger.acquire(committed.stream, "test").release()
    yes = ["--yes"] if acts else []
    return recover(committed.environment, "visitors", "--choose", "restore-progress", *yes, *options)


def rows(committed: Committed) -> list[object]:
    return [committed.query(query) for query in (FIRSTS, SECONDS)]


def test_lost_progress_is_rewritten_without_duplicates(committed: Committed) -> None:
    before = rows(committed)
    committed.query("DELETE FROM tidegate_progress")
    committed.commit(4, {"first": [("4", 40)], "second": []})
    with pytest.raises(ProgressLost, match="tidegate recover visitors --choose restore-progress"):
        committed.publish(4)

    shown = restore(committed, acts=False)
    assert shown.exit_code == 4
    assert "is lost in sql:firsts, sql:seconds" in shown.output
    assert "sql:firsts: it has batches up to 3, which becomes its progress." in shown.output
    assert "sql:firsts gets batch 4 again." in shown.output
    assert "sql:seconds: it lacks no batch, so nothing is sent." in shown.output
    assert committed.query("SELECT * FROM tidegate_progress") == []

    result = restore(committed)
    assert result.output.splitlines() == [
        "sql:firsts: it has batches up to 3; sent again: 4.",
        "sql:seconds: it has batches up to 2; nothing was missing.",
        "visitors/1 is published up to batch 4.",
    ]
    assert rows(committed) == [[*before[0], ("4", 40, 4)], before[1]]  # type: ignore[misc]
    check_progress(committed.app, committed.stream)


def test_missing_table_is_refilled_alone(committed: Committed) -> None:
    before = rows(committed)
    committed.query("DROP TABLE firsts")
    result = restore(committed)
    assert result.output.splitlines() == [
        "sql:firsts: it has batches up to 0; sent again: 1, 3.",
        "sql:seconds: its progress is intact, and was left as it is.",
        "visitors/1 is published up to batch 3.",
    ]
    assert rows(committed) == before


def test_intact_sinks_get_the_batch_that_waited(committed: Committed) -> None:
    committed.query("DROP TABLE firsts")
    committed.commit(4, {"first": [("4", 40)], "second": [("1", 14)]})
    with pytest.raises(ProgressLost):
        committed.publish(4)
    shown = restore(committed, acts=False)
    assert "sql:seconds gets batch 4, which is not published yet." in shown.output
    restore(committed)
    assert committed.query(SECONDS) == [("1", 14, 4), ("2", 21, 1)]
    assert stream_condition(committed.app, committed.stream).condition is ConditionKind.OK


def test_consumed_rows_are_not_sent_again(committed: Committed) -> None:
    committed.query("DELETE FROM firsts")
    assert "its cause is not there" in restore(committed).output
    assert "its cause is not there" in restore(committed, "--progress", "sql:firsts=1").output
    assert committed.query(FIRSTS) == []


def test_lost_progress_and_rows_need_a_statement(
    committed: Committed,
) -> None:
    committed.query("DELETE FROM tidegate_progress WHERE shard LIKE '%firsts'")
    committed.query("DELETE FROM firsts")
    refused = restore(committed)
    assert isinstance(refused.exception, ProgressLost)
    assert "--progress sql:firsts=3" in str(refused.exception)
    committed.commit(4, {"first": [("4", 40)], "second": []})
    assert (
        "sql:firsts: it has batches up to 3; sent again: 4."
        in restore(committed, "--progress", "sql:firsts=3").output
    )
    assert committed.query(FIRSTS) == [("4", 40, 4)]


def test_only_losable_progress_can_be_stated(committed: Committed) -> None:
    refused = restore(committed, "--progress", "sql:elsewhere=1")
    assert isinstance(refused.exception, SettingsInvalid)
    assert "It has: sql:firsts, sql:seconds." in str(refused.exception)
    assert recover(committed.environment, "visitors", "--progress", "firsts").exit_code == 2


def test_progress_after_a_deletion_is_stated_without_history(
    tmp_path: Path,
) -> None:
    committed = Committed(
        tmp_path, "  - {kind: sql, table: seconds, mode: upsert}", f"sqlite:///{tmp_path}/s.db"
    )
    for seq, value in ((1, 1), (2, None)):
        committed.commit(seq, {"first": [], "second": [("a", value)]})
        committed.publish(seq)
    assert "its cause is not there" in restore(committed).output
    committed.query("DELETE FROM tidegate_progress")
    for attempt in Path(tmp_path).rglob("outbox*"):
        shutil.rmtree(attempt)  # nothing that was sent can be sent again
    result = restore(committed, "--progress", "sql:seconds=2")
    assert result.output.splitlines()[0] == "sql:seconds: it has batches up to 2; nothing was missing."
    check_progress(committed.app, committed.stream)


def test_killed_restore_continues_where_it_was(committed: Committed, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rows(committed)
    committed.query("DROP TABLE firsts")
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "ledger.add_publication=raise@1")
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    assert restore(committed).exit_code != 0
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    assert "sql:firsts: it has batches up to 1; sent again: 3." in restore(committed).output
    assert rows(committed) == before


def test_another_batch_of_the_same_number_is_distinguished(
    committed: Committed,
) -> None:
    committed.commit(4, {"first": [("4", 40)], "second": []})
    committed.query("DELETE FROM tidegate_progress")
    committed.query("UPDATE firsts SET batch = 4 WHERE batch = 3")
    refused = restore(committed)
    assert isinstance(refused.exception, LedgerMismatch)
    assert committed.query("SELECT * FROM tidegate_progress") == []


def test_row_of_another_attempt_is_reported_and_stays(committed: Committed) -> None:
    committed.query("UPDATE tidegate_progress SET attempt = 'of another ledger'")
    with pytest.raises(LedgerMismatch, match="restored from a backup"):
        check_progress(committed.app, committed.stream)
    assert "its cause is not there" in restore(committed).output
    committed.commit(4, {"first": [("5", 50)], "second": []})
    with pytest.raises(LedgerMismatch):
        committed.publish(4)
    assert committed.query(FIRSTS)[-1] == ("3", 30, 3)


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    beside = Beside(tmp_path, "  - {kind: sql, table: seconds, mode: upsert}")
    beside.fill()
    beside.promote(beside.new)
    beside.rollback()
    beside.decide(beside.old, 3, [("a", 3), ("b", 3), ("c", 3)])
    return beside


def of_new(beside: Beside, *options: str) -> Result:
    beside.old.app.ledger.acquire(beside.new.stream, "test").release()
    arguments = ("--choose", "restore-progress", "--generation", "2", "--yes", *options)
    return recover(beside.old.environment, "visitors", *arguments)


def table(beside: Beside) -> list[tuple[object, ...]]:
    return beside.old.query("SELECT stream, key, m FROM seconds ORDER BY key")


def test_generation_not_in_charge_sends_nothing(beside: Beside) -> None:
    before = table(beside)
    assert "its cause is not there" in of_new(beside).output
    beside.old.query("DELETE FROM tidegate_progress WHERE shard LIKE '%-g2-%'")
    assert isinstance(of_new(beside).exception, ProgressLost), "its rows were overwritten"
    result = of_new(beside, "--progress", "sql:seconds=0")
    assert "another generation is in charge, so nothing was sent" in result.output
    assert table(beside) == before


def test_missing_batch_names_the_needed_statement(committed: Committed) -> None:
    committed.query("DROP TABLE firsts")
    with committed.app.ledger._engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM tidegate_plans WHERE seq = 1")
    refused = restore(committed)
    assert isinstance(refused.exception, Halted)
    assert "--choose restore-progress --generation 1 --progress sql:firsts=BATCH" in str(refused.exception)
