"""The table sink: what the table itself knows decides what is appended."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tests.attempts import FIRST, committed
from tests.sinks.table.appending import append, check
from tidegate.errors import (
    Fenced,
    LakeUnavailable,
    LedgerMismatch,
    ProgressLost,
    ProgressUnreadable,
    SinkRefused,
)
from tidegate.failpoints import FailpointRaised
from tidegate.sinks.table.sink import Appender, erase_keys, require_room, restart_after


@pytest.mark.parametrize("point", ["table.create", "table.read_progress", "table.append", "table.flush"])
def test_unanswering_store_is_typed_and_appended_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    rows, path = pa.table({"key": ["k"], "n": [1]}), str(tmp_path / "table")
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{point}=lose")
    with pytest.raises(LakeUnavailable, match=f"answer of {point} was lost"):
        append(path, "app", 1, rows.to_reader(), 0)
    append(path, "app", 1, rows.to_reader(), 0)
    assert DeltaTable(path).to_pyarrow_table().num_rows == 1


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files and folders that are flushed, in order."""
    flushed: list[Path] = []
    monkeypatch.setattr("tidegate.storage.store._flush_place", flushed.append)
    return flushed


def test_batch_is_flushed_with_log_and_folders(tmp_path: Path, flushed: list[Path]) -> None:
    table = tmp_path / "new" / "table"
    rows = pa.table({"key": ["k"], "n": [1]})
    append(str(table), "app", 1, rows.to_reader(), 0)
    assert {*table.rglob("*"), table, table.parent, tmp_path} == set(flushed)
    existing = set(flushed)
    flushed.clear()
    append(str(table), "app", 2, rows.to_reader(), 1)
    assert set(table.rglob("*")) - existing <= set(flushed)


def test_retry_flushes_the_batch_of_a_killed_try(
    tmp_path: Path, flushed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, path = pa.table({"key": ["k"], "n": [1]}), str(tmp_path / "table")
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "table.flush=raise")
    with pytest.raises(FailpointRaised):
        append(path, "app", 1, rows.to_reader(), 0)
    write_deltalake(path, rows, mode="append")  # somebody else
    flushed.clear()
    append(path, "app", 1, rows.to_reader(), 0)
    assert set(Path(path).rglob("*")) <= set(flushed)


def test_table_unlike_the_ledger_gets_nothing(tmp_path: Path) -> None:
    rows, path = pa.table({"key": ["k"], "n": [1]}), str(tmp_path / "table")
    with pytest.raises(ProgressLost, match="batch 4 of app"):
        append(path, "app", 5, rows.to_reader(), 4)
    append(path, "app", 5, rows.to_reader(), 0)
    with pytest.raises(Fenced, match=r"batch 5 is in .* already"):
        append(path, "app", 3, rows.to_reader(), 2)
    assert DeltaTable(path).to_pyarrow_table().num_rows == 1


@pytest.mark.parametrize("seq", [3, 4, 5, 6])
def test_table_with_uncommitted_attempt_gets_nothing(tmp_path: Path, seq: int) -> None:
    """A restored ledger may be behind the table, beside it, or past it by batches that emit nothing."""
    rows, path = pa.table({"key": ["k"], "n": [1]}), str(tmp_path / "table")
    append(path, "app", 4, rows.to_reader(), 0)
    with pytest.raises(LedgerMismatch):
        append(path, "app", seq, rows.to_reader(), 0, attempt="of another ledger")
    assert DeltaTable(path).to_pyarrow_table().num_rows == 1


def test_doctor_finds_a_table_of_another_ledger(tmp_path: Path) -> None:
    rows, path = pa.table({"key": ["k"], "n": [1]}), str(tmp_path / "table")
    check(path, "app", 0)
    with pytest.raises(ProgressLost, match="it says batch 0"):
        check(path, "app", 1)
    append(path, "app", 4, rows.to_reader(), 0)
    check(path, "app", 4)
    with pytest.raises(ProgressLost, match="it says batch 4"):
        check(path, "app", 5)
    with pytest.raises(LedgerMismatch):
        check(path, "app", 1, attempt="of another ledger")


