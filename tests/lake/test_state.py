"""State beside a sorted batch, against a plain model that reads everything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.errors import LakeDamaged
from tidegate.lake import writer
from tidegate.lake.manifest import DataFile
from tidegate.lake.state import GREATEST_HASH, DueRows, StateReader, newest_rows
from tidegate.lake.store import Store
from tidegate.lake.writer import RowWriter

SCHEMA = pa.schema(
    [
        pa.field("hash", pa.int64()),
        pa.field("key", pa.string()),
        pa.field("window_start", pa.int64()),
        pa.field("window_end", pa.int64()),
        pa.field("value", pa.struct([pa.field("n", pa.int64())])),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("due_at", pa.int64()),
        pa.field("updated_seq", pa.int64()),
    ]
)


def row(hash_: int, seq: int, due_at: int | None = None, window: int | None = None) -> dict[str, Any]:
    return {
        "hash": hash_,
        "key": f"k{hash_}",
        "window_start": window,
        "window_end": None if window is None else window + 10,
        "value": {"n": seq * 1000 + hash_},
        "topic": "t",
        "partition": 0,
        "due_at": due_at,
        "updated_seq": seq,
    }


def write(store: Store, seq: int, rows: Sequence[dict[str, Any]], schema: pa.Schema = SCHEMA) -> DataFile:
    ordered = sorted(rows, key=lambda each: (each["hash"], each["window_start"] or -1))
    with RowWriter(store, f"s/state/{seq}.parquet", "state", "s") as file:
        for start in range(0, len(ordered), 3):
            file.write(pa.RecordBatch.from_pylist(ordered[start : start + 3], schema))
    assert file.file is not None
    return file.file


def due_at(latest: int) -> DueRows:
    return DueRows(
        ("due_at",), latest, lambda rows: pc.fill_null(pc.less_equal(rows["due_at"], latest), False)
    )


def hashes(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(sorted(set(values)), np.int64)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_ROWS", 6)


def taken(rows: pa.Table) -> list[tuple[int, int]]:
    return list(zip(rows["hash"].to_pylist(), rows["updated_seq"].to_pylist(), strict=True))


def test_of_an_entry_the_newest_row_counts(store: Store) -> None:
    files = [write(store, 1, [row(h, 1) for h in range(20)]), write(store, 2, [row(5, 2), row(7, 2)])]
    with StateReader(store, files, SCHEMA) as state:
        assert taken(state.take(hashes(4, 5, 99))) == [(4, 1), (5, 2)]


def test_a_file_is_gone_through_once_in_the_order_of_hashes(store: Store) -> None:
    files = [write(store, 1, [row(h, 1) for h in range(0, 40, 2)])]
    with StateReader(store, files, SCHEMA) as state:
        assert taken(state.take(hashes(2, 3, 8), 9)) == [(2, 1), (8, 1)]
        assert taken(state.take(hashes(10, 11), 11)) == [(10, 1)]
        assert taken(state.take(hashes(), 20)) == []
        assert taken(state.take(hashes(22, 38))) == [(22, 1), (38, 1)]


def test_two_keys_of_one_hash_are_two_entries(store: Store) -> None:
    other = row(5, 1) | {"key": "another"}
    with StateReader(store, [write(store, 1, [row(5, 1), other])], SCHEMA) as state:
        assert state.take(hashes(5))["key"].to_pylist() == ["another", "k5"]


def test_rows_with_a_timer_that_fires_come_too_each_at_its_newest(store: Store) -> None:
    files = [
        write(store, 1, [row(h, 1, due_at=100 + h) for h in range(20)]),
        write(store, 2, [row(3, 2, due_at=500)]),
    ]
    with StateReader(store, files, SCHEMA, due_at(104)) as state:
        assert taken(state.take(hashes(10))) == [(0, 1), (1, 1), (2, 1), (3, 2), (4, 1), (10, 1)]


def test_a_column_that_was_added_is_null_in_older_rows(store: Store) -> None:
    file = write(store, 1, [row(1, 1)])
    wider = pa.struct([pa.field("n", pa.int64()), pa.field("more", pa.string())])
    place = SCHEMA.get_field_index("value")
    schema = SCHEMA.set(place, pa.field("value", wider)).append(pa.field("live", pa.bool_()))
    with StateReader(store, [file], schema) as state:
        rows = state.take(hashes(1))
    assert rows.schema == schema
    assert (rows["value"][0].as_py(), rows["live"][0].as_py()) == ({"n": 1001, "more": None}, None)


def test_without_files_there_is_no_state(store: Store) -> None:
    with StateReader(store, [], SCHEMA, due_at(0)) as state:
        assert state.take(hashes(1)).num_rows == 0


def test_row_groups_without_a_wanted_hash_are_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    import tidegate.lake.state as module

    read: list[int] = []
    original = module._Cursor._read
    monkeypatch.setattr(
        module._Cursor,
        "_read",
        lambda self, number, columns: (read.append(number), original(self, number, columns))[1],
    )
    files = [write(store, 1, [row(h, 1) for h in range(600)])]  # 100 row groups
    with StateReader(store, files, SCHEMA) as state:
        state.take(hashes(7, 300))
    assert sorted(set(read)) == [1, 50]


def test_a_file_that_is_short_or_gone_is_damage(store: Store, tmp_path: Path) -> None:
    file = write(store, 1, [row(h, 1) for h in range(20)])
    path = tmp_path / file.path
    path.write_bytes(path.read_bytes()[:-1])
    with StateReader(store, [file], SCHEMA) as state, pytest.raises(LakeDamaged, match=r"1\.parquet"):
        state.take(hashes(1))
    path.unlink()
    with StateReader(store, [file], SCHEMA) as state, pytest.raises(LakeDamaged, match=r"1\.parquet"):
        state.take(hashes(1))


def _place(stored: dict[str, Any]) -> int:
    """Where an entry stands among those of its key: without a window last."""
    return 99 if stored["window_start"] is None else stored["window_start"]


stored_rows = st.builds(
    row,
    st.integers(-12, 12),
    st.just(0),
    st.none() | st.integers(0, 30),
    st.none() | st.sampled_from([0, 10]),
)


@given(
    st.lists(st.lists(stored_rows, max_size=14), max_size=4),
    st.sets(st.integers(-12, 12)),
    st.sets(st.integers(-12, 12), max_size=3),
    st.none() | st.integers(0, 30),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_taken_is_what_a_look_at_all_rows_gives(
    tmp_path: Path,
    changelogs: list[list[dict[str, Any]]],
    wanted: set[int],
    cuts: set[int],
    latest: int | None,
) -> None:
    store, files, newest = Store(str(tmp_path)), [], {}
    fired = set()
    for seq, rows in enumerate(changelogs, start=1):
        by_entry = {(each["hash"], each["window_start"]): each | {"updated_seq": seq} for each in rows}
        newest |= by_entry
        fired |= {
            each["hash"]
            for each in by_entry.values()
            if None not in (latest, each["due_at"]) and each["due_at"] <= latest
        }
        if by_entry:
            files.append(write(store, seq, list(by_entry.values())))
    expected = sorted(
        (h, 99 if w is None else w, each["updated_seq"])
        for (h, w), each in newest.items()
        if h in wanted | fired
    )
    found = []
    with StateReader(store, files, SCHEMA, None if latest is None else due_at(latest)) as state:
        for cut in [*sorted(cuts), GREATEST_HASH]:
            rows = state.take(hashes(*(each for each in wanted if each <= cut)), cut).to_pylist()
            found += [(each["hash"], _place(each), each["updated_seq"]) for each in rows]
    assert found == expected


def test_the_newest_of_no_rows_is_none() -> None:
    assert newest_rows(SCHEMA.empty_table()).num_rows == 0
