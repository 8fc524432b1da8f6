"""Generations that share a table of ClickHouse: promoted, taken back, killed meanwhile, erased."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.clickhouse import ask
from tests.generations.two_generations import NEW, OLD, Beside, filled
from tidegate import failpoints
from tidegate.erasure import erase, plan_erasure, requested_keys
from tidegate.errors import TidegateError

KEY = "canary-4711"
APPEND = "  - {kind: clickhouse, table: seconds}"
UPSERT = "  - {kind: clickhouse, table: seconds, mode: upsert}"
POINTS = ["clickhouse.read_progress", "clickhouse.create", "clickhouse.insert", "clickhouse.progress"]


def beside_in(folder: Path, url: str, sinks: str = APPEND) -> Beside:
    return Beside(folder, sinks, clickhouse=url)


def rows(beside: Beside) -> list[tuple[str, int, str, int]]:
    """Return stream, batch, key and value of the rows that a reader with FINAL sees."""
    url = beside.old.environment["TIDEGATE_CLICKHOUSE"]
    read = ask(url, "SELECT stream, seq, key, m FROM seconds FINAL")
    return [(stream, seq, key, value) for stream, seq, key, value in sorted(read, key=str)]


def test_promotion_and_rollback_append_each_batch_once(tmp_path: Path, clickhouse_url: str) -> None:
    beside = beside_in(tmp_path, clickhouse_url)
    beside.fill()
    assert rows(beside) == OLD
    beside.promote(beside.new)
    assert rows(beside) == [*OLD, *NEW]
    beside.decide(beside.old, 3, [("a", 3)])
    beside.decide(beside.new, 3, [("d", 30)])
    assert rows(beside) == [*OLD, *NEW, ("visitors/2", 3, "d", 30)]
    beside.rollback()
    assert rows(beside) == [*OLD, ("visitors/1", 3, "a", 3), *NEW, ("visitors/2", 3, "d", 30)]


def test_promotion_writes_over_upserted_rows(tmp_path: Path, clickhouse_url: str) -> None:
    beside = beside_in(tmp_path, clickhouse_url, UPSERT)
    beside.fill()
    beside.promote(beside.new)
    assert rows(beside) == [NEW[1], NEW[2], NEW[3]]
    beside.decide(beside.new, 3, [("b", None)])
    assert rows(beside) == [NEW[2], NEW[3]]
    beside.rollback()
    beside.decide(beside.old, 3, [("b", 3)])
    assert rows(beside) == [("visitors/1", 3, "b", 3), NEW[2], NEW[3]]


def test_late_rows_of_the_replaced_generation_lose(tmp_path: Path, clickhouse_url: str) -> None:
    """Also if their batches have greater numbers than those of the generation in charge."""
    beside = beside_in(tmp_path, clickhouse_url, UPSERT)
    for seq in (3, 4, 5):
        beside.decide(beside.old, seq, [("a", seq)])
    beside.fill([], [], [])
    ask(clickhouse_url, "CREATE TABLE late AS seconds")
    ask(clickhouse_url, "INSERT INTO late SELECT * FROM seconds")
    beside.promote(beside.new)
    shown = rows(beside)
    ask(clickhouse_url, "INSERT INTO seconds SELECT * FROM late")
    assert rows(beside) == shown == [NEW[1], NEW[2], NEW[3]]


def test_net_promotion_and_rollback_change_rows(tmp_path: Path, clickhouse_url: str) -> None:
    beside = filled(tmp_path, UPSERT, clickhouse=clickhouse_url)

    def values() -> list[tuple[str, int]]:
        return sorted((key, value) for _, _, key, value in rows(beside))

    before = [("a", 2), ("b", 1), ("gone", 1), ("same", 5)]
    assert values() == before
    beside.promote(beside.new, is_net=True)
    assert values() == [("a", 20), ("b", 10), ("c", 20), ("same", 5)]
    beside.rollback(is_net=True)
    assert values() == before


@pytest.mark.parametrize("action", ["raise", "lose"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.sample(1)
def test_interrupted_promotion_is_finished_by_the_next(
    tmp_path: Path, clickhouse_url: str, monkeypatch: pytest.MonkeyPatch, point: str, action: str
) -> None:
    beside = beside_in(tmp_path, clickhouse_url)
    beside.fill()
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{point}={action}")
    with suppress(failpoints.FailpointRaised, failpoints.ReplyLost, TidegateError):
        beside.promote(beside.new, "promoter")
    assert failpoints._hits[point]
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    for stream in (beside.old.stream, beside.new.stream):
        beside.old.app.ledger.acquire(stream, "promoter").release()  # a killed one's lease would run out
    beside.promote(beside.new, "promoter")
    assert (beside.in_charge, rows(beside)) == (2, [*OLD, *NEW])


@pytest.mark.parametrize(
    "fault", ["clickhouse.insert=kill@2", "clickhouse.progress=kill_after@1", "clickhouse.progress=kill@2"]
)
@pytest.mark.sample(1)
def test_killed_promotion_is_finished_by_the_next(tmp_path: Path, clickhouse_url: str, fault: str) -> None:
    beside = beside_in(tmp_path, clickhouse_url, UPSERT)
    beside.fill()
    command = [sys.executable, "-c", "from tidegate.cli import main; main()", "generation", "promote"]
    fired = {"TIDEGATE_FAILPOINTS": fault, "TIDEGATE_FAILPOINTS_FIRED": f"{tmp_path}/fired"}
    environment = os.environ | beside.old.environment | fired
    for code in (-signal.SIGKILL, 0):
        done = subprocess.run([*command, "visitors", "2"], env=environment, check=False, timeout=600)
        assert done.returncode == code
        ledger = beside.old.app.ledger
        for stream in (beside.old.stream, beside.new.stream):
            holder = ledger.lease_holder(stream)
            if holder is not None:
                ledger.acquire(stream, holder).release()
    assert (beside.in_charge, rows(beside)) == (2, [NEW[1], NEW[2], NEW[3]])


def erased(beside: Beside) -> None:
    app = beside.old.app
    planned = plan_erasure(app, "visitors", requested_keys(app, "visitors", None, [KEY]))
    erase(app, planned, "tester", lambda _: None)


@pytest.mark.parametrize("sinks", [APPEND, UPSERT])
@pytest.mark.sample(1)
def test_erasure_takes_what_each_generation_has_sent(tmp_path: Path, clickhouse_url: str, sinks: str) -> None:
    beside = beside_in(tmp_path / "home", clickhouse_url, sinks)
    beside.decide(beside.old, 3, [(KEY, 1), ("e", 1)])
    beside.fill([("c", 30)])
    beside.promote(beside.new)
    beside.decide(beside.new, 4, [(KEY, 40)])
    assert KEY in [key for _, _, key, _ in rows(beside)]
    erased(beside)
    stored = ask(clickhouse_url, f"SELECT count() FROM seconds WHERE key = '{KEY}'")
    assert [int(number) for (number,) in stored] == [0]
    left = rows(beside)
    assert ("visitors/1", 3, "e", 1) in left
    assert ("visitors/2", 3, "c", 30) in left
    beside.decide(beside.new, 6, [(KEY, 60)])
    assert ("visitors/2", 6, KEY, 60) in rows(beside)
    beside.rollback()
    beside.decide(beside.old, 5, [("e", 5)])
    assert ("visitors/1", 5, "e", 5) in rows(beside)
