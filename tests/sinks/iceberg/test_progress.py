"""What the table itself says decides what is written: whatever fails, each batch is in it once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from tests.conftest import REPOSITORY
from tests.sinks.iceberg.lakehouse import APPEND, NAME, Lakehouse
from tidegate import failpoints
from tidegate.app import App
from tidegate.batch import check_progress
from tidegate.errors import (
    Fenced,
    LedgerMismatch,
    OutcomeUnknown,
    ProgressLost,
    ProgressUnreadable,
    SettingsInvalid,
    SinkAhead,
    SinkRefused,
    SinkUnavailable,
    TidegateError,
)
from tidegate.failpoints import FailpointRaised
from tidegate.iceberg.catalog import CatalogConfig
from tidegate.sinks.iceberg.sink import OpenIcebergTable

POINTS = ["iceberg.read_progress", "iceberg.create", "iceberg.write", "iceberg.commit", "iceberg.flush"]


def sink_of(stream: Lakehouse) -> OpenIcebergTable:
    (sink,) = stream.app.sinks(stream.stream, stream.pipeline)
    assert isinstance(sink, OpenIcebergTable)
    return sink


@pytest.mark.parametrize("action", ["raise", "lose"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.sample(2)
def test_failed_step_leaves_each_row_once(
    appending: Lakehouse, monkeypatch: pytest.MonkeyPatch, point: str, action: str
) -> None:
    appending.commit(1, {"first": [("a", 1), ("b", 2)]})
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{point}={action}")
    try:
        appending.publish(1)
        failed = False
    except (FailpointRaised, TidegateError):
        failed = True
    assert failpoints._hits[point]
    assert failed == ((point, action) != ("iceberg.commit", "lose"))  # the table shows that it was made
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    appending.publish(1)
    appending.publish(1)
    assert appending.rows() == [("a", 1, 1), ("b", 2, 1)]
    assert len(appending.table.snapshots()) == 1


@pytest.mark.parametrize("kill", ["kill", "kill_after"])
@pytest.mark.parametrize("point", ["iceberg.create", "iceberg.write", "iceberg.commit", "iceberg.flush"])
@pytest.mark.process
@pytest.mark.sample(2)
def test_killed_process_leaves_each_row_once(upserting: Lakehouse, point: str, kill: str) -> None:
    upserting.commit(1, {"first": [("a", 1), ("b", 2), ("a", 3)]})
    # No fork: threads of DuckDB and PyIceberg hold locks that a forked process would wait for.
    environment = {**os.environ, **upserting.environment, "TIDEGATE_FAILPOINTS": f"{point}={kill}"}
    command = [sys.executable, "-m", "tests.sinks.publishing"]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, check=False, timeout=600)
    assert done.returncode == -signal.SIGKILL
    upserting.publish(1)
    assert upserting.rows() == [("a", 3, 1), ("b", 2, 1)]


def test_second_of_two_publishers_is_fenced(appending: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one commits the batch after this one has read the table."""
    appending.decide(1, ("a", 1))
    appending.commit(2, {"first": [("b", 2)]})
    commit, raced = Table._do_commit, list[str]()

    def after_the_other(table: Table, *change: Any) -> None:
        if not raced:
            raced.append("once")
            appending.publish(2)
        commit(table, *change)

    monkeypatch.setattr(Table, "_do_commit", after_the_other)
    plan = appending.app.ledger.plan(appending.stream, 2)
    assert plan is not None
    sink, attempt = sink_of(appending), appending.app.ledger.attempt(appending.stream, 2)
    assert attempt is not None
    with pytest.raises(Fenced, match="at the same time"):
        sink.publish(appending.lease, sink.outbox(plan, attempt), 1)
    assert appending.rows() == [("a", 1, 1), ("b", 2, 2)]