def test_a_table_of_an_unknown_format_gets_nothing(tmp_path: Path) -> None:
    rows, path = pa.table({"key": ["k"], "n": [1]}), str(tmp_path / "table")
    append(path, "app", 1, rows.to_reader(), 0)
    DeltaTable(path).alter.set_table_properties({"tidegate.sink.format": "99"}, raise_if_not_exists=False)
    for application in ("app", "another"):
        with pytest.raises(ProgressUnreadable, match=r"has format 99; this tidegate reads 1.*a newer one"):
            append(path, application, 2, rows.to_reader(), 0)
    assert DeltaTable(path).to_pyarrow_table().num_rows == 1


def test_table_without_format_is_not_empty(tmp_path: Path) -> None:
    rows, path = pa.table({"key": ["k"], "n": [1]}), str(tmp_path / "table")
    mark = CommitProperties(app_transactions=[Transaction("app", 1)])
    write_deltalake(path, rows, commit_properties=mark)
    with pytest.raises(ProgressUnreadable, match=r"no format.*before the first release.*another path"):
        append(path, "app", 2, rows.to_reader(), 1)


def test_foreign_table_gets_the_format(tmp_path: Path) -> None:
    rows, path = pa.table({"key": ["k"], "n": [1]}), str(tmp_path / "table")
    write_deltalake(path, rows)
    append(path, "app", 1, rows.to_reader(), 0)
    append(path, "app", 2, rows.to_reader(), 1)
    assert DeltaTable(path).to_pyarrow_table().num_rows == 3
    assert DeltaTable(path).metadata().configuration == {"tidegate.sink.format": "1"}


def table_of(path: str, type_: pa.DataType) -> None:
    write_deltalake(path, pa.table({"n": pa.array([1], type_)}))


@pytest.mark.parametrize("emitted", [pa.int64(), pa.float64(), pa.string()])
def test_narrow_column_is_refused_before_the_decision(tmp_path: Path, emitted: pa.DataType) -> None:
    table_of(str(tmp_path / "table"), pa.int32())
    with pytest.raises(SinkRefused, match=r"column n .*Nothing was published"):
        require_room(str(tmp_path / "table"), pa.schema([("n", emitted)]))


def test_columns_that_are_new_or_narrower_have_room(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    require_room(path, pa.schema([("n", pa.int64())]))
    table_of(path, pa.int64())
    require_room(path, pa.schema([("n", pa.int32()), ("more", pa.string())]))


def numbered(path: str, seqs: range, store: str = "x") -> None:
    """Append batches of two keys."""
    for seq in seqs:
        rows = pa.table({"key": ["a", "b"], "store": ["x", store], "seq": pa.array([seq] * 2, pa.int64())})
        append(path, "app", seq, rows.to_reader(), seq - 1)


def seqs_in(path: str) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["seq"].to_pylist())


def test_restart_removes_files_of_any_partition(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    columns = pa.schema([("key", pa.string()), ("store", pa.string()), ("seq", pa.int64())])
    DeltaTable.create(path, columns, partition_by=["store"])
    numbered(path, range(1, 4), "new york: 1 %")
    restart_after(Appender(path, "app", committed(FIRST)), 1, FIRST)
    assert seqs_in(path) == [1, 1]


@pytest.mark.parametrize("rewriter", ["erasure", "optimize"])
def test_restart_refuses_rewritten_rows_of_later_batches(tmp_path: Path, rewriter: str) -> None:
    path = str(tmp_path / "table")
    appender = Appender(path, "app", committed(FIRST))
    numbered(path, range(1, 6))
    if rewriter == "erasure":
        erase_keys(appender, (6, FIRST), ["b"], 5, is_shared=False)
    else:
        DeltaTable(path).optimize.compact()
    with pytest.raises(SinkRefused, match=r"rows of batches after 2 .*`seq > 2` there, and run again"):
        restart_after(appender, 2, FIRST)
    DeltaTable(path).delete("seq > 2")
    restart_after(appender, 2, FIRST)
    assert set(seqs_in(path)) == {1, 2}
    append(path, "app", 3, pa.table({"key": ["a"], "seq": pa.array([3], pa.int64())}).to_reader(), 0)
    assert seqs_in(path)[-1] == 3


def test_column_new_in_its_case_only_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    table_of(path, pa.int64())
    with pytest.raises(SinkRefused, match="column n of earlier batches is N now"):
        require_room(path, pa.schema([("N", pa.int64())]))
