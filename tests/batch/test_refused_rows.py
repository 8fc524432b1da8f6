"""Rows that a database refuses go to quarantine exactly once, and the other rows are written."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.batch.committed import Committed, Row
from tests.quarantines import stored_quarantine
from tests.recovery.commands import recover
from tidegate.batch import Trigger, commit_batch, plan_batch, validate_batch
from tidegate.batch_counts import REFUSED_ROW
from tidegate.errors import QuarantineExceeded, SettingsInvalid, SinkRefused, SinkUnavailable
from tidegate.failpoints import FailpointRaised, ReplyLost
from tidegate.ledger import Plan
from tidegate.ledger.report import batch_report

SINKS = """\
  - {kind: sql, table: seconds, mode: upsert, refused_row: quarantine}
  - {kind: table, path: all}
"""
ROWS: list[Row] = [("a", 1), ("b", 9), ("c", 2), ("c", 8), ("d", 3), ("d", None), ("e", 7)]
GOOD = [("a", 1), ("c", 2)]
REFUSED = [("b", 9), ("c", 8), ("e", 7)]


class Refusing(Committed):
    """A stream whose table of the second stage takes only values below 5."""

    def __init__(self, folder: Path, sinks: str = SINKS) -> None:
        super().__init__(folder, sinks, f"sqlite:///{folder}/sink.db")
        self.query("CREATE TABLE seconds (key TEXT PRIMARY KEY, m INT CHECK (m < 5))")

    def computed(self, rows: list[Row] = ROWS) -> Plan:
        plan = self.compute(1, {"first": [], "second": rows})
        self.lease.release()
        return plan

    def decide(self, plan: Plan) -> dict[str, int]:
        validate_batch(self.app, plan, "test")
        commit_batch(self.app, plan, "test")
        return self.publish(plan.seq)

    def quarantined(self) -> list[tuple[str, int]]:
        rows = stored_quarantine(self.app, self.stream)
        assert all(row["reason"] == "refused_row: CHECK constraint failed: m < 5" for row in rows)
        return [(row["key"].decode(), json.loads(row["value"])["m"]) for row in rows]

    def stored(self) -> list[tuple[Any, ...]]:
        return self.query("SELECT key, m FROM seconds ORDER BY key")

    def appended(self) -> list[tuple[str, int | None]]:
        rows = DeltaTable(f"{self.folder}/lake/all").to_pyarrow_table().to_pylist()
        return sorted((row["key"], row["m"]) for row in rows if row["m"] is not None)


@pytest.fixture
def refusing(tmp_path: Path) -> Refusing:
    return Refusing(tmp_path)


def test_refused_rows_are_quarantined_and_others_written(refusing: Refusing) -> None:
    refusing.outbox_files = 3
    plan = refusing.computed()
    assert refusing.decide(plan) == {"sql:seconds": 4, "table:all": 4}
    assert refusing.stored() == GOOD
    assert refusing.appended() == [("a", 1), ("c", 2), ("d", 3)], "no sink of the stage gets what one refuses"
    assert refusing.quarantined() == REFUSED
    attempt = refusing.app.ledger.attempt(refusing.stream, 1)
    assert attempt is not None
    assert attempt.stage_counts("second") == {"emitted": 7, REFUSED_ROW: 3}
    metrics = refusing.app.ledger.metrics(refusing.stream, 1)
    assert (metrics["second", REFUSED_ROW], metrics["", "quarantined.refused_row"]) == (3, 3)
    report = batch_report(refusing.app.ledger, refusing.stream, 1)
    assert report is not None
    assert report.quarantined == 3


def test_position_of_the_record_is_in_quarantine(refusing: Refusing) -> None:
    refusing.decide(refusing.computed([("a", 1), ("b", 9)]))
    (row,) = stored_quarantine(refusing.app, refusing.stream)
    place = {name: row[name] for name in ("topic", "partition", "offset", "part", "timestamp", "seq")}
    assert place == {"topic": "events", "partition": 0, "offset": 11, "part": -1, "timestamp": 1, "seq": 1}


def test_batch_of_refused_rows_publishes_nothing(refusing: Refusing) -> None:
    assert refusing.decide(refusing.computed(REFUSED)) == {"sql:seconds": 0, "table:all": 0}
    assert (refusing.stored(), refusing.quarantined()) == ([], REFUSED)


def test_batch_without_refusals_keeps_its_files(refusing: Refusing) -> None:
    plan = refusing.computed([("a", 1)])
    before = refusing.app.ledger.attempt(refusing.stream, 1)
    validate_batch(refusing.app, plan, "test")
    after = refusing.app.ledger.attempt(refusing.stream, 1)
    assert before is not None
    assert after is not None
    assert (after.manifest, after.counts) == (before.manifest, before.counts)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "fault",
    [
        *(f"sql.trial={action}@{hit}" for action in ("raise", "lose") for hit in (1, 2)),
        *(
            f"{name}={action}@1"
            for name in ("validate.quarantine", "manifest.write")
            for action in ("raise",)
        ),
        *(f"ledger.replace_files={action}@1" for action in ("raise", "lose")),
        *("ledger.set_metrics=raise@1", "ledger.set_validated=raise@1", "ledger.commit=lose@1"),
        *("sql.advance=lose@1", "sql.write=lose@1", "sql.commit=raise@2", "sql.commit=lose@2"),
        *("ledger.add_publication=raise@1", "ledger.add_publication=lose@1"),
    ],
)
def test_killed_step_gives_the_same_result(
    refusing: Refusing, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, fired = refusing.computed(), tmp_path / "fired"
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", fault)
    monkeypatch.setenv("TIDEGATE_FAILPOINTS_FIRED", str(fired))
    with pytest.raises((FailpointRaised, ReplyLost)):
        refusing.decide(plan)
    assert fired.read_text().split() == [fault]
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    assert refusing.decide(plan) == {"sql:seconds": 4, "table:all": 4}
    assert (refusing.stored(), refusing.quarantined()) == (GOOD, REFUSED)
    assert refusing.app.ledger.metrics(refusing.stream, 1)["second", REFUSED_ROW] == 3


def test_bound_of_quarantine_stops_refused_rows(tmp_path: Path) -> None:
    refusing = Refusing(tmp_path, f"{SINKS}quarantine: {{stop: {{count: 2}}}}")
    plan = refusing.computed()
    for _ in range(2):
        with pytest.raises(QuarantineExceeded, match="put 3 into quarantine: refused_row 3, which is more"):
            validate_batch(refusing.app, plan, "test")
    assert refusing.app.ledger.head(refusing.stream).seq == 0
    assert refusing.stored() == []


def test_trial_ends_where_the_bound_stops_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Refusing(tmp_path, f"{SINKS}quarantine: {{stop: {{count: 2}}}}")
    plan = refusing.computed([(f"k{n}", 9) for n in range(50)])
    with pytest.raises(QuarantineExceeded, match="refused_row 3, which is more"):
        validate_batch(refusing.app, plan, "test")
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "sql.trial=raise@1")
    with pytest.raises(QuarantineExceeded, match="refused_row 3, which is more"):
        validate_batch(refusing.app, plan, "test")


def test_every_sink_tries_the_remaining_rows(tmp_path: Path) -> None:
    both = SINKS + "  - {kind: sql, table: odd, refused_row: quarantine}\n"
    refusing = Refusing(tmp_path, both)
    columns = "stream TEXT, batch INT, ordinal INT, PRIMARY KEY (stream, batch, ordinal)"
    refusing.query(f"CREATE TABLE odd (m INT CHECK (m % 2 = 1), {columns})")
    # The newest row of `a` is refused by `odd`; only then the one before it meets `seconds`.
    plan = refusing.computed([("a", 9), ("a", 2), ("b", 3)])
    assert set(refusing.decide(plan).values()) == {1}
    assert refusing.stored() == [("b", 3)]
    reasons = [row["reason"] for row in stored_quarantine(refusing.app, refusing.stream)]
    assert sorted(reasons) == [
        f"refused_row: CHECK constraint failed: {rule}" for rule in ("m % 2 = 1", "m < 5")
    ]


def test_refusal_after_the_decision_halts_with_a_remedy(refusing: Refusing) -> None:
    plan = refusing.computed([("a", 1), ("b", 2)])
    validate_batch(refusing.app, plan, "test")
    commit_batch(refusing.app, plan, "test")
    refusing.query("CREATE UNIQUE INDEX one ON seconds (m > 0)")
    with pytest.raises(SinkRefused, match="UNIQUE constraint failed") as caught:
        refusing.publish(1)
    assert "tidegate recover visitors --choose give-up --generation 1" in caught.value.fix
    assert refusing.stored() == []
    recover(refusing.environment, "visitors", "--choose", "give-up", "--yes")
    assert len(stored_quarantine(refusing.app, refusing.stream)) == 0


def test_without_the_option_a_refused_row_halts(tmp_path: Path) -> None:
    refusing = Refusing(tmp_path, SINKS.replace(", refused_row: quarantine", ""))
    plan = refusing.computed()
    with pytest.raises(SinkRefused, match="CHECK constraint failed"):
        refusing.decide(plan)


def test_batch_waits_for_a_database_that_is_down(refusing: Refusing) -> None:
    plan, file = refusing.computed(), Path(refusing.folder) / "sink.db"
    file.rename(file.with_suffix(".moved"))
    file.mkdir()
    with pytest.raises(SinkUnavailable):
        validate_batch(refusing.app, plan, "test")
    file.rmdir()
    file.with_suffix(".moved").rename(file)
    assert refusing.decide(plan) == {"sql:seconds": 4, "table:all": 4}


def test_database_without_savepoints_stops_the_plan(tmp_path: Path) -> None:
    committed = Committed(tmp_path, SINKS, f"duckdb:///{tmp_path}/sink.db")
    with pytest.raises(SettingsInvalid, match=r"`refused_row: quarantine` of sql:seconds .* of DuckDB"):
        plan_batch(committed.app, committed.pipeline, Trigger("test", 0))
