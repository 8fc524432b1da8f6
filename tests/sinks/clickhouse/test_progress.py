"""Whatever fails, and whatever comes late or again, a reader with FINAL sees each row once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.sinks.clickhouse.house import UPSERT, House
from tidegate import failpoints
from tidegate.app import App
from tidegate.batch import check_progress
from tidegate.errors import (
    Fenced,
    LedgerMismatch,
    ProgressLost,
    ProgressUnreadable,
    SinkAhead,
)
from tidegate.failpoints import FailpointRaised, ReplyLost
from tidegate.sinks.clickhouse import rows
from tidegate.sinks.clickhouse.table import ClickHouseTable
from tidegate.sinks.outbox import Outbox

POINTS = ["clickhouse.read_progress", "clickhouse.create", "clickhouse.insert", "clickhouse.progress"]
IN_ANOTHER_PROCESS = [*(f"{point}=%s" for point in POINTS), "clickhouse.progress=%s@2"]
IN_A_BATCH = [*IN_ANOTHER_PROCESS, "clickhouse.insert=%s@2"]  # another process inserts all rows at once


def outbox_of(stream: House, seq: int) -> Outbox:
    plan, attempt = stream.app.ledger.plan(stream.stream, seq), stream.app.ledger.attempt(stream.stream, seq)
    assert plan is not None
    assert attempt is not None
    return stream.sink.outbox(plan, attempt)


@pytest.fixture(params=["append", "upsert"])
def stream(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> House:
    """A stream whose first batch is committed, and takes three insertions."""
    monkeypatch.setattr(rows, "_INSERT_BYTES", 1)
    stream: House = request.getfixturevalue(f"{request.param}ing")
    stream.outbox_files = 3
    stream.commit(1, {"first": [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("d", 5)]})
    return stream


EMITTED = [("a", 1, 1), ("a", 3, 1), ("b", 2, 1), ("c", 4, 1), ("d", 5, 1)]


def expected(stream: House) -> list[tuple[str, int, int]]:
    return EMITTED if stream.pipeline.sinks[0].mode == "append" else EMITTED[1:]  # type: ignore[attr-defined]


@pytest.mark.parametrize("action", ["raise", "lose"])
@pytest.mark.parametrize("point", IN_A_BATCH)
@pytest.mark.sample(3)
def test_failed_step_leaves_each_row_once(
    stream: House, monkeypatch: pytest.MonkeyPatch, point: str, action: str
) -> None:
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", point % action)
    with pytest.raises((FailpointRaised, ReplyLost)):
        stream.publish(1)
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    stream.publish(1)
    stream.publish(1)
    assert stream.rows() == expected(stream)
    check_progress(stream.app, stream.stream)


@pytest.mark.parametrize("kill", ["kill", "kill_after"])
@pytest.mark.parametrize("point", IN_ANOTHER_PROCESS)
@pytest.mark.sample(3)
def test_killed_process_leaves_each_row_once(stream: House, point: str, kill: str) -> None:
    environment = {**os.environ, **stream.environment, "TIDEGATE_FAILPOINTS": point % kill}
    command = [sys.executable, "-m", "tests.sinks.publishing"]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, check=False, timeout=600)
    assert done.returncode == -signal.SIGKILL
    stream.publish(1)
    assert stream.rows() == expected(stream)


def test_published_batch_is_not_inserted_again(stream: House) -> None:
    stream.publish(1)
    stored = stream.stored()
    stream.app.ledger.acquire(stream.stream, "test").send_again(stream.sink.name, 1, None)
    stream.publish(1)
    assert (stream.stored(), stream.progress()) == (stored, (1, 1))


def late(stream: House, seq: int, meanwhile: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish a batch by a process that stops before its first insertion, and goes on after all others."""
    outbox, insert, hung = outbox_of(stream, seq), ClickHouseTable.insert, list[str]()

    def insert_late(table: ClickHouseTable, *arguments: object) -> None:
        if not hung:
            hung.append("once")
            meanwhile()
        insert(table, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ClickHouseTable, "insert", insert_late)
    stream.sink.publish(_Stalled(), outbox, 0)  # type: ignore[arg-type]
    assert hung


class _Stalled:
    """The lease of a process whose renewal was in time, while its insertion arrived late."""

    def renew(self) -> None:
        pass


