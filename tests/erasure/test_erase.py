"""An erasure of a key: no file has it afterwards, whatever it was killed at, and other keys are as before."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.erasure.canary import KEY, VALUE, Canary, leave_uncommitted, traces_of
from tests.recovery.commands import recover
from tidegate import failpoints, inspect
from tidegate.app import App
from tidegate.cli.commands.erase import _lines
from tidegate.erasure import ErasedKeys, plan_erasure, requested_keys
from tidegate.errors import Halted, KeyErased, SinkUnavailable, TidegateError
from tidegate.inspect.explain import explain
from tidegate.ledger import Ledger
from tidegate.maintenance import compact_state
from tidegate.storage import Name


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Canary:
    """A pipeline whose batches are filled once, and copied for each test."""
    canary = Canary(tmp_path_factory.mktemp("filled") / "home")
    canary.fill()
    return canary


@pytest.fixture
def canary(filled: Canary, tmp_path: Path) -> Canary:
    return filled.copied(tmp_path / "home")


def test_no_file_has_an_erased_key(canary: Canary) -> None:
    assert all(len(files) > 5 for files in traces_of(canary.folder).values())
    (certificate,) = canary.erase()
    assert traces_of(canary.folder) == {KEY: [], str(VALUE): []}
    assert (certificate.seq, certificate.number, certificate.request) == (4, 1, None)
    assert certificate.rows == {"state": 4, "outbox": 6, "quarantine": 2}
    assert certificate.finished_at is not None


SHARED = "  - {kind: table, path: out/visitors, stage: first}\n"


@pytest.fixture
def shared(tmp_path: Path) -> Canary:
    """A pipeline with a table in which others may write, too."""
    canary = Canary(tmp_path / "home", SHARED)
    canary.decide(1, [(KEY, VALUE), ("a", 1)])
    return canary


def test_young_uncommitted_file_of_a_shared_table_stays(shared: Canary) -> None:
    """A publisher may be about to commit a young file: without the file, the table would lose its rows."""
    left = leave_uncommitted(Path(shared.app.lake(shared.stream).table_sink("out/visitors")))
    with pytest.raises(SinkUnavailable, match=r"is about to commit it.*when the file is an hour old"):
        shared.erase()
    assert left.exists()
    for file in left.parent.glob("part-0000*-dead*"):
        os.utime(file, (0, 0))
    shared.erase()
    assert traces_of(shared.folder) == {KEY: [], str(VALUE): []}


def test_uncommitted_files_without_the_key_stay(shared: Canary) -> None:
    folder = Path(shared.app.lake(shared.stream).table_sink("out/visitors"))
    foreign = {"other key": {"key": ["b"]}, "no key": {"n": [1]}}
    for name, columns in foreign.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    shared.erase()
    assert {file.stem for file in folder.glob("*.parquet")} >= {*foreign}


def test_other_keys_stay_as_they_were(canary: Canary) -> None:
    before = [inspect.read_state(canary.app, canary.stream, as_of=seq).to_pylist() for seq in (1, 2, 3)]
    emissions = [
        row for row in inspect.read_emissions(canary.app, canary.stream).to_pylist() if row["key"] != KEY
    ]
    canary.erase()
    after = [inspect.read_state(canary.app, canary.stream, as_of=seq).to_pylist() for seq in (1, 2, 3)]
    assert after == [[row for row in rows if row["key"] != KEY] for rows in before]
    assert inspect.read_emissions(canary.app, canary.stream).to_pylist() == emissions


def expire_emissions(canary: Canary, seq: int) -> str:
    """Let the emissions of batches up to one expire, as maintenance does; return what an erasure remarks."""
    lease = canary.app.ledger.acquire(canary.stream, "maintenance")
    lease.expire("outbox", seq)
    lease.release()
    lake = canary.app.lake(canary.stream)
    for file in lake.store.listed(lake.base):
        name = Name.parse(file.path.split("/")[-2])
        if "/outbox/" in file.path and name is not None and name.seq <= seq:
            lake.store.delete(file.path)
    (planned,) = plan_erasure(canary.app, "visitors", requested_keys(canary.app, "visitors", None, [KEY]))
    return " ".join(planned.remarks)


def test_sinks_lose_a_key_of_expired_emissions(canary: Canary) -> None:
    canary.decide(4, [("c", 4)])
    remarks = expire_emissions(canary, 3)
    assert "the emissions of batches up to 3 have expired" in remarks
    assert "get no deletion" not in remarks
    canary.erase()
    assert sorted(canary.query("SELECT key FROM newest")) == [("a",), ("b",), ("c",)]
    assert sorted(canary.query('SELECT key FROM "every"')) == [("a",), ("a",), ("b",), ("c",)]
    published = DeltaTable(canary.app.lake(canary.stream).table_sink(None)).to_pyarrow_table()
    assert sorted(published["key"].to_pylist()) == ["a", "a", "b", "c"]
    assert traces_of(canary.folder) == {KEY: [], str(VALUE): []}


def test_erasure_without_kept_emissions_names_the_sinks(canary: Canary) -> None:
    remarks = expire_emissions(canary, 3)
    assert "no emission of the stage second is kept" in remarks
    assert "sql:newest, sql:every get no deletion. Delete the keys there yourself." in remarks
    (certificate,) = canary.erase()
    assert certificate.rows == {"state": 4, "quarantine": 2}
    assert (KEY,) in canary.query("SELECT key FROM newest")


def test_sinks_lose_an_erased_key(canary: Canary) -> None:
    canary.erase()
    assert sorted(canary.query("SELECT key FROM newest")) == [("a",), ("b",)]
    assert sorted(canary.query('SELECT key FROM "every"')) == [("a",), ("a",), ("b",)]
    published = canary.app.lake(canary.stream).table_sink(None)
    assert sorted(DeltaTable(published).to_pyarrow_table()["key"].to_pylist()) == ["a", "a", "b"]
    canary.decide(5, [(KEY, 1)])
    assert ("canary-4711",) in canary.query("SELECT key FROM newest")


def test_lost_table_comes_again_without_erased_keys(canary: Canary) -> None:
    canary.erase()
    canary.decide(5, [(KEY, 1)])
    canary.erase()  # now all that batch 5 had is erased
    canary.decide(7, [("b", 3)])
    canary.query("DROP TABLE newest")
    result = recover(canary.environment, "visitors", "--choose", "restore-progress", "--yes")
    assert "sql:newest: it has batches up to 0; sent again: 1, 2, 3, 7." in result.output, result.exception
    assert sorted(canary.query("SELECT key, m FROM newest")) == [("a", 3), ("b", 3)]


def test_table_lost_right_after_an_erasure_goes_on(canary: Canary) -> None:
    canary.erase()
    canary.query("DROP TABLE newest")
    recover(canary.environment, "visitors", "--choose", "restore-progress", "--yes")
    canary.decide(5, [("b", 4)])
    assert sorted(canary.query("SELECT key, m FROM newest")) == [("a", 3), ("b", 4)]


def test_sinks_with_other_keys_are_named(canary: Canary) -> None:
    [apart] = plan_erasure(canary.app, "visitors", ErasedKeys(("7",), ("store",)))
    assert apart.sinks["sql:newest"] == "sql:newest: nothing, since its rows are kept by other keys."
    [own] = plan_erasure(canary.app, "visitors", requested_keys(canary.app, "visitors", None, [KEY]))
    assert own.sinks["sql:newest"] == "sql:newest: all rows of the keys are deleted."


def test_no_batch_is_planned_before_an_erasure_ends(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "erase.rewritten=raise")
    with pytest.raises(failpoints.FailpointRaised):
        canary.erase()
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    with pytest.raises(Halted, match="tidegate erase visitors --yes"):
        canary.compute(5, {"first": [("a", 1)], "second": []})
    canary.lease.release()
    canary.erase()
    canary.decide(5, [("a", 1)])


OWN = (
    *("erase.outbox", "erase.begin", "erase.rewrite", "erase.rewritten", "erase.tables", "erase.remove"),
    *("erase.docs", "ledger.begin_erasure", "ledger.point_to_rewritten", "ledger.remove_samples"),
    *("ledger.forget_keys", "ledger.vacuum", "ledger.end_erasure", "sql.erase", "table.erase"),
)
"""The failpoints of the erasure itself."""


def undisturbed(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The failpoints that an undisturbed erasure meets."""
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "none=raise")
    canary.erase()
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    return set(failpoints._hits)