def test_commit_without_confirmation_is_an_unknown_outcome(
    appending: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.exceptions import CommitStateUnknownException

    def silent(*_: Any) -> None:
        raise CommitStateUnknownException("gateway timeout")

    appending.decide(1, ("a", 1))
    appending.commit(2, {"first": [("b", 2)]})
    commit = Table._do_commit
    monkeypatch.setattr(Table, "_do_commit", silent)
    with pytest.raises(OutcomeUnknown, match="gateway timeout"):
        appending.publish(2)
    monkeypatch.setattr(Table, "_do_commit", commit)
    appending.publish(2)
    assert appending.rows() == [("a", 1, 1), ("b", 2, 2)]


def test_table_with_a_later_batch_gets_nothing(appending: Lakehouse) -> None:
    appending.decide(1, ("a", 1))
    appending.decide(2, ("b", 2))
    plan, attempt = (
        ask(appending.stream, 1) for ask in (appending.app.ledger.plan, appending.app.ledger.attempt)
    )
    sink = sink_of(appending)
    with pytest.raises(SinkAhead):
        sink.publish(appending.lease, sink.outbox(plan, attempt), 0)  # type: ignore[arg-type]


def test_attempt_of_another_ledger_is_refused(appending: Lakehouse, tmp_path: Path) -> None:
    appending.decide(1, ("a", 1))
    (tmp_path / "other").mkdir()
    other = Lakehouse(tmp_path / "other")
    other.suffix = "0000000b"
    other.environment["TIDEGATE_ICEBERG"] = appending.environment["TIDEGATE_ICEBERG"]
    other.app = App.from_environment(other.environment)
    other.commit(1, {"first": [("a", 9)]})
    with pytest.raises(LedgerMismatch):
        other.publish(1)
    assert appending.rows() == [("a", 1, 1)]


def test_rolled_back_table_has_lost_its_progress(appending: Lakehouse) -> None:
    appending.decide(1, ("a", 1))
    first = appending.table.current_snapshot()
    appending.decide(2, ("b", 2))
    check_progress(appending.app, appending.stream)
    appending.table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    with pytest.raises(ProgressLost, match="it says batch 1"):
        check_progress(appending.app, appending.stream)


def test_expired_history_does_not_lose_progress(appending: Lakehouse) -> None:
    """Another program has appended a snapshot, and removed all others."""
    appending.decide(1, ("a", 1))
    table = appending.table
    table.append(table.scan().to_arrow())
    table.maintenance.expire_snapshots().by_ids([table.snapshots()[0].snapshot_id]).commit()
    check_progress(appending.app, appending.stream)
    appending.decide(2, ("b", 2))
    assert appending.rows() == [("a", 1, 1), ("a", 1, 1), ("b", 2, 2)]


def test_dropped_table_is_not_created_again(appending: Lakehouse) -> None:
    appending.decide(1, ("a", 1))
    appending.catalog.drop_table(NAME)
    appending.commit(2, {"first": [("b", 2)]})
    with pytest.raises(ProgressLost, match="it says batch 0"):
        appending.publish(2)
    assert not appending.catalog.table_exists(NAME)


def test_progress_of_a_newer_format_is_unreadable(appending: Lakehouse) -> None:
    appending.decide(1, ("a", 1))
    shard, text = "tidegate-visitors-g1-iceberg:shop.visitors", json.dumps([99, 7])
    with appending.table.transaction() as transaction:
        summary = {"tidegate.shard": shard, "tidegate.progress": text}
        with transaction.update_snapshot(snapshot_properties=summary).fast_append():
            pass
    with pytest.raises(ProgressUnreadable, match=r"has format 99; this tidegate reads 1"):
        check_progress(appending.app, appending.stream)


def test_restart_removes_rows_of_later_batches(appending: Lakehouse) -> None:
    for seq in (1, 2, 3):
        appending.decide(seq, ("a", seq))
    sink = sink_of(appending)
    sink.restart_after(appending.lease, 1)
    assert (appending.rows(), appending.marks()[-1][0]) == ([("a", 1, 1)], 1)
    assert sink.publish_again(appending.app.ledger.acquire(appending.stream, "test"), range(2, 4)) == [2, 3]
    assert appending.rows() == [("a", 1, 1), ("a", 2, 2), ("a", 3, 3)]


def test_restarted_upsert_writes_rows_over(upserting: Lakehouse) -> None:
    for seq in (1, 2):
        upserting.decide(seq, ("a", seq))
    sink = sink_of(upserting)
    sink.restart_after(upserting.lease, 1)
    assert upserting.rows() == [("a", 2, 2)]
    sink.publish_again(upserting.app.ledger.acquire(upserting.stream, "test"), range(2, 3))
    assert (upserting.rows(), upserting.marks()[-1][0]) == ([("a", 2, 2)], 2)


def test_sealed_batch_is_not_published(appending: Lakehouse) -> None:
    appending.decide(1, ("a", 1))
    appending.commit(2, {"first": [("b", 2)]})
    sink = sink_of(appending)
    assert sink.seal(appending.lease, 2) == 0
    assert sink.seal(appending.lease, 1) == 1
    appending.publish(2)
    assert appending.rows() == [("a", 1, 1)]


def test_catalog_that_does_not_answer_is_transient(tmp_path: Path) -> None:
    stream = Lakehouse(tmp_path, APPEND, "postgresql+psycopg://tide:canary-4711@127.0.0.1:1/none")
    stream.commit(1, {"first": [("a", 1)]})
    with pytest.raises(SinkUnavailable, match="TIDEGATE_ICEBERG") as raised:
        stream.publish(1)
    assert "canary" not in str(raised.value)


def test_missing_catalog_is_named(tmp_path: Path) -> None:
    stream = Lakehouse(tmp_path, APPEND, f"sqlite:///{tmp_path}/missing/catalog.db")
    message = r"TIDEGATE_ICEBERG \(sqlite:.*missing/catalog.db\).* unable to open.*Check their addresses"
    with pytest.raises(SinkUnavailable, match=message):
        sink_of(stream).check_target()


def test_unusable_warehouse_is_named(tmp_path: Path) -> None:
    (tmp_path / "warehouse").write_text("a file")
    stream = Lakehouse(tmp_path)
    stream.commit(1, {"first": [("a", 1)]})
    with pytest.raises(SinkUnavailable, match=r"/warehouse/shop/visitors of the new.*Check the warehouse in"):
        stream.publish(1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sqlite:////tmp/x.db", "without a warehouse"),
        ('{"warehouse": "/tmp/x"}', "has no uri"),
        ('{"uri": "sqlite://", "warehouse": "/tmp/x"}', "in memory"),
        ('{"uri": "https://a", "py-io-impl": "os.system"}', "does not support"),
        ('{"uri": ', "neither a URL nor a JSON object"),
        ("https://", "no URL of a catalog"),
    ],
)
def test_wrong_properties_are_refused(text: str, message: str) -> None:
    with pytest.raises(SettingsInvalid, match=message):
        CatalogConfig.parse(text)


