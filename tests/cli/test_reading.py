"""`state`, `emissions`: what they show of committed batches, without Kafka, Spark or a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import tidegate
from tests.batch.committed import Committed
from tidegate import inspect
from tidegate.cli import cli
from tidegate.errors import SettingsInvalid, TidegateError
from tidegate.kernel.keys import key_hashes

SINKS = "  - {kind: sql, table: newest}"
LONG = pa.int64()
POSITION = {"timestamp": LONG, "topic": pa.string(), "partition": pa.int32(), "offset": LONG}
ENTRY = {"digest": pa.string(), "window_start": LONG, "window_end": LONG, "pending": LONG, "due_at": LONG}
COMMON = {"key": pa.string(), **POSITION, **ENTRY, "live": pa.bool_(), "updated_seq": LONG}


@pytest.fixture
def committed(tmp_path: Path) -> Committed:
    """Two batches of two stages; only the second stage's emissions go anywhere."""
    made = Committed(tmp_path, SINKS, f"sqlite:///{tmp_path}/sink.db")
    made.environment["TIDEGATE_LEDGER"] = f"sqlite:///{tmp_path}/l.db"
    made.commit(1, {"second": [("a", 1), ("b", 2)]})
    made.commit(2, {"second": [("a", 3)]}, **{"suppression-buffer-records": 4})
    return made


def remember(committed: Committed, stage: str, value: pa.DataType | None, *rows: dict[str, Any]) -> None:
    """State rows, each by the batch in its `updated_seq`. Without a type the stage keeps no values."""
    types = COMMON | ({} if value is None else {"value": value, "emitted": value})
    for row in rows:
        table = pa.Table.from_pylist([{"live": True, **row}], pa.schema(types))
        table = table.append_column("hash", key_hashes(table["key"].combine_chunks()))
        committed.add_file(row["updated_seq"], "state", stage, table)


def run(committed: Committed, *arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, env=committed.environment)


def printed_rows(committed: Committed, *arguments: str) -> list[dict[str, Any]]:
    """The rows that a command prints for programs."""
    result = run(committed, *arguments, "--json")
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


NUMBER = pa.struct([("m", pa.int32())])


@pytest.mark.parametrize("batch", [-1, 3])
def test_state_as_of_no_batch_is_refused(committed: Committed, batch: int) -> None:
    result = run(committed, "state", "visitors", "--as-of", str(batch))
    assert f"visitors/1 has no batch {batch}: its last one is 2" in str(result.exception)


def test_state_is_shown_now_or_as_of_batch(committed: Committed) -> None:
    remember(
        committed,
        "second",
        NUMBER,
        {"key": "a", "value": {"m": 1}, "updated_seq": 1},
        {"key": "b", "value": {"m": 2}, "updated_seq": 1},
        {"key": "a", "value": {"m": 3}, "updated_seq": 2},
    )
    assert [(row["key"], row["value"]["m"]) for row in printed_rows(committed, "state", "visitors")] == [
        ("a", 3),
        ("b", 2),
    ]
    assert [row["value"]["m"] for row in printed_rows(committed, "state", "visitors", "--as-of", "1")] == [
        1,
        2,
    ]
    assert [row["value"]["m"] for row in printed_rows(committed, "state", "visitors", "--key", "b")] == [2]


def test_state_of_a_stage_shows_windows_and_buffers(committed: Committed) -> None:
    window = {"window_start": 0, "window_end": 60}
    buffered = {"key": "a", "value": {"m": 1}, "pending": 2, "due_at": 60, "updated_seq": 1}
    remember(
        committed, "first", NUMBER, buffered | window, {"key": "b", "live": False, "updated_seq": 2} | window
    )
    (row,) = printed_rows(committed, "state", "visitors", "--stage", "first")
    assert {name: row[name] for name in ("key", "pending", "due_at", *window)} == {
        "key": "a",
        "pending": 2,
        "due_at": 60,
        **window,
    }


def test_hash_state_shows_hashes_and_no_value(committed: Committed) -> None:
    remember(committed, "second", None, {"key": "a", "digest": "2c26b46b", "updated_seq": 1})
    (row,) = printed_rows(committed, "state", "visitors")
    assert row["digest"] == "2c26b46b"
    assert "value" not in row
    assert "2c26b46b" in run(committed, "state", "visitors").stdout