def test_every_failpoint_of_an_erasure_is_tried(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(OWN) <= undisturbed(canary, monkeypatch)


def goes_on(canary: Canary, monkeypatch: pytest.MonkeyPatch, name: str, action: str) -> None:
    """Interrupt an erasure at a failpoint, and let the same command finish it."""
    fired = canary.folder.parent / "fired"
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{name}={action}")
    monkeypatch.setenv("TIDEGATE_FAILPOINTS_FIRED", str(fired))
    with suppress(failpoints.FailpointRaised, failpoints.ReplyLost, TidegateError):
        canary.erase()
    assert fired.read_text().split() == [f"{name}={action}"]
    canary.erase()
    assert traces_of(canary.folder) == {KEY: [], str(VALUE): []}
    (certificate,) = canary.app.ledger.erasures(canary.stream)
    assert (certificate.seq, certificate.finished_at is not None) == (4, True)
    assert canary.app.ledger.head(canary.stream).seq == 4
    assert sorted(canary.query("SELECT key FROM newest")) == [("a",), ("b",)]


@pytest.mark.parametrize("name", ["erase.rewritten", "ledger.forget_keys"])
def test_interrupted_erasure_goes_on(canary: Canary, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    goes_on(canary, monkeypatch, name, "raise")


@pytest.mark.long
@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("action", ["raise", "lose"])
def test_erasure_goes_on_after_each_failpoint(
    canary: Canary, monkeypatch: pytest.MonkeyPatch, name: str, action: str
) -> None:
    goes_on(canary, monkeypatch, name, action)


def test_state_before_an_erasure_reports_it(canary: Canary) -> None:
    canary.erase()
    with pytest.raises(KeyErased, match="was erased in batch 4"):
        inspect.read_state(canary.app, canary.stream, as_of=2, key=KEY)
    assert inspect.read_state(canary.app, canary.stream, key=KEY).num_rows == 0
    assert inspect.read_state(canary.app, canary.stream, as_of=2, key="a").num_rows == 1


def test_explanation_before_an_erasure_reports_it(canary: Canary) -> None:
    canary.erase()
    with pytest.raises(KeyErased, match="certificate 1"):
        explain(canary.app, canary.stream, KEY, lambda _: pytest.fail("no session is needed"), seq=3)


def test_erased_key_is_not_erased_again(canary: Canary) -> None:
    canary.erase()
    assert canary.erase() == []
    canary.decide(5, [(KEY, 7)])
    (again,) = canary.erase()
    assert (again.number, again.seq, again.rows["outbox"]) == (2, 6, 4)
    assert traces_of(canary.folder)[KEY] == []


def test_compaction_at_work_keeps_no_erased_key(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    write = App.write_manifest

    def overtaken(app: App, *arguments: Any) -> Any:
        monkeypatch.setattr(App, "write_manifest", write)
        canary.erase()
        return write(app, *arguments)

    monkeypatch.setattr(App, "write_manifest", overtaken)
    assert compact_state(canary.app, canary.stream).note == "another compaction was faster"
    assert canary.app.ledger.snapshots(canary.stream) == []
    assert traces_of(canary.folder)[KEY] == []


def test_snapshots_are_rewritten_too(canary: Canary) -> None:
    compact_state(canary.app, canary.stream)
    canary.erase()
    assert traces_of(canary.folder) == {KEY: [], str(VALUE): []}
    assert inspect.read_state(canary.app, canary.stream, as_of=3).num_rows == 2


def test_a_planned_batch_goes_first(canary: Canary) -> None:
    canary.compute(4, {"first": [("a", 1)], "second": []})
    canary.lease.release()
    with pytest.raises(Halted, match="Batch 4 of visitors/1 is planned and not decided"):
        canary.erase()


def test_only_line_ends_part_keys(tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes("a\u2028b\r\n\nc".encode())
    assert _lines(tmp_path / "keys") == ["a\u2028b", "c"]


def test_plan_names_sinks_that_were_removed(canary: Canary) -> None:
    newest = "  - {kind: sql, table: newest, mode: upsert}\n"
    canary.file.write_text(canary.file.read_text().replace(newest, ""))
    canary.decide(4, [("c", 4)])
    (certificate,) = canary.erase()
    assert any("sql:newest: it is not a sink of visitors/1" in remark for remark in certificate.remarks)
    assert (KEY,) in canary.query("SELECT key FROM newest")


def test_killed_compaction_keeps_no_erased_key(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "add_snapshot", killed)
        with pytest.raises(KeyboardInterrupt):
            compact_state(canary.app, canary.stream)
    canary.erase()
    assert traces_of(canary.folder)[KEY] == []
