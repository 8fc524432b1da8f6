"""Reading state tables without a JVM: which row of an entry counts, and which entries there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.fs import DeltaStorageHandler

from tidegate.errors import LakeUnavailable
from tidegate.lake import attempt_files, newest_per_key, read_attempts

VALUE = pa.struct([("n", pa.int64())])
TYPES = {
    "key": pa.string(),
    "value": VALUE,
    "emitted": VALUE,
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.int64(),
    "hash": pa.string(),
    "window_start": pa.int64(),
    "window_end": pa.int64(),
    "pending": pa.int64(),
    "due_at": pa.int64(),
    "live": pa.bool_(),
    "updated_seq": pa.int64(),
}
HASH_ONLY = {name: type_ for name, type_ in TYPES.items() if name not in ("value", "emitted")}


def row(key: str, n: int | None, seq: int, **more: Any) -> dict[str, Any]:
    """A state row; `n` is what it holds."""
    value = None if n is None else {"n": n}
    return {
        "key": key,
        "value": value,
        "topic": "t",
        "partition": 0,
        "timestamp": 5,
        "live": True,
        "updated_seq": seq,
    } | more


def state(folder: Path, *rows: dict[str, Any], types: dict[str, pa.DataType] = TYPES) -> list[dict[str, Any]]:
    """What is read of a table that these rows were written to, a batch at a time."""
    found: list[dict[str, Any]] = newest_per_key(stored(folder, rows, types)).to_pylist()
    return found


def stored(folder: Path, rows: tuple[dict[str, Any], ...], types: dict[str, pa.DataType]) -> pa.Table:
    path = str(folder / "state")
    schema = pa.schema(types)
    for seq in sorted({each["updated_seq"] for each in rows}):
        written = [each for each in rows if each["updated_seq"] == seq]
        table = pa.Table.from_pylist(written, schema).append_column(
            "attempt", pa.array([f"a{seq}"] * len(written))
        )
        write_deltalake(path, table, mode="append", partition_by=["attempt"])
    found = read_attempts(path, [f"a{each['updated_seq']}" for each in rows])
    assert found is not None
    return found.drop_columns(["attempt"])


def held(rows: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """(key, what it holds)."""
    return [(each["key"], each["value"] and each["value"]["n"]) for each in rows]


def test_the_newest_row_of_a_key_counts_and_keys_come_in_order(tmp_path: Path) -> None:
    rows = state(tmp_path, row("b", 1, 1), row("a", 2, 1), row("b", 3, 2))
    assert held(rows) == [("a", 2), ("b", 3)]


def test_each_window_of_a_key_has_a_row_of_its_own(tmp_path: Path) -> None:
    early, late = {"window_start": 0, "window_end": 10}, {"window_start": 10, "window_end": 20}
    rows = state(tmp_path, row("a", 1, 1, **late), row("a", 2, 1, **early), row("a", 3, 2, **early))
    assert [(each["window_start"], each["value"]["n"]) for each in rows] == [(0, 3), (10, 1)]


def test_a_window_that_is_over_is_not_there_and_an_older_row_of_it_is_not_either(tmp_path: Path) -> None:
    window = {"window_start": 0, "window_end": 10}
    assert state(tmp_path, row("a", 1, 1, due_at=10, **window), row("a", None, 2, live=False, **window)) == []


def test_what_is_not_live_is_not_there(tmp_path: Path) -> None:
    rows = row("a", 1, 1), row("b", 2, 1), row("a", None, 2, live=False)
    assert held(state(tmp_path, *rows)) == [("b", 2)]


def test_a_key_that_came_back_is_there(tmp_path: Path) -> None:
    assert held(state(tmp_path, row("a", 1, 1), row("a", None, 2, live=False), row("a", 3, 3))) == [("a", 3)]


def test_what_is_live_is_there_with_or_without_a_value(tmp_path: Path) -> None:
    (found,) = state(tmp_path, row("a", None, 1, emitted={"n": 1}, pending=1, due_at=9))
    assert (found["value"], found["emitted"], found["pending"]) == (None, {"n": 1}, 1)
    assert "live" not in found


def test_where_only_hashes_are_kept_there_are_no_values(tmp_path: Path) -> None:
    rows = [{"key": "a", "hash": "x", "live": True, "timestamp": 5, "updated_seq": 1}]
    rows += [{"key": "b", "hash": "y", "live": True, "timestamp": 5, "updated_seq": 1}]
    rows += [{"key": "a", "live": False, "timestamp": 5, "updated_seq": 2}]
    found = state(tmp_path, *rows, types=HASH_ONLY)
    assert [(each["key"], each["hash"]) for each in found] == [("b", "y")]
    assert "value" not in found[0]


def test_state_that_belongs_to_partitions_has_a_row_for_each(tmp_path: Path) -> None:
    rows = (row("a", 1, 1), row("a", 2, 1, partition=1), row("a", 3, 2, partition=1))
    found = newest_per_key(stored(tmp_path, rows, TYPES), by_partition=True)
    assert [(each["partition"], each["value"]["n"]) for each in found.to_pylist()] == [(0, 1), (1, 3)]


def test_an_empty_state_stays_empty(tmp_path: Path) -> None:
    nothing = pa.Table.from_pylist([], pa.schema(TYPES))
    assert newest_per_key(nothing).num_rows == 0


def test_rows_of_an_attempt_that_is_not_named_are_never_read(tmp_path: Path) -> None:
    stored(tmp_path, (row("a", 1, 1), row("a", 2, 2)), TYPES)
    path = str(tmp_path / "state")
    one = read_attempts(path, ["a1"], ["value"])
    assert one is not None
    assert one["value"].to_pylist() == [{"n": 1}]
    assert read_attempts(path, []) is None
    files = attempt_files(path, ["a2"])
    assert files is not None
    assert all("attempt=a2" in each for each in files.paths)


def test_a_table_that_was_never_written_has_no_rows(tmp_path: Path) -> None:
    assert read_attempts(str(tmp_path / "nothing"), ["a1"]) is None
    assert attempt_files(str(tmp_path / "nothing"), ["a1"]) is None


def test_a_table_that_is_broken_is_a_typed_error_with_its_path(tmp_path: Path) -> None:
    stored(tmp_path, (row("a", 1, 1),), TYPES)
    for file in (tmp_path / "state" / "_delta_log").glob("*.json"):
        file.write_text("{oops")
    with pytest.raises(LakeUnavailable, match="state cannot be used"):
        read_attempts(str(tmp_path / "state"), ["a1"])


def test_rows_are_read_without_calling_python_from_arrows_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a call at the interpreter's end aborts the process, after its work was done."""
    path = str(tmp_path / "a table")
    write_deltalake(path, pa.table({"attempt": ["a 1", "b"], "n": [1, 2]}), partition_by=["attempt"])

    def never(*_: Any) -> Any:
        raise AssertionError("read through a file system that is written in Python")

    monkeypatch.setattr(DeltaStorageHandler, "open_input_file", never)
    with pytest.raises(AssertionError):
        DeltaTable(path).to_pyarrow_table()
    rows = read_attempts(path, ["a 1"])
    assert rows is not None
    assert rows["n"].to_pylist() == [1]
