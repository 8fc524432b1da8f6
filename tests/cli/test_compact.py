"""`tidegate compact`: what it says it does, or did. Folding is in maintenance/test_compaction.py."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.batch.aged import STAGE, Aged
from tests.storage.tables_for_tests import opened
from tidegate.app.tables import shared_table
from tidegate.cli import cli
from tidegate.storage import attempt_name


@pytest.fixture
def aged(tmp_path: Path) -> Aged:
    """Two batches with two rows of state each."""
    made = Aged(tmp_path)
    made.batch(1, keys=["k2"])
    made.batch(2, keys=["k1"])
    return made


def run(aged: Aged, *arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["compact", *arguments], env=aged.environment)
    assert result.exit_code == 0, result.output
    return result


def compacted(aged: Aged, *arguments: str) -> dict[str, Any]:
    (row,) = json.loads(run(aged, *arguments, "--json").stdout)
    return dict(row)


@pytest.fixture
def dead(aged: Aged) -> str:
    """An attempt that died long ago."""
    (file,) = aged.write(attempt_name(1, 1), 1).files
    os.utime(Path(aged.lake.root) / file.path, (0, 0))
    return file.path.split("/")[-2]


def test_what_became_of_rows_and_files_is_reported(aged: Aged, dead: str) -> None:
    done = compacted(aged, "visitors")
    assert (done["pipeline"], done["generation"], done["batch"]) == ("visitors", 1, 2)
    assert (done["note"], done["before"]["rows"], done["after"]["rows"]) == ("compacted", 4, 2)
    assert (done["before"]["files"], done["after"]["files"]) == (2, 1)
    assert (done["removed"]["names"], done["removed"]["files"]) == ([dead], 1)
    assert done["removed"]["bytes"] > 0
    assert [snapshot.name for snapshot in aged.app.ledger.snapshots(aged.stream)] == [done["snapshot"]]
    assert compacted(aged, "visitors")["note"] == "is compacted already"


def test_a_person_reads_what_was_removed(aged: Aged, dead: str) -> None:
    shown = " ".join(run(aged, "visitors").stdout.split())
    assert "4 → 2" in shown
    assert "1 files" in shown


def test_dry_run_shows_and_does_nothing(aged: Aged, dead: str) -> None:
    before = aged.lake.store.listed("")
    shown = run(aged, "visitors", "--dry-run").stdout
    assert "What would be done" in shown
    assert "would be compacted" in shown
    assert aged.app.ledger.snapshots(aged.stream) == []
    assert aged.lake.store.listed("") == before


def test_only_due_state_is_compacted_by_default(aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compacted(aged)["note"] == "not due: 4 rows changed since a snapshot of 0"
    monkeypatch.setattr("tidegate.storage.compaction.MOST_CHANGELOGS", 1)
    assert compacted(aged)["note"] == "compacted"


def test_tables_are_brought_to_the_snapshot(aged: Aged) -> None:
    done = compacted(aged, "visitors")
    table = opened(shared_table(aged.app, aged.stream, "state", STAGE))
    assert {uri.split("/")[-2] for uri in table.file_uris()} == {done["snapshot"]}


def test_expired_state_is_refused_naming_the_rest(aged: Aged) -> None:
    compacted(aged, "visitors")
    aged.app.ledger.acquire(aged.stream, "test").give_up(2)
    result = CliRunner().invoke(cli, ["state", "visitors", "--as-of", "1"], env=aged.environment)
    assert type(result.exception).__name__ == "StateGivenUp"
    assert "that after batch 2" in str(result.exception)
