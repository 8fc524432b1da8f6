"""State beside a sorted batch, against a plain model that reads everything."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.storage.files_for_tests import SCHEMA, row, write
from tidegate.errors import LakeDamaged
from tidegate.kernel.keys import GREATEST_HASH, key_hash
from tidegate.storage import datafile
from tidegate.storage import state as state_module
from tidegate.storage.manifest import DataFile
from tidegate.storage.schema import newest_rows
from tidegate.storage.state import Cursor, DueRows, StateReader, read_key
from tidegate.storage.store import Store


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
    monkeypatch.setattr(datafile, "STATE_GROUP_ROWS", 6)
    monkeypatch.setattr(state_module, "_GROUPS_AT_ONCE", 2)


def taken(rows: pa.Table) -> list[tuple[int, int]]:
    return list(zip(rows["hash"].to_pylist(), rows["updated_seq"].to_pylist(), strict=True))


def test_of_an_entry_the_newest_row_counts(store: Store) -> None:
    files = [write(store, 1, [row(h, 1) for h in range(20)]), write(store, 2, [row(5, 2), row(7, 2)])]
    with StateReader(store, files, SCHEMA) as state:
        assert taken(state.take(hashes(4, 5, 99))) == [(4, 1), (5, 2)]


def test_state_file_is_read_once_by_hash(store: Store) -> None:
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


def test_rows_with_due_timers_are_read_newest_only(store: Store) -> None:
    files = [
        write(store, 1, [row(h, 1, due_at=100 + h) for h in range(20)]),
        write(store, 2, [row(3, 2, due_at=500)]),
    ]
    with StateReader(store, files, SCHEMA, due_at(104)) as state:
        assert taken(state.take(hashes(10))) == [(0, 1), (1, 1), (2, 1), (3, 2), (4, 1), (10, 1)]


def test_added_column_is_null_in_older_rows(store: Store) -> None:
    file = write(store, 1, [row(1, 1)])
    wider = pa.struct([pa.field("n", pa.int64()), pa.field("more", pa.string())])
    place = SCHEMA.get_field_index("value")
    schema = SCHEMA.set(place, pa.field("value", wider)).append(pa.field("bytes", pa.int64()))
    with StateReader(store, [file], schema) as state:
        rows = state.take(hashes(1))
    assert rows.schema == schema
    assert (rows["value"][0].as_py(), rows["bytes"][0].as_py()) == ({"n": 1001, "more": None}, None)


def test_without_files_there_is_no_state(store: Store) -> None:
    with StateReader(store, [], SCHEMA, due_at(0)) as state:
        assert state.take(hashes(1)).num_rows == 0


@pytest.fixture
def read_groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the row groups that were read, each as often as it was."""
    numbers: list[int] = []
    original = Cursor._read
    monkeypatch.setattr(
        Cursor,
        "_read",
        lambda self, part, columns: (numbers.extend(part.tolist()), original(self, part, columns))[1],
    )
    return numbers


def test_row_groups_without_requested_hashes_are_skipped(store: Store, read_groups: list[int]) -> None:
    files = [write(store, 1, [row(h, 1) for h in range(600)])]  # 100 row groups
    with StateReader(store, files, SCHEMA) as state:
        state.take(hashes(7, 300))
    assert sorted(set(read_groups)) == [1, 50]


def test_row_groups_without_due_timers_are_skipped(store: Store, read_groups: list[int]) -> None:
    """100 row groups: of the first 50 each has later timers than the one before it, the others have none."""
    files = [write(store, 1, [row(h, 1, due_at=h if h < 300 else None) for h in range(600)])]
    with StateReader(store, files, SCHEMA, due_at(6)) as state:
        assert state.next_bound() == GREATEST_HASH
        assert taken(state.take(hashes())) == [(h, 1) for h in range(7)]
    assert sorted(set(read_groups)) == [0, 1]


def test_missing_timer_limit_reads_every_row_group(store: Store, read_groups: list[int]) -> None:
    """Read without a limit, as if all suppressed values are due."""
    files = [write(store, 1, [row(h, 1, due_at=h) for h in range(600)])]
    due = DueRows(("due_at",), None, due_at(6).fires)
    with StateReader(store, files, SCHEMA, due) as state:
        assert taken(state.take(hashes())) == [(h, 1) for h in range(7)]
    assert sorted(set(read_groups)) == list(range(100))


