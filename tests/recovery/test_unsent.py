"""A decided batch that cannot be published: `tidegate recover` lets the stream continue, each record once."""

from __future__ import annotations

import json
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from tests.batch.committed import Committed
from tests.recovery.commands import recover, shown
from tests.sinks.iceberg.lakehouse import Lakehouse
from tidegate.batch import check_progress
from tidegate.batch.publish import lacking_batches
from tidegate.cli import cli
from tidegate.errors import LakeDamaged, LedgerMismatch, ProgressLost, SinkUnavailable

SINKS = "  - {kind: sql, table: seconds}\n  - {kind: table, path: firsts, stage: first}"


class Stuck(Committed):
    """A stream with a SQL sink, and a Delta table of the first stage, whose batches 1 and 2 are out."""

    def __init__(self, folder: Path, sinks: str = SINKS) -> None:
        super().__init__(folder, sinks, f"sqlite:///{folder}/sink.db")
        for seq in (1, 2):
            self.decide(seq)
            self.publish(seq)

    def decide(self, seq: int) -> None:
        self.commit(seq, {"first": [("a", seq), ("b", seq)], "second": [("a", seq), ("b", seq)]})
        self.lease.release()

    def sent(self) -> list[tuple[int, str, int]]:
        """Return the rows of the SQL table: batch, key and value."""
        rows = self.query("SELECT batch, key, m FROM seconds ORDER BY rowid")
        return [(batch, key, value) for batch, key, value in rows]

    def appended(self) -> list[tuple[int, str]]:
        """Return the rows of the Delta table: batch and key."""
        rows = DeltaTable(f"{self.folder}/lake/firsts").to_pyarrow_table().select(["seq", "key"]).to_pylist()
        return sorted((row["seq"], row["key"]) for row in rows)

    def lose_outbox(self, seq: int, stage: str) -> None:
        files = list(
            (self.folder / "lake" / "visitors").rglob(f"{stage}/outbox/_files/{seq:010d}*/*.parquet")
        )
        assert files
        for file in files:
            file.unlink()

    def recover(self, choice: str, *options: str) -> str:
        result = recover(self.environment, "visitors", "--choose", choice, *options)
        assert result.exit_code in (0, 4), (result.output, result.exception)
        return result.output


def rows_of(*seqs: int) -> list[tuple[int, str, int]]:
    return [(seq, key, seq) for seq in seqs for key in "ab"]


def proposed(stuck: Stuck) -> list[str]:
    """The remedies that are shown; `accept-gap` needs a broker, and says so."""
    return [finding["remedy"] for finding in shown(stuck.environment, "visitors")["findings"]]


@pytest.fixture
def stuck(tmp_path: Path) -> Stuck:
    return Stuck(tmp_path)


@pytest.fixture
def lost(stuck: Stuck) -> Stuck:
    """Its third batch is decided, and the file of what the SQL sink gets of it is lost."""
    stuck.decide(3)
    stuck.lose_outbox(3, "second")
    with pytest.raises(LakeDamaged):
        stuck.publish(3)
    return stuck


def test_lost_outbox_is_the_cause_shown_first(lost: Stuck) -> None:
    result = recover(lost.environment, "visitors")
    assert result.exit_code == 4
    assert "give-up: Batch 3 is decided and cannot be published: LakeDamaged" in result.output
    assert "records: 2 for sql:seconds, 2 for table:firsts" in result.output
    assert "tidegate recover visitors --choose give-up --generation 1 --yes" in result.output
    assert lost.app.ledger.given_up(lost.stream) == []
    assert lost.app.ledger.publications(lost.stream, 3) == {}


def test_unsendable_batch_is_given_up_others_sent_once(lost: Stuck) -> None:
    assert "sql:seconds: batch 3 of visitors/1 is given up (LakeDamaged" in lost.recover("give-up", "--yes")
    lost.decide(4)
    lost.publish(4)
    assert lost.sent() == rows_of(1, 2, 4)
    assert lost.appended() == [(seq, key) for seq in (1, 2, 3, 4) for key in "ab"]
    (given_up,) = lost.app.ledger.given_up(lost.stream)
    assert (given_up.seq, given_up.sink, given_up.sent, given_up.records) == (3, "sql:seconds", 0, 2)
    assert lost.app.ledger.publications(lost.stream, 3) == {"sql:seconds": 0, "table:firsts": 2}
    check_progress(lost.app, lost.stream)
    assert {"give-up", "send-again"}.isdisjoint(proposed(lost))


def test_export_lists_what_was_read_and_lost(lost: Stuck) -> None:
    lost.recover("give-up", "--yes")
    (given_up,) = lost.app.ledger.given_up(lost.stream)
    header, *records = map(json.loads, Path(given_up.export).read_text().splitlines())
    assert records == []
    assert (header["pipeline"], header["batch"], header["sink"]) == ("visitors", 3, "sql:seconds")
    assert header["read"] == [{"topic": "events", "partition": 0, "start": 3, "end": 3}]
    assert len(header["unreadable_files"]) == 1


