"""The state is folded beside batches, readers and other compactions; what is read stays the same."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.batch.aged import STAGE, Aged
from tidegate import failpoints, inspect, maintenance
from tidegate.app import App
from tidegate.batch import compute_batch
from tidegate.errors import LakeUnavailable, LedgerUnavailable
from tidegate.maintenance.compaction import Size
from tidegate.storage.compaction import MOST_CHANGELOGS, ROW_GROUP_ROWS


@pytest.fixture
def aged(tmp_path: Path) -> Aged:
    return Aged(tmp_path)


def compact(aged: Aged, **options: Any) -> maintenance.Compaction:
    return maintenance.compact_state(aged.app, aged.stream, **options)


def states(aged: Aged, up_to: int) -> list[pa.Table]:
    return [inspect.read_state(aged.app, aged.stream, seq, STAGE) for seq in range(1, up_to + 1)]


def test_compaction_keeps_state_of_every_batch(aged: Aged) -> None:
    aged.batch(1)
    aged.batch(2, keys=["k1"])
    aged.batch(3, keys=["k2"])
    before, committed = states(aged, 3), aged.app.ledger.committed(aged.stream)
    done = compact(aged)
    assert (done.note, done.seq, done.before.rows, done.before.files) == ("compacted", 3, 5, 3)
    assert (done.after.rows, done.after.files) == (3, 1)
    assert states(aged, 3) == before
    assert aged.app.ledger.committed(aged.stream) == committed


def test_sizes_are_those_of_the_files(aged: Aged) -> None:
    aged.batch(1)
    done = compact(aged)
    sizes = {
        file.path.split("/")[-2]: file.bytes
        for file in aged.lake.store.listed(aged.lake.table("state", STAGE))
    }
    (committed,) = (manifest.name for _, manifest in aged.app.ledger.committed(aged.stream))
    assert (done.before, done.after) == (Size(1, sizes[committed], 1), Size(1, sizes[str(done.snapshot)], 1))


def test_what_is_folded_already_is_not_folded_again(aged: Aged) -> None:
    assert compact(aged).note == "no batch is committed yet"
    aged.batch(1)
    compact(aged)
    again = compact(aged)
    assert (again.note, again.snapshot, again.before) == ("is compacted already", None, again.after)


def test_a_dry_run_writes_nothing(aged: Aged) -> None:
    aged.batch(1)
    before = aged.lake.store.listed("")
    dry = compact(aged, dry_run=True)
    assert (dry.note, dry.snapshot, dry.before) == ("would be compacted", None, dry.after)
    assert aged.lake.store.listed("") == before


def test_compaction_is_due_at_doubled_changes(aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.storage.compaction.ROW_GROUP_ROWS", 1)
    aged.batch(1, keys=["a", "b"])
    compact(aged)
    for seq in (2, 3):
        aged.batch(seq)
        note = f"not due: {seq - 1} rows changed since a snapshot of 3"
        assert compact(aged, only_if_due=True).note == note
    aged.batch(4)
    assert compact(aged, only_if_due=True).note == "compacted"


def test_many_changelogs_make_compaction_due(aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (MOST_CHANGELOGS, ROW_GROUP_ROWS) == (32, 32_768)
    monkeypatch.setattr("tidegate.storage.compaction.MOST_CHANGELOGS", 2)
    for seq in (1, 2):
        aged.batch(seq)
    assert compact(aged, only_if_due=True).note == "not due: 2 rows changed since a snapshot of 0"
    aged.batch(3)
    assert compact(aged, only_if_due=True).note == "compacted"


@pytest.mark.heavy
@pytest.mark.parametrize("action", ["raise", "lose"])
@pytest.mark.parametrize("name", ["compact.read", "compact.write", "manifest.write", "ledger.add_snapshot"])
def test_killed_compaction_is_repeated_by_the_next(
    aged: Aged, monkeypatch: pytest.MonkeyPatch, name: str, action: str
) -> None:
    for seq in (1, 2):
        aged.batch(seq)
    before = states(aged, 2)
    monkeypatch.setattr(failpoints, "_hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{name}={action}")
    with suppress(failpoints.FailpointRaised, ConnectionError, LakeUnavailable, LedgerUnavailable):
        compact(aged)
    assert failpoints._hits[name] == 1
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    assert states(aged, 2) == before
    is_noted = (name, action) == ("ledger.add_snapshot", "lose")
    assert compact(aged).note == ("is compacted already" if is_noted else "compacted")
    assert states(aged, 2) == before
    aged.clean()
    snapshots = [snapshot.name for snapshot in aged.app.ledger.snapshots(aged.stream)]
    attempts = [manifest.name for _, manifest in aged.app.ledger.committed(aged.stream)]
    assert aged.names() == sorted([*attempts, *snapshots])  # nothing is left of the one that died


def test_one_that_is_overtaken_changes_nothing(aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
    for seq in (1, 2):
        aged.batch(seq)
    before = states(aged, 2)
    faster: list[maintenance.Compaction] = []
    write = App.write_manifest

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(App, "write_manifest", write)
        faster.append(compact(aged))
        return write(*arguments)

    monkeypatch.setattr(App, "write_manifest", overtaken)
    late = compact(aged)
    assert (faster[0].note, late.note) == ("compacted", "another compaction was faster")
    assert states(aged, 2) == before
    assert len(aged.clean().names) == 1
    assert states(aged, 2) == before


# before a batch


class Seen(Exception):
    """A computation has begun."""


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, list[str]]]:
    """Return the state files of each computation that begins, by stage; the computation goes no further."""
    seen: list[dict[str, list[str]]] = []

    def begin(_: App, __: Any, before: Any, *___: Any) -> None:
        files = {stage: [file.path.split("/")[-2] for file in files] for stage, files in before.state.items()}
        seen.append(files)
        raise Seen

    monkeypatch.setattr(App, "compute", begin)
    monkeypatch.setattr("tidegate.maintenance.compaction.MOST_CHANGELOGS", 1)
    return seen


def begin(aged: Aged, seq: int) -> None:
    lease = aged.app.ledger.acquire(aged.stream, f"run-{seq}")
    if aged.app.ledger.plan(aged.stream, seq) is None:
        lease.add_plan(aged.planned(seq))
    with pytest.raises(Seen):
        compute_batch(aged.app, aged.planned(seq), f"run-{seq}", lambda: None)  # type: ignore[arg-type, return-value]


def test_batch_compacts_far_too_many_changelogs_first(aged: Aged, begun: list[dict[str, list[str]]]) -> None:
    attempts = [aged.batch(seq) for seq in (1, 2)]
    begin(aged, 3)
    assert begun[-1] == {STAGE: attempts}
    lease = aged.app.ledger.acquire(aged.stream, "test")
    lease.drop_plan()
    lease.release()
    aged.batch(3)
    begin(aged, 4)
    (snapshot,) = aged.app.ledger.snapshots(aged.stream)
    assert (snapshot.seq, begun[-1]) == (3, {STAGE: [snapshot.name]})


def test_batch_uses_the_faster_compactions_snapshot(
    aged: Aged, begun: list[dict[str, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seq in (1, 2, 3):
        aged.batch(seq)
    write = App.write_manifest

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(App, "write_manifest", write)
        compact(aged)
        return write(*arguments)

    monkeypatch.setattr(App, "write_manifest", overtaken)
    begin(aged, 4)
    (snapshot,) = aged.app.ledger.snapshots(aged.stream)
    assert begun[-1] == {STAGE: [snapshot.name]}
