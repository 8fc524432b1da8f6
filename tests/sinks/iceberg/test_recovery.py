"""`tidegate recover` for a stream with an Iceberg sink: give a batch up, and send batches again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.recovery.commands import recover
from tests.sinks.iceberg.lakehouse import APPEND, UPSERT, Lakehouse
from tidegate import failpoints
from tidegate.batch import check_progress
from tidegate.errors import LakeDamaged, ProgressLost, SinkUnavailable

NAME = "iceberg:shop.visitors"


def stuck(folder: Path, sinks: str) -> Lakehouse:
    """Return a stream whose third batch is decided, and whose outbox is lost."""
    stream = Lakehouse(folder, sinks)
    for seq in (1, 2):
        stream.decide(seq, ("a", seq))
    stream.commit(3, {"first": [("a", 3), ("b", 3)]})
    stream.lease.release()
    (file,) = (folder / "lake" / "visitors").rglob(f"first/outbox/_files/{3:010d}*/*.parquet")
    file.unlink()
    with pytest.raises(LakeDamaged):
        stream.publish(3)
    return stream


def choose(stream: Lakehouse, remedy: str, *options: str) -> None:
    result = recover(stream.environment, "visitors", "--choose", remedy, *options, "--yes")
    assert result.exit_code == 0, (result.output, result.exception)


@pytest.mark.parametrize(("sinks", "rows"), [(APPEND, 3), (UPSERT, 1)])
def test_given_up_batch_is_passed_over(tmp_path: Path, sinks: str, rows: int) -> None:
    stream = stuck(tmp_path, sinks)
    choose(stream, "give-up")
    (given_up,) = stream.app.ledger.given_up(stream.stream)
    assert (given_up.seq, given_up.sink, given_up.sent, given_up.records) == (3, NAME, 0, 2)
    stream.decide(4, ("a", 4))
    assert stream.rows() == [("a", 1, 1), ("a", 2, 2), ("a", 4, 4)][-rows:]
    assert [seq for seq, _ in stream.marks()] == [1, 2, 3, 4]
    check_progress(stream.app, stream.stream)


@pytest.mark.parametrize("action", ["raise", "lose"])
@pytest.mark.parametrize("point", ["iceberg.seal", "iceberg.commit", "ledger.give_up_publication"])
@pytest.mark.sample(2)
def test_interrupted_giving_up_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, action: str
) -> None:
    stream = stuck(tmp_path, APPEND)
    interrupt(stream, monkeypatch, f"{point}={action}", "give-up")
    if not stream.app.ledger.given_up(stream.stream):
        choose(stream, "give-up")
    stream.decide(4, ("a", 4))
    assert stream.rows() == [("a", 1, 1), ("a", 2, 2), ("a", 4, 4)]
    check_progress(stream.app, stream.stream)


def interrupt(stream: Lakehouse, monkeypatch: pytest.MonkeyPatch, fault: str, *choice: str) -> None:
    """Let a fault interrupt the command. Fails if the fault does not happen."""
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    armed = stream.environment | {"TIDEGATE_FAILPOINTS": fault}
    recover(armed, "visitors", "--choose", *choice, "--yes")
    assert failpoints._hits[fault.partition("=")[0]]


def test_sink_without_catalog_is_given_up(tmp_path: Path) -> None:
    stream = Lakehouse(tmp_path)
    stream.decide(1, ("a", 1))
    stream.commit(2, {"first": [("a", 2)]})
    stream.lease.release()
    lost = {"uri": f"sqlite:///{tmp_path}/lost/catalog.db", "warehouse": stream.warehouse}
    environment = stream.environment | {"TIDEGATE_ICEBERG": json.dumps(lost)}
    refused = recover(environment, "visitors", "--choose", "give-up", "--yes")
    assert isinstance(refused.exception, SinkUnavailable)
    result = recover(environment, "visitors", "--choose", "give-up", "--sink", NAME, "--yes")
    assert result.exit_code == 0, (result.output, result.exception)
    stream.decide(3, ("a", 3))
    assert stream.rows() == [("a", 1, 1), ("a", 3, 3)]


@pytest.mark.parametrize("action", ["raise", "lose"])
@pytest.mark.parametrize(
    "point", ["iceberg.restart", "iceberg.commit", "iceberg.write", "ledger.end_sending_again"]
)
@pytest.mark.parametrize("sinks", [APPEND, UPSERT])
@pytest.mark.sample(2)
def test_interrupted_sending_again_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sinks: str, point: str, action: str
) -> None:
    stream = Lakehouse(tmp_path, sinks)
    for seq in (1, 2, 3):
        stream.decide(seq, ("a", seq))
    rows = stream.rows()
    first = stream.table.metadata.snapshots[0].snapshot_id
    stream.table.manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(ProgressLost):
        check_progress(stream.app, stream.stream)
    choice = ("send-again", "--from-batch", "2")
    interrupt(stream, monkeypatch, f"{point}={action}", *choice)
    choose(stream, *choice)
    assert stream.rows() == rows
    check_progress(stream.app, stream.stream)