def test_lost_sink_is_given_up_by_name(
    stuck: Stuck,
) -> None:
    stuck.decide(3)
    stuck.environment["TIDEGATE_SQL"] = f"sqlite:///{stuck.folder}/gone/sink.db"
    refused = recover(stuck.environment, "visitors", "--choose", "give-up", "--yes")
    assert isinstance(refused.exception, SinkUnavailable)
    assert stuck.app.ledger.given_up(stuck.stream) == []
    stuck.recover("give-up", "--sink", "sql:seconds", "--yes")
    (given_up,) = stuck.app.ledger.given_up(stuck.stream)
    _, *records = map(json.loads, Path(given_up.export).read_text().splitlines())
    assert [(record["key"], record["value"]) for record in records] == [("a", {"m": 3}), ("b", {"m": 3})]
    assert list(lacking_batches(stuck.app.ledger, stuck.app.ledger.head(stuck.stream))) == []


def test_a_sink_that_is_not_there_is_refused(lost: Stuck) -> None:
    refused = recover(lost.environment, "visitors", "--choose", "give-up", "--sink", "sql:other")
    assert "has no sink sql:other" in str(refused.exception)


def restore(stuck: Stuck, backup: Path) -> None:
    stuck.app.ledger._engine.dispose()
    with (
        closing(sqlite3.connect(backup)) as source,
        closing(sqlite3.connect(stuck.folder / "l.db")) as target,
    ):
        source.backup(target)


def test_restored_ledger_leaves_each_row_once(stuck: Stuck) -> None:
    backup = stuck.folder / "backup.db"
    with (
        closing(sqlite3.connect(stuck.folder / "l.db")) as source,
        closing(sqlite3.connect(backup)) as target,
    ):
        source.backup(target)
    for seq in (3, 4):
        stuck.decide(seq)
        stuck.publish(seq)
    restore(stuck, backup)
    stuck.suffix = "0000000b"
    with pytest.raises(LedgerMismatch):
        stuck.publish(2)
    output = recover(stuck.environment, "visitors").output
    assert "does not have: it was restored from a backup, and its last batch is 2." in output
    assert "sql:seconds has batch 4 of visitors/1 as an attempt that this ledger has not committed" in output
    assert "rows of visitors/1 of batches after 2 are deleted" in output
    stuck.recover("send-again", "--yes")
    for seq in (3, 4, 5):
        stuck.decide(seq)
        stuck.publish(seq)
    assert stuck.sent() == rows_of(1, 2, 3, 4, 5)
    assert stuck.appended() == [(seq, key) for seq in (1, 2, 3, 4, 5) for key in "ab"]


def test_sink_without_rows_is_refilled_from_a_batch(stuck: Stuck) -> None:
    stuck.decide(3)
    stuck.publish(3)
    stuck.query("DROP TABLE seconds")
    stuck.query("DELETE FROM tidegate_progress")
    stuck.recover("send-again", "--sink", "sql:seconds", "--from-batch", "2", "--yes")
    assert stuck.sent() == rows_of(2, 3)
    stuck.decide(4)
    stuck.publish(4)
    assert stuck.sent() == rows_of(2, 3, 4)


def test_rows_that_are_sent_again_are_not_doubled(stuck: Stuck) -> None:
    stuck.recover(
        "send-again", "--sink", "sql:seconds", "--sink", "table:firsts", "--from-batch", "1", "--yes"
    )
    assert stuck.sent() == rows_of(1, 2)
    assert stuck.appended() == [(seq, key) for seq in (1, 2) for key in "ab"]


@pytest.mark.parametrize("first", ["0", "4"])
def test_batches_are_resent_from_a_possible_one(stuck: Stuck, first: str) -> None:
    refused = recover(
        *(stuck.environment, "visitors", "--choose", "send-again"),
        *("--sink", "sql:seconds", "--from-batch", first),
    )
    assert "It is one of 1 to 3" in str(refused.exception)


def test_killed_resend_is_finished_by_the_next_run(stuck: Stuck) -> None:
    stuck.lose_outbox(2, "second")
    failed = recover(
        *(stuck.environment, "visitors", "--choose", "send-again", "--sink", "sql:seconds"),
        *("--from-batch", "1", "--yes"),
    )
    assert isinstance(failed.exception, LakeDamaged)
    assert [plan.seq for plan in lacking_batches(stuck.app.ledger, stuck.app.ledger.head(stuck.stream))] == [
        2
    ]
    stuck.recover("give-up", "--yes")
    assert stuck.sent() == rows_of(1)
    assert stuck.app.ledger.head(stuck.stream).send_from is None


def test_rolled_back_iceberg_table_gets_batches_again(tmp_path: Path) -> None:
    stream = Lakehouse(tmp_path)
    for seq in (1, 2, 3):
        stream.decide(seq, ("a", seq))
    first = stream.table.metadata.snapshots[0].snapshot_id
    stream.table.manage_snapshots().set_current_snapshot(first).commit()
    with pytest.raises(ProgressLost, match="send-again"):
        check_progress(stream.app, stream.stream)
    options = ("--choose", "send-again", "--from-batch", "2", "--yes")
    result = recover(stream.environment, "visitors", *options)
    assert result.exit_code == 0, result.output
    assert stream.rows() == [("a", seq, seq) for seq in (1, 2, 3)]
    check_progress(stream.app, stream.stream)


def test_shown_command_repeats_the_given_options(stuck: Stuck) -> None:
    shown = stuck.recover("send-again", "--sink", "sql:seconds", "--from-batch", "2", "--by", "ann lee")
    command = shown.partition("To do it: tidegate ")[2]
    result = CliRunner().invoke(cli, shlex.split(command), env=stuck.environment)
    assert "sql:seconds is published to from batch 2 on." in result.output
    assert stuck.app.ledger.recoveries(stuck.stream)[-1].decided_by == "ann lee"