def test_secrets_are_not_shown() -> None:
    properties = {
        "uri": "https://me:canary-1@a:8181/x",
        "credential": "id:canary-2",
        "s3.secret-access-key": "canary-3",
    }
    config = CatalogConfig.parse(json.dumps(properties))
    shown = f"{config} {config.place} {config.message(ValueError('canary-1 id:canary-2 canary-2 canary-3'))}"
    assert "canary" not in shown
    assert config.place == "https://a:8181"


def test_new_table_in_a_pipelines_folder_is_refused(tmp_path: Path) -> None:
    stream = Lakehouse(tmp_path, "  - {kind: iceberg, table: visitors.state}")
    stream.environment["TIDEGATE_ICEBERG"] = json.dumps(
        {"uri": stream.catalog_url, "warehouse": f"{tmp_path}/lake"}
    )
    stream.app = App.from_environment(stream.environment)
    with pytest.raises(SinkRefused, match="overlap"):
        sink_of(stream).check_settings()


def test_batch_is_flushed_with_its_metadata(appending: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr("tidegate.storage.store._flush_place", flushed.append)
    appending.decide(1, ("a", 1))
    table = Path(appending.warehouse.removeprefix("file://")) / "shop" / "visitors"
    committed = {
        file for file in table.rglob("*") if not file.name.startswith("00000-") or "data" in file.parts
    }
    assert committed <= set(flushed)
