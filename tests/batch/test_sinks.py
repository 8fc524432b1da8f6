"""Publication to the sinks of several stages: each gets its stage's outbox once, whatever fails between."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.batch.committed import Committed
from tidegate.batch import Trigger, commit_batch, plan_batch, validate_batch
from tidegate.errors import Halted, PipelineInvalid, SettingsInvalid, SinkRefused, SinkUnavailable
from tidegate.failpoints import FailpointRaised, ReplyLost
from tidegate.ledger import schema
from tidegate.sinks.kafka.model import KafkaSink
from tidegate.sinks.port import OpenSink
from tidegate.sinks.sql.model import SqlSink
from tidegate.sinks.table.model import TableSink

SINKS = """\
  - {kind: sql, table: firsts, stage: first, with_key: true}
  - {kind: sql, table: seconds, mode: upsert}
  - {kind: table, stage: first}
"""
BATCH = {"first": [("1", 10), ("2", 20), ("2", None)], "second": [("1", 11)]}
FIRSTS = 'SELECT key, "customerId", n, deleted, batch FROM firsts ORDER BY batch, ordinal'


def sinks_of(committed: Committed) -> list[OpenSink[Any]]:
    return list(committed.app.sinks(committed.stream, committed.pipeline))


@pytest.fixture
def committed(tmp_path: Path) -> Committed:
    return Committed(tmp_path, SINKS, f"sqlite:///{tmp_path / 'sink.db'}")


def test_each_sink_gets_the_outbox_of_its_stage(committed: Committed) -> None:
    committed.commit(1, BATCH)
    assert committed.publish(1) == {"sql:firsts": 3, "sql:seconds": 1, "table": 3}
    assert committed.query(FIRSTS) == [("1", 1, 10, 0, 1), ("2", 1, 20, 0, 1), ("2", 1, None, 1, 1)]
    assert committed.query("SELECT key, m FROM seconds") == [("1", 11)]
    table = DeltaTable(committed.app.lake(committed.stream).table_sink(None)).to_pyarrow_table()
    assert table.column("n").to_pylist() == [10, 20, None]
    assert committed.publish(1) == {"sql:firsts": 3, "sql:seconds": 1, "table": 3}
    assert len(committed.query(FIRSTS)) == 3


def test_stage_without_emissions_publishes_nothing(committed: Committed) -> None:
    committed.commit(1, {"first": [("1", 10)], "second": []})
    assert committed.publish(1) == {"sql:firsts": 1, "sql:seconds": 0, "table": 1}
    committed.commit(2, {"first": [], "second": [("1", 5)]})
    assert committed.publish(2) == {"sql:firsts": 0, "sql:seconds": 1, "table": 0}
    committed.commit(3, {"first": [("1", 11)], "second": []})
    committed.publish(3)
    assert [row[2] for row in committed.query(FIRSTS)] == [10, 11]


@pytest.mark.parametrize(
    "fault",
    ["sql.advance=lose", "sql.count=lose", "sql.commit=lose", "ledger.add_publication=raise"],
)
@pytest.mark.parametrize("hit", [1, 2])
def test_publisher_killed_between_sinks_sends_nothing_twice(
    committed: Committed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str, hit: int
) -> None:
    committed.commit(1, BATCH)
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{fault}@{hit}")
    monkeypatch.setenv("TIDEGATE_FAILPOINTS_FIRED", str(tmp_path / "fired"))
    with pytest.raises((FailpointRaised, ReplyLost)):
        committed.publish(1)
    assert (tmp_path / "fired").read_text().split() == [f"{fault}@{hit}"]
    committed.publish(1)
    assert [row[2] for row in committed.query(FIRSTS)] == [10, 20, None]
    assert committed.query("SELECT key, m FROM seconds") == [("1", 11)]
    table = DeltaTable(committed.app.lake(committed.stream).table_sink(None)).to_pyarrow_table()
    assert table.num_rows == 3


def test_sink_without_database_stops_the_plan(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: sql, table: t, connection: reports}", "sqlite://")
    with pytest.raises(SettingsInvalid, match="TIDEGATE_SQL_REPORTS is not set"):
        plan_batch(committed.app, committed.pipeline, Trigger("test", 0))


def test_column_named_like_a_table_column_stops_plan(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: sql, table: t}", "sqlite://")
    committed.file.write_text(committed.file.read_text().replace("{m: n}", "{batch: n}"))
    with pytest.raises(PipelineInvalid, match="event_batch"):
        plan_batch(committed.app, committed.pipeline, Trigger("test", 0))
    assert committed.app.ledger.open_plan(committed.stream) is None


def test_unstorable_value_is_found_before_the_commit(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: sql, table: t, mode: upsert}", "postgresql://u@h/never-asked")
    plan = committed.compute(1, {"first": [], "second": [("1" * 3000, 1)]})
    with pytest.raises(SinkRefused, match="3000 bytes"):
        validate_batch(committed.app, plan, "test")
    with pytest.raises(Halted, match="not validated"):
        commit_batch(committed.app, plan, "test")


def test_table_with_another_key_stops_the_plan(committed: Committed) -> None:
    committed.query("CREATE TABLE seconds (key TEXT, batch BIGINT, PRIMARY KEY (key, batch))")
    (sink,) = (sink for sink in sinks_of(committed) if sink.name == "sql:seconds")
    with pytest.raises(SinkRefused, match="seconds exists, but not with the key that `mode: upsert` needs"):
        sink.check_settings()


def test_table_with_another_key_stops_the_commit(committed: Committed) -> None:
    plan = committed.compute(1, BATCH)
    committed.query("CREATE TABLE seconds (key TEXT, batch BIGINT, PRIMARY KEY (key, batch))")
    with pytest.raises(SinkRefused, match="seconds exists, but not with the key that `mode: upsert` needs"):
        validate_batch(committed.app, plan, "test")
    assert committed.app.ledger.head(committed.stream).seq == 0


def test_unreachable_database_does_not_block_the_decision(
    committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path(committed.folder) / "sink.db").mkdir()
    for sink in sinks_of(committed):
        sink.check_settings()
    plan = committed.compute(1, BATCH)
    validate_batch(committed.app, plan, "test")
    commit_batch(committed.app, plan, "test")
    with pytest.raises(SinkUnavailable):
        committed.publish(1)


def test_a_look_at_a_table_makes_no_database(committed: Committed) -> None:
    for sink in sinks_of(committed):
        sink.check_settings()
    assert not (committed.folder / "sink.db").exists()


def test_a_sinks_longest_name_fits_into_the_ledger() -> None:
    topic = KafkaSink(kind="kafka", topic="t" * 249, connection="c" * 63)
    names = [topic.name, TableSink(kind="table", path="x" * 300).name, f"dead-letters:{topic.target}"]
    names.append(SqlSink(kind="sql", table=f"{'s' * 63}.{'t' * 63}", connection="c" * 63).name)
    for table in (schema.publications, schema.sinks, schema.sink_heads):
        assert max(map(len, names)) <= table.c.sink.type.length