def test_a_reader_begins_at_its_first_hash(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [write(store, 1, [row(h, 1) for h in range(20)]), write(store, 2, [row(h, 2) for h in range(5)])]
    opened: list[str] = []
    original = Store.open
    monkeypatch.setattr(Store, "open", lambda self, path: (opened.append(path), original(self, path))[1])
    with StateReader(store, files, SCHEMA, first_hash=9) as state:
        assert taken(state.take(hashes(3, 9, 12))) == [(9, 1), (12, 1)]
    assert opened == [files[0].path]


def test_a_file_that_is_short_is_damage(store: Store, tmp_path: Path) -> None:
    file = write(store, 1, [row(h, 1) for h in range(20)])
    path = tmp_path / file.path
    path.write_bytes(path.read_bytes()[:-1])
    with StateReader(store, [file], SCHEMA) as state, pytest.raises(LakeDamaged, match=r"1\.parquet"):
        state.take(hashes(1))


def test_a_file_that_is_missing_is_damage(store: Store, tmp_path: Path) -> None:
    file = write(store, 1, [row(h, 1) for h in range(20)])
    (tmp_path / file.path).unlink()
    with StateReader(store, [file], SCHEMA) as state, pytest.raises(LakeDamaged, match=r"1\.parquet"):
        state.take(hashes(1))


def test_another_file_of_the_same_size_is_damage(store: Store, tmp_path: Path) -> None:
    rows, other_rows = (
        [row(h, 1) | {"value": {"n": (h + first) % 2}} for h in range(6)] for first in range(2)
    )
    file, other = write(store, 1, rows), write(store, 1, other_rows)
    assert file.bytes == other.bytes, "the size tells nothing"
    (tmp_path / other.path).rename(tmp_path / file.path)
    with StateReader(store, [file], SCHEMA) as state, pytest.raises(LakeDamaged, match=r"1\.parquet"):
        state.take(hashes(1))


def test_a_changed_statistic_is_damage(store: Store, tmp_path: Path) -> None:
    """One that would let a row group be skipped."""
    greatest = 0x1122334455667788
    file = write(store, 1, [row(0, 1), row(greatest, 1)])
    path, in_footer = tmp_path / file.path, greatest.to_bytes(8, "little")
    content = path.read_bytes()
    data, footer = content[: -file.footer_bytes], content[-file.footer_bytes :]
    assert in_footer in footer
    path.write_bytes(data + footer.replace(in_footer, (5).to_bytes(8, "little")))
    with StateReader(store, [file], SCHEMA) as state, pytest.raises(LakeDamaged, match=r"1\.parquet"):
        state.take(hashes(greatest))


@pytest.mark.parametrize("place", [0.05, 0.3, 0.6, 0.97])
def test_a_changed_byte_never_changes_what_is_taken(store: Store, tmp_path: Path, place: float) -> None:
    file = write(store, 1, [row(h, 1, due_at=h) for h in range(20)])
    with StateReader(store, [file], SCHEMA) as state:
        unchanged = state.take(hashes(*range(20)))
    path = tmp_path / file.path
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 0x55
    path.write_bytes(content)
    with StateReader(store, [file], SCHEMA) as state, suppress(LakeDamaged):
        assert state.take(hashes(*range(20))) == unchanged  # a byte that nothing depends on


# one entry per key


def keys_of(*hashes: int) -> pa.StringArray:
    return pa.array([f"k{hash_}" for hash_ in hashes])


def test_older_files_are_not_searched_for_found_keys(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    old = write(store, 1, [row(h, 1) for h in range(20)])
    young = write(store, 2, [row(h, 2) for h in (3, 7, 11)])
    opened: list[str] = []
    original = Store.open
    monkeypatch.setattr(Store, "open", lambda self, path: (opened.append(path), original(self, path))[1])
    with StateReader(store, [old, young], SCHEMA) as state:
        assert taken(state.take(hashes(3, 7), 9, keys_of(3, 7))) == [(3, 2), (7, 2)]
        assert opened == [young.path]
        assert taken(state.take(hashes(11, 12), 19, keys_of(11, 12))) == [(11, 2), (12, 1)]


def test_another_key_of_the_hash_is_found(store: Store) -> None:
    files = [write(store, 1, [row(5, 1)]), write(store, 2, [row(5, 2) | {"key": "another"}])]
    for only_key in ("k5", None):
        with StateReader(store, files, SCHEMA) as state:
            rows = state.take(hashes(5), 9, pa.array([only_key], pa.string()))
        assert rows["key"].to_pylist() == ["another", "k5"]


def test_timer_of_another_key_still_fires(store: Store) -> None:
    """Both keys have one hash; the young file has only the key that the batch has."""
    files = [write(store, 1, [row(5, 1, due_at=0) | {"key": "another"}]), write(store, 2, [row(5, 2)])]
    with StateReader(store, files, SCHEMA, due_at(0)) as state:
        assert state.take(hashes(5), 9, keys_of(5))["key"].to_pylist() == ["another", "k5"]


# a bounded number of rows at a time


def test_without_timers_there_is_no_bound(store: Store) -> None:
    with StateReader(store, [write(store, 1, [row(h, 1) for h in range(20)])], SCHEMA) as state:
        assert state.next_bound(15) == 15


def test_a_bound_lets_only_so_many_timers_fire(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "MOST_DUE_ROWS", 8)
    files = [write(store, 1, [row(h, 1, due_at=h % 2) for h in range(50)])]
    with StateReader(store, files, SCHEMA, due_at(0)) as state:
        sizes = []
        bound = -1
        while bound < 49:
            bound = state.next_bound(49)
            sizes.append(state.take(hashes(), bound).num_rows)
    assert sizes == [8, 8, 8, 1]


def test_rows_of_one_hash_are_read_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "MOST_DUE_ROWS", 8)
    files = [write(store, 1, [row(5, 1, due_at=0, window=10 * n) for n in range(20)] + [row(6, 1, due_at=0)])]
    with StateReader(store, files, SCHEMA, due_at(0)) as state:
        assert state.next_bound() == 5
        assert state.take(hashes(), 5).num_rows == 20
        assert taken(state.take(hashes(), state.next_bound())) == [(6, 1)]


def test_a_look_ahead_reads_no_row_group_twice(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "MOST_DUE_ROWS", 8)
    timers: list[int] = []
    due = due_at(0)
    counting = DueRows(due.columns, 0, lambda rows: (timers.append(rows.num_rows), due.fires(rows))[1])
    files = [write(store, 1, [row(h, 1, due_at=0) for h in range(60)])]
    with StateReader(store, files, SCHEMA, counting) as state:
        bound = -1
        while bound < 59:
            bound = state.next_bound(59)
            state.take(hashes(), bound)
    assert sum(timers) == 60


# all of it


def test_scan_gives_newest_rows_in_hash_order(store: Store) -> None:
    files = [
        write(store, 1, [row(h, 1) for h in range(40)]),
        write(store, 2, [row(h, 2) for h in range(5, 40, 7)]),
    ]
    with StateReader(store, files, SCHEMA) as state:
        parts = list(state.scan())
    assert taken(pa.concat_tables(parts)) == [(h, 2 if h % 7 == 5 else 1) for h in range(40)]
    assert max(part.num_rows for part in parts) <= 12
    assert len(parts) > 1


def test_scan_omits_dead_rows_only_if_asked(store: Store) -> None:
    files = [
        write(store, 1, [row(h, 1) for h in range(4)]),
        write(store, 2, [row(2, 2, live=False)]),
    ]
    for live_only, expected in ((True, [(0, 1), (1, 1), (3, 1)]), (False, [(0, 1), (1, 1), (2, 2), (3, 1)])):
        with StateReader(store, files, SCHEMA) as state:
            assert taken(pa.concat_tables(state.scan(live_only))) == expected


# one key


def test_key_is_found_in_one_row_group(store: Store, read_groups: list[int]) -> None:
    keyed = [row(key_hash(f"k{n}"), 1) | {"key": f"k{n}"} for n in range(100)]
    files = [write(store, 1, keyed), write(store, 2, [row(key_hash("k7"), 2) | {"key": "k7"}])]
    assert read_key(store, files, "k7")["updated_seq"].to_pylist() == [2]
    assert len(set(read_groups)) <= 2
    assert read_key(store, files, "unknown").num_rows == 0


def test_key_with_an_equal_hash_is_distinguished(store: Store) -> None:
    stored = [row(key_hash("k"), 1) | {"key": key} for key in ("k", "other")]
    assert read_key(store, [write(store, 1, stored)], "k")["key"].to_pylist() == ["k"]


def _place(stored: dict[str, Any]) -> int:
    """Return the position of an entry among the entries of its key: without a window it is the last."""
    return 99 if stored["window_start"] is None else stored["window_start"]


stored_rows = st.builds(
    row,
    st.integers(-12, 12),
    st.just(0),
    st.none() | st.integers(0, 30),
    st.none() | st.sampled_from([0, 10]),
    st.booleans(),
)
histories = st.lists(st.lists(stored_rows, max_size=14), max_size=4)


def without_windows(history: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Return the rows of keys that have one entry each."""
    nothing = {"window_start": None, "window_end": None}
    return [list({stored["hash"]: stored | nothing for stored in rows}.values()) for rows in history]


class Model:
    """The rows in memory: the newest of each entry, and the files that they were written to."""

    def __init__(self, store: Store, history: list[list[dict[str, Any]]]) -> None:
        self.rows: list[dict[str, Any]] = []
        self.files: list[DataFile] = []
        self.newest: dict[tuple[int, int | None], dict[str, Any]] = {}
        for seq, rows in enumerate(history, start=1):
            changed = {
                (stored["hash"], stored["window_start"]): stored | {"updated_seq": seq} for stored in rows
            }
            self.newest |= changed
            self.rows += changed.values()
            if changed:
                self.files.append(write(store, seq, list(changed.values())))

    def taken(self, requested: set[int]) -> list[tuple[int, int, int]]:
        return sorted(
            map(identified, (stored for stored in self.newest.values() if stored["hash"] in requested))
        )


def identified(stored: dict[str, Any]) -> tuple[int, int, int]:
    return stored["hash"], _place(stored), stored["updated_seq"]


@given(
    histories,
    st.sets(st.integers(-12, 12)),
    st.sets(st.integers(-12, 12), max_size=3),
    st.none() | st.integers(0, 30),
    st.sampled_from([1, 5, 1000]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lookup_equals_a_look_at_all_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    history: list[list[dict[str, Any]]],
    requested: set[int],
    cuts: set[int],
    latest: int | None,
    most: int,
) -> None:
    monkeypatch.setattr(state_module, "MOST_DUE_ROWS", most)
    store = Store(str(tmp_path))
    model = Model(store, history)
    fired = {
        stored["hash"]
        for stored in model.rows
        if latest is not None and stored["due_at"] is not None and stored["due_at"] <= latest
    }
    rows: list[tuple[int, int, int]] = []
    with StateReader(store, model.files, SCHEMA, None if latest is None else due_at(latest)) as state:
        bound = -13
        for cut in [*sorted(cuts), GREATEST_HASH]:
            while bound < cut:
                before, bound = bound, state.next_bound(cut)
                asked = hashes(*(hash_ for hash_ in requested if before < hash_ <= bound))
                rows += map(identified, state.take(asked, bound).to_pylist())
    assert rows == model.taken(requested | fired)


@given(
    histories.map(without_windows), st.sets(st.integers(-12, 12)), st.integers(-12, 12), st.integers(0, 30)
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lookup_of_only_keys_equals_all_rows(
    tmp_path: Path, history: list[list[dict[str, Any]]], requested: set[int], cut: int, latest: int
) -> None:
    store = Store(str(tmp_path))
    model = Model(store, history)
    fired = {row["hash"] for row in model.rows if row["due_at"] is not None and row["due_at"] <= latest}
    rows: list[tuple[int, int, int]] = []
    with StateReader(store, model.files, SCHEMA, due_at(latest)) as state:
        for asked, up_to in (
            (hashes(*(hash_ for hash_ in requested if hash_ <= cut)), cut),
            (hashes(*(hash_ for hash_ in requested if hash_ > cut)), GREATEST_HASH),
        ):
            rows += map(identified, state.take(asked, up_to, keys_of(*asked.tolist())).to_pylist())
    assert rows == model.taken(requested | fired)


@given(histories, st.integers(-13, 13), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_scan_equals_a_look_at_all_rows(
    tmp_path: Path, history: list[list[dict[str, Any]]], first: int, live_only: bool
) -> None:
    store = Store(str(tmp_path))
    model = Model(store, history)
    with StateReader(store, model.files, SCHEMA, first_hash=first) as state:
        rows = [identified(stored) for part in state.scan(live_only) for stored in part.to_pylist()]
    newest = (stored for stored in model.newest.values() if stored["hash"] >= first)
    assert rows == sorted(identified(stored) for stored in newest if stored["live"] or not live_only)


def test_the_newest_of_no_rows_is_none() -> None:
    assert newest_rows(SCHEMA.empty_table()).num_rows == 0
