"""An erasure of a key from a table of ClickHouse: no row has it, and no statement."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.sinks.clickhouse.house import APPEND, UPSERT, House
from tidegate import failpoints
from tidegate.erasure import erase, plan_erasure, requested_keys
from tidegate.errors import TidegateError

KEY = "canary-4711"
POINTS = ["clickhouse.erase", "clickhouse.insert", "clickhouse.progress"]


def erase_key(stream: House) -> None:
    """Erase the key, or go on with the erasure, as the command does."""
    requested = requested_keys(stream.app, "visitors", None, [KEY])
    erase(stream.app, plan_erasure(stream.app, "visitors", requested), "tester", lambda _: None)


def filled(folder: Path, url: str, sinks: str) -> House:
    stream = House(folder, url, sinks)
    stream.decide(1, (KEY, 1), ("a", 1))
    stream.decide(2, ("b", 2))
    stream.decide(3, (KEY, 3), ("a", 3))
    return stream


def stored_keys(stream: House) -> set[str]:
    """Return the keys of all rows that the table stores, also of deletions and replaced rows."""
    return {key for (key,) in stream.ask("SELECT DISTINCT key FROM visitors")}


@pytest.mark.parametrize(("sinks", "rows"), [(APPEND, 3), (UPSERT, 2)])
def test_no_row_has_an_erased_key(tmp_path: Path, clickhouse_url: str, sinks: str, rows: int) -> None:
    stream = filled(tmp_path, clickhouse_url, sinks)
    erase_key(stream)
    assert stored_keys(stream) == {"a", "b"}
    assert [key for key, *_ in stream.rows()] == ["a", "a", "b"][-rows:]
    stream.decide(5, (KEY, 5))
    assert (KEY, 5, 5) in stream.rows()


def test_no_statement_has_an_erased_key(tmp_path: Path, clickhouse_url: str) -> None:
    stream = filled(tmp_path, clickhouse_url, APPEND)
    erase_key(stream)
    read = "SELECT command FROM system.mutations WHERE database = currentDatabase()"
    mutations = [command for (command,) in stream.ask(read)]
    assert len(mutations) == 2
    assert KEY not in str(mutations)


@pytest.mark.parametrize("action", ["raise", "lose"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.sample(1)
def test_failed_erasure_goes_on(
    tmp_path: Path, clickhouse_url: str, monkeypatch: pytest.MonkeyPatch, point: str, action: str
) -> None:
    stream = filled(tmp_path, clickhouse_url, APPEND)
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{point}={action}")
    with suppress(failpoints.FailpointRaised, failpoints.ReplyLost, TidegateError):
        erase_key(stream)
    assert failpoints._hits[point]
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    erase_key(stream)
    assert (stored_keys(stream), len(stream.rows())) == ({"a", "b"}, 3)


def test_rows_of_another_pipeline_stay(tmp_path: Path, clickhouse_url: str) -> None:
    stream = filled(tmp_path, clickhouse_url, APPEND)
    other = "SELECT * REPLACE ('visitors_b/1' AS stream) FROM visitors"
    stream.ask(f"INSERT INTO visitors {other}")
    erase_key(stream)
    read = f"SELECT DISTINCT stream FROM visitors WHERE key = '{KEY}'"
    assert stream.ask(read) == [("visitors_b/1",)]
