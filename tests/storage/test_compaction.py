"""Folding state into snapshots: nothing that is read changes, and what is written goes with what changed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.storage.files_for_tests import SCHEMA, row, write
from tidegate.errors import LakeDamaged
from tidegate.storage import compaction, datafile
from tidegate.storage import state as state_module
from tidegate.storage.compaction import (
    MOST_CHANGELOGS,
    FoldRule,
    Run,
    SnapshotTarget,
    compact,
    is_due,
    newest_runs_to_fold,
    runs_by_age,
)
from tidegate.storage.layout import Name, attempt_name, snapshot_name
from tidegate.storage.manifest import DataFile, Manifest
from tidegate.storage.state import StateReader
from tidegate.storage.store import Store

FORGETFUL, REMEMBERING = FoldRule(False, True), FoldRule(False, False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datafile, "STATE_GROUP_ROWS", 6)
    monkeypatch.setattr(state_module, "_GROUPS_AT_ONCE", 2)
    monkeypatch.setattr(compaction, "ROW_GROUP_ROWS", 6)
    monkeypatch.setattr(compaction, "ROWS_PER_FILE", 15)


def compacted(
    store: Store, seq: int, files: Sequence[DataFile], rule: FoldRule = FORGETFUL
) -> tuple[DataFile, ...]:
    name = snapshot_name(seq)
    target = SnapshotTarget(name, seq, lambda stage: f"{stage}/{name}")
    manifest = compact(store, target, files, {"s": rule})
    assert (manifest.name, manifest.seq) == (name, seq)
    return manifest.files


def scanned(store: Store, files: Sequence[DataFile], live_only: bool = True) -> list[dict[str, Any]]:
    with StateReader(store, files, SCHEMA) as state:
        return [stored for part in state.scan(live_only) for stored in part.to_pylist()]


def paths(files: Sequence[DataFile]) -> set[str]:
    return {file.path for file in files}


def test_of_each_entry_the_newest_row_is_kept(store: Store) -> None:
    files = [write(store, 1, [row(h, 1) for h in range(5)]), write(store, 2, [row(2, 2), row(7, 2)])]
    (folded,) = compacted(store, 2, files)
    assert [(stored["hash"], stored["updated_seq"]) for stored in scanned(store, [folded])] == [
        *((0, 1), (1, 1), (2, 2), (3, 1), (4, 1), (7, 2))
    ]


def test_large_state_becomes_files_of_disjoint_hashes(store: Store) -> None:
    files = [write(store, seq, [row(h, seq) for h in range(seq, 80, 2)]) for seq in (1, 2)]
    folded = compacted(store, 2, [*files, write(store, 3, [row(0, 3)])])
    assert len(folded) > 3
    assert all(before.most_hash < after.least_hash for before, after in pairwise(folded))


def test_dead_row_without_older_run_is_removed(store: Store) -> None:
    files = [write(store, 1, [row(1, 1), row(2, 1)]), write(store, 2, [row(1, 2, live=False)])]
    for rule, expected in ((FORGETFUL, [2]), (REMEMBERING, [1, 2])):
        folded = compacted(store, 2, files, rule)
        assert [stored["hash"] for stored in scanned(store, folded, live_only=False)] == expected


def test_dead_row_over_an_older_run_stays(store: Store) -> None:
    old = write(store, 1, [row(h, 1) for h in range(50)])
    files = [old, write(store, 2, [row(1, 2, live=False)]), write(store, 3, [row(9, 3)])]
    folded = compacted(store, 3, files)
    assert old in folded
    assert [stored["hash"] for stored in scanned(store, folded)] == [0, *range(2, 50)]


def test_large_old_run_is_kept_unchanged(store: Store) -> None:
    old = write(store, 1, [row(h, 1) for h in range(50)])
    newer = [write(store, seq, [row(h, seq) for h in range(4)]) for seq in (2, 3)]
    folded = compacted(store, 3, [old, *newer])
    assert paths(folded) >= paths([old])
    assert sum(file.rows for file in folded) == 54


def test_single_small_changelog_is_not_rewritten(store: Store) -> None:
    files = [write(store, 1, [row(h, 1) for h in range(50)]), write(store, 2, [row(1, 2)])]
    assert paths(compacted(store, 2, files)) == paths(files)


def test_bounded_stage_keeps_entries_per_partition(store: Store) -> None:
    moved = row(1, 2) | {"partition": 1}
    files = [write(store, 1, [row(1, 1), row(2, 1)]), write(store, 2, [moved, row(2, 2)])]
    (folded,) = compacted(store, 2, files, FoldRule(by_place=True, live_rows_suffice=True))
    with StateReader(store, [folded], SCHEMA, by_place=True) as state:
        rows = [stored for part in state.scan() for stored in part.to_pylist()]
    entries = sorted((stored["hash"], stored["partition"], stored["updated_seq"]) for stored in rows)
    assert entries == [(1, 0, 1), (1, 1, 2), (2, 0, 2)]


def test_columns_that_only_some_files_have_are_kept(store: Store) -> None:
    wider = SCHEMA.set(
        SCHEMA.get_field_index("value"),
        pa.field("value", pa.struct([pa.field("n", pa.int64()), pa.field("more", pa.string())])),
    ).append(pa.field("bytes", pa.int64()))
    files = [
        write(store, 1, [row(1, 1), row(2, 1)]),
        write(store, 2, [row(2, 2) | {"value": {"n": 5, "more": "x"}, "bytes": 3}], wider),
    ]
    folded = compacted(store, 2, files)
    with StateReader(store, folded, wider) as state:
        rows = pa.concat_tables(state.scan()).to_pylist()
    assert [(stored["value"]["more"], stored["bytes"]) for stored in rows] == [(None, None), ("x", 3)]


def test_outboxes_and_quarantine_are_no_part_of_it(store: Store) -> None:
    file = write(store, 1, [row(1, 1)])
    other = DataFile("outbox", "s", "elsewhere", 1, 1, "", 1, "")
    assert paths(compacted(store, 1, [file, other], REMEMBERING)) == {file.path}


def test_a_snapshots_name_is_not_an_attempts() -> None:
    assert Name.parse(snapshot_name(7)) == Name(7, None)
    assert Name.parse(attempt_name(7, 3)) == Name(7, 3)
    assert [Name.parse(text) for text in ("a1", "snapshot-7", attempt_name(7, 3) + "0")] == [None] * 3


def test_files_of_an_unknown_name_are_damage(store: Store) -> None:
    with pytest.raises(LakeDamaged, match="the name b"):
        runs_by_age([DataFile("state", "s", "a/b/c", 1, 1, "", 1, "", 0, 0)])


# what costs


def run_of(rows: int) -> Run:
    return Run("n", (DataFile("state", "s", "p", rows, 1, "", 1, "", 0, 0),))


@pytest.mark.parametrize(
    ("sizes", "number"),
    [
        ([10], 1),
        ([1000, 10], 1),
        ([1000, 10, 10], 2),
        ([1000, 100, 50, 10, 10], 2),
        ([1000, 100, 50, 40, 10, 10], 5),
        ([1000, 40, 39, 38, 37], 4),
        ([1000, 6, 1, 1], 3),
    ],
)
def test_older_runs_are_folded_below_equal_size(sizes: list[int], number: int) -> None:
    assert newest_runs_to_fold([run_of(rows) for rows in sizes]) == number


@given(st.lists(st.integers(1, 60), min_size=1, max_size=200))
def test_few_runs_rewrite_rows_a_few_times(changes: list[int]) -> None:
    """Every change in a changelog of its own, folded at once, where nothing is ever replaced."""
    runs: list[Run] = []
    rewritten = 0
    for rows in changes:
        runs.append(run_of(rows))
        number = newest_runs_to_fold(runs)
        folded = sum(run.rows for run in runs[len(runs) - number :])
        rewritten += folded if number > 1 else 0
        runs = [*runs[: len(runs) - number], run_of(folded)]
    doublings = max(sum(changes) // 6, 1).bit_length()
    assert len(runs) <= doublings + 2
    assert rewritten <= sum(changes) * (doublings + 6 + 1)


def changelog(rows: int) -> Manifest:
    return Manifest("n", 1, (DataFile("state", "s", "p", rows, 1, "", 1, "", 0, 0),))


def test_it_is_due_by_number_or_by_rows() -> None:
    snapshot = changelog(1000)
    assert not is_due(snapshot, [changelog(10)] * MOST_CHANGELOGS)
    assert is_due(snapshot, [changelog(10)] * (MOST_CHANGELOGS + 1))
    assert is_due(snapshot, [changelog(500), changelog(500)])
    assert not is_due(None, [changelog(5)])
    assert is_due(None, [changelog(6)])


# against a plain model

changes = st.lists(
    st.builds(
        row,
        st.integers(-12, 12),
        st.just(0),
        st.none() | st.integers(0, 30),
        st.none() | st.sampled_from([0, 10]),
        st.booleans(),
    ),
    min_size=1,
    max_size=14,
)


@given(st.lists(st.tuples(changes, st.booleans()), min_size=1, max_size=8), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_compaction_never_changes_what_is_read(
    tmp_path: Path, history: list[tuple[list[dict[str, Any]], bool]], forgets: bool
) -> None:
    store = Store(str(tmp_path))
    files: list[DataFile] = []
    uncompacted: list[DataFile] = []
    for seq, (rows, then_compact) in enumerate(history, start=1):
        by_entry = {
            (stored["hash"], stored["window_start"]): stored | {"updated_seq": seq} for stored in rows
        }
        changed = write(store, seq, list(by_entry.values()))
        files, uncompacted = [*files, changed], [*uncompacted, changed]
        if then_compact:
            files = list(compacted(store, seq, files, FoldRule(False, forgets)))
    assert scanned(store, files) == scanned(store, uncompacted)
    if not forgets:
        assert scanned(store, files, live_only=False) == scanned(store, uncompacted, live_only=False)