def test_late_insertion_of_an_older_batch_changes_nothing(
    stream: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go_on() -> None:
        stream.lease.release()
        stream.publish(1)
        stream.decide(2, ("a", 9), ("b", None))

    late(stream, 1, go_on, monkeypatch)
    newer = [("a", 9, 2), ("b", None, 2)]
    appended = sorted([*EMITTED, *newer], key=str)
    assert stream.rows() == (appended if expected(stream) == EMITTED else [newer[0], *EMITTED[3:]])
    assert stream.progress() == (2, 1)
    check_progress(stream.app, stream.stream)


def test_publisher_without_the_lease_inserts_nothing_more(
    stream: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = stream.lease
    renewals = list[str]()

    def renew() -> None:
        renewals.append("asked")
        if len(renewals) > 2:
            raise Fenced("another process has taken over")

    monkeypatch.setattr(lease, "renew", renew)
    with pytest.raises(Fenced):
        stream.sink.publish(lease, outbox_of(stream, 1), 0)
    assert 0 < stream.stored() < 5


def test_table_with_a_later_batch_gets_nothing(appending: House) -> None:
    appending.decide(1, ("a", 1))
    appending.decide(2, ("b", 2))
    with pytest.raises(SinkAhead):
        appending.sink.publish(appending.lease, outbox_of(appending, 1), 0)
    assert appending.stored() == 2


def test_attempt_of_another_ledger_is_refused(appending: House, tmp_path: Path) -> None:
    appending.decide(1, ("a", 1))
    (tmp_path / "other").mkdir()
    other = House(tmp_path / "other", appending.url)
    other.suffix = "0000000b"
    other.app = App.from_environment(other.environment)
    other.commit(1, {"first": [("a", 9)]})
    with pytest.raises(LedgerMismatch):
        other.publish(1)
    assert appending.rows() == [("a", 1, 1)]


def test_dropped_table_is_not_created_again(appending: House) -> None:
    appending.decide(1, ("a", 1))
    check_progress(appending.app, appending.stream)
    appending.ask("DROP TABLE visitors")
    appending.commit(2, {"first": [("b", 2)]})
    with pytest.raises(ProgressLost, match="another table of that name"):
        appending.publish(2)
    assert appending.ask("SHOW TABLES") == [("tidegate_progress",)]


def test_other_table_of_that_name_is_refused(appending: House) -> None:
    appending.decide(1, ("a", 1))
    appending.ask("CREATE TABLE kept AS visitors")
    appending.ask("INSERT INTO kept SELECT * FROM visitors")
    appending.ask("DROP TABLE visitors")
    appending.ask("RENAME TABLE kept TO visitors")
    with pytest.raises(ProgressLost, match="another table of that name"):
        check_progress(appending.app, appending.stream)


def test_lost_progress_is_noticed(appending: House) -> None:
    appending.decide(1, ("a", 1))
    appending.ask("TRUNCATE TABLE tidegate_progress")
    with pytest.raises(ProgressLost, match="says batch 0"):
        check_progress(appending.app, appending.stream)


def test_progress_of_a_newer_format_is_unreadable(appending: House) -> None:
    appending.decide(1, ("a", 1))
    appending.ask("ALTER TABLE tidegate_progress UPDATE format = 99 WHERE 1 SETTINGS mutations_sync = 2")
    with pytest.raises(ProgressUnreadable, match="has format 99; this tidegate reads 1"):
        check_progress(appending.app, appending.stream)


@pytest.mark.parametrize("loses_progress", [False, True])
def test_restart_removes_rows_of_later_batches(appending: House, loses_progress: bool) -> None:
    for seq in (1, 2, 3):
        appending.decide(seq, ("a", seq))
    if loses_progress:
        appending.ask("DROP TABLE tidegate_progress")
    appending.sink.restart_after(appending.lease, 1)
    assert (appending.rows(), appending.progress()) == ([("a", 1, 1)], (1, 2))
    lease = appending.app.ledger.acquire(appending.stream, "test")
    assert appending.sink.publish_again(lease, range(2, 4)) == [2, 3]
    assert appending.rows() == [("a", 1, 1), ("a", 2, 2), ("a", 3, 3)]


def test_restarted_upsert_writes_rows_over(upserting: House) -> None:
    """Also rows of a later batch, which a ledger that was restored does not know."""
    for seq in (1, 2, 3):
        upserting.decide(seq, ("a", seq))
    upserting.sink.restart_after(upserting.lease, 1)
    assert upserting.rows() == [("a", 3, 3)]
    lease = upserting.app.ledger.acquire(upserting.stream, "test")
    upserting.sink.publish_again(lease, range(2, 3))
    assert (upserting.rows(), upserting.progress()) == ([("a", 2, 2)], (2, 2))


def test_sealed_batch_is_not_published(appending: House) -> None:
    appending.decide(1, ("a", 1))
    appending.commit(2, {"first": [("b", 2)]})
    assert appending.sink.seal(appending.lease, 2) == 0
    assert appending.sink.seal(appending.lease, 1) == 1
    appending.publish(2)
    assert appending.rows() == [("a", 1, 1)]


def test_sealed_batch_counts_what_was_inserted(stream: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "clickhouse.insert=raise@3")
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    with pytest.raises(FailpointRaised):
        stream.publish(1)
    assert failpoints._hits["clickhouse.insert"] == 3
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    assert stream.sink.seal(stream.lease, 1) == stream.stored()


def test_tables_of_one_database_have_own_progress(upserting: House) -> None:
    text = upserting.file.read_text()
    upserting.file.write_text(f"{text}{UPSERT.replace('visitors', 'others')}\n")
    upserting.decide(1, ("a", 1))
    shards = upserting.ask("SELECT shard, seq FROM tidegate_progress FINAL ORDER BY shard")
    names = ("others", "visitors")
    assert shards == [(f"tidegate-visitors-g1-clickhouse:{name}", 1) for name in names]
