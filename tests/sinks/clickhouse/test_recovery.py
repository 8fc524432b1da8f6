"""`tidegate recover` for a stream with a ClickHouse sink: give a batch up, and send batches again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.recovery.commands import recover
from tests.sinks.clickhouse.house import APPEND, UPSERT, House
from tidegate import failpoints
from tidegate.batch import check_progress
from tidegate.errors import LakeDamaged, ProgressLost, SinkUnavailable

NAME = "clickhouse:visitors"


def stuck(folder: Path, url: str, sinks: str) -> House:
    """Return a stream whose third batch is decided, and whose outbox is lost."""
    stream = House(folder, url, sinks)
    for seq in (1, 2):
        stream.decide(seq, ("a", seq))
    stream.commit(3, {"first": [("a", 3), ("b", 3)]})
    stream.lease.release()
    (file,) = (folder / "lake" / "visitors").rglob(f"first/outbox/_files/{3:010d}*/*.parquet")
    file.unlink()
    with pytest.raises(LakeDamaged):
        stream.publish(3)
    return stream


def choose(stream: House, remedy: str, *options: str) -> None:
    result = recover(stream.environment, "visitors", "--choose", remedy, *options, "--yes")
    assert result.exit_code == 0, (result.output, result.exception)


@pytest.mark.parametrize(("sinks", "rows"), [(APPEND, 3), (UPSERT, 1)])
def test_given_up_batch_is_passed_over(tmp_path: Path, clickhouse_url: str, sinks: str, rows: int) -> None:
    stream = stuck(tmp_path, clickhouse_url, sinks)
    choose(stream, "give-up")
    (given_up,) = stream.app.ledger.given_up(stream.stream)
    assert (given_up.seq, given_up.sink, given_up.sent, given_up.records) == (3, NAME, 0, 2)
    stream.decide(4, ("a", 4))
    assert stream.rows() == [("a", 1, 1), ("a", 2, 2), ("a", 4, 4)][-rows:]
    assert stream.progress() == (4, 1)
    check_progress(stream.app, stream.stream)


@pytest.mark.parametrize("action", ["raise", "lose"])
@pytest.mark.parametrize("point", ["clickhouse.seal", "clickhouse.progress", "ledger.give_up_publication"])
@pytest.mark.sample(2)
def test_interrupted_giving_up_goes_on(
    tmp_path: Path, clickhouse_url: str, monkeypatch: pytest.MonkeyPatch, point: str, action: str
) -> None:
    stream = stuck(tmp_path, clickhouse_url, APPEND)
    interrupt(stream, monkeypatch, f"{point}={action}", "give-up")
    if not stream.app.ledger.given_up(stream.stream):
        choose(stream, "give-up")
    stream.decide(4, ("a", 4))
    assert stream.rows() == [("a", 1, 1), ("a", 2, 2), ("a", 4, 4)]
    check_progress(stream.app, stream.stream)


def interrupt(stream: House, monkeypatch: pytest.MonkeyPatch, fault: str, *choice: str) -> None:
    """Let a fault interrupt the command. Fails if the fault does not happen."""
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    armed = stream.environment | {"TIDEGATE_FAILPOINTS": fault}
    recover(armed, "visitors", "--choose", *choice, "--yes")
    assert failpoints._hits[fault.partition("=")[0]]


def test_sink_without_server_is_given_up(tmp_path: Path, clickhouse_url: str) -> None:
    stream = House(tmp_path, clickhouse_url)
    stream.decide(1, ("a", 1))
    stream.commit(2, {"first": [("a", 2)]})
    stream.lease.release()
    environment = stream.environment | {"TIDEGATE_CLICKHOUSE": "http://127.0.0.1:1"}
    refused = recover(environment, "visitors", "--choose", "give-up", "--yes")
    assert isinstance(refused.exception, SinkUnavailable)
    result = recover(environment, "visitors", "--choose", "give-up", "--sink", NAME, "--yes")
    assert result.exit_code == 0, (result.output, result.exception)
    stream.decide(3, ("a", 3))
    assert stream.rows() == [("a", 1, 1), ("a", 3, 3)]


@pytest.mark.parametrize("action", ["raise", "lose"])
@pytest.mark.parametrize(
    "point", ["clickhouse.restart", "clickhouse.progress", "clickhouse.insert", "ledger.end_sending_again"]
)
@pytest.mark.parametrize("sinks", [APPEND, UPSERT])
@pytest.mark.sample(2)
def test_interrupted_sending_again_goes_on(
    tmp_path: Path, clickhouse_url: str, monkeypatch: pytest.MonkeyPatch, sinks: str, point: str, action: str
) -> None:
    stream = House(tmp_path, clickhouse_url, sinks)
    for seq in (1, 2, 3):
        stream.decide(seq, ("a", seq))
    rows = stream.rows()
    for table in ("visitors", "tidegate_progress"):  # as after a restore of a backup
        stream.ask(f"CREATE TABLE copied AS {table}")
        stream.ask(f"INSERT INTO copied SELECT * FROM {table}")
        stream.ask(f"DROP TABLE {table}")
        stream.ask(f"RENAME TABLE copied TO {table}")
    stream.ask("ALTER TABLE visitors DELETE WHERE seq > 1 SETTINGS mutations_sync = 2")
    with pytest.raises(ProgressLost):
        check_progress(stream.app, stream.stream)
    choice = ("send-again", "--from-batch", "2")
    interrupt(stream, monkeypatch, f"{point}={action}", *choice)
    choose(stream, *choice)
    stream.publish(3)  # the next run: the ledger may know already what it has to send
    assert stream.rows() == rows
    check_progress(stream.app, stream.stream)