def test_table_omits_columns_without_values(committed: Committed) -> None:
    remember(committed, "second", NUMBER, {"key": "a", "value": {"m": 1}, "updated_seq": 1})
    shown = run(committed, "state", "visitors").stdout
    assert "value" in shown
    assert not any(name in shown for name in ("window_start", "digest", "pending", "due_at"))


def test_people_get_times_and_programs_milliseconds(committed: Committed) -> None:
    row = {"key": "a", "value": {"m": 1}, "window_start": 0, "window_end": 3_600_000, "updated_seq": 1}
    remember(committed, "second", NUMBER, row | {"timestamp": 1_500})
    shown = run(committed, "state", "visitors").stdout
    times = ("1970-01-01T00:00:00.000Z", "1970-01-01T01:00:00.000Z", "1970-01-01T00:00:01.500Z")
    assert [time for time in times if time not in shown] == []
    (stored,) = printed_rows(committed, "state", "visitors")
    assert (stored["window_start"], stored["window_end"], stored["timestamp"]) == (0, 3_600_000, 1_500)


def test_emissions_are_listed_by_batch_with_reason(committed: Committed) -> None:
    rows = printed_rows(committed, "emissions", "visitors")
    assert [(row["seq"], row["key"], row["value"]["m"]) for row in rows] == [
        (1, "a", 1),
        (1, "b", 2),
        (2, "a", 3),
    ]
    assert {"window_start", "window_end", "reason", "at", "source"} <= rows[0].keys()
    assert [row["seq"] for row in printed_rows(committed, "emissions", "visitors", "--batch", "2")] == [2]


def test_unstored_emissions_error_says_how_to_store(
    committed: Committed,
) -> None:
    error = run(committed, "emissions", "visitors", "--stage", "first").exception
    assert isinstance(error, SettingsInvalid)
    assert "sink with `stage: first`" in str(error)


@pytest.mark.parametrize("command", ["state", "emissions"])
def test_missing_stage_lists_existing_stages(committed: Committed, command: str) -> None:
    error = run(committed, command, "visitors", "--stage", "third").exception
    assert isinstance(error, TidegateError)
    assert "It has: first, second." in str(error)


@pytest.mark.parametrize("command", ["state", "emissions"])
def test_before_anything_is_there_nothing_is_shown(tmp_path: Path, command: str) -> None:
    empty = Committed(tmp_path, SINKS, f"sqlite:///{tmp_path}/sink.db")
    empty.environment["TIDEGATE_LEDGER"] = f"sqlite:///{tmp_path}/l.db"
    assert printed_rows(empty, command, "visitors") == []
    assert run(empty, command, "visitors").stdout.strip() == "Nothing."


def test_the_python_reader_takes_a_stage_too(committed: Committed, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(committed, "first", NUMBER, {"key": "a", "value": {"m": 7}, "updated_seq": 1})
    for name, value in committed.environment.items():
        monkeypatch.setenv(name, value)
    assert tidegate.read_state("visitors", stage="first")["value"].to_pylist() == [{"m": 7}]
    assert tidegate.read_state("visitors").num_rows == 0


def test_batch_report_has_counts_of_each_stage(committed: Committed) -> None:
    report = inspect.batch_report(committed.app.ledger, committed.stream, 2)
    assert report is not None
    assert report.stages["second"]["emitted"] == 1
    assert report.held_back == {"first": 4}


def test_status_sees_files_that_stop_the_runs(committed: Committed) -> None:
    [row] = printed_rows(committed, "status")
    assert row["condition"] == "ok"
    copy = committed.file.with_name("copy.yaml")
    copy.write_bytes(committed.file.read_bytes())
    [row] = printed_rows(committed, "status")
    assert row["condition"] == "halted"
    assert "is also in" in row["causes"][0]
    copy.unlink()
    copy.symlink_to("nowhere.yaml")
    [row] = printed_rows(committed, "status")
    assert row["condition"] == "ok"
    copy.unlink()
    committed.file.with_name("defaults.yaml").write_text("airflow: {retries: many}")
    [row] = printed_rows(committed, "status")
    assert "defaults.yaml:1" in row["causes"][0]
