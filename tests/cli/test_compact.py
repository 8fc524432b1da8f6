"""`tidegate compact`: what it says it does, does not, and did. Folding itself is in steps/test_compact.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import write_deltalake

from tests.steps.committed import Committed
from tidegate import steps
from tidegate.cli import cli
from tidegate.lake import attempt_name, names_in
from tidegate.steps.compaction import MOST_CHANGELOGS


@pytest.fixture
def committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Committed:
    """Two batches with two rows of state each, and a dead attempt. Folding is stood in for: no Spark here."""
    made = Committed(tmp_path, "  - {kind: table}")
    for seq in (1, 2):
        made.commit(seq, {})
        _write(made, f"a{seq}", 2)
    made.held.release()
    monkeypatch.setattr(
        steps.App, "fold", lambda _app, _stream, _pipelines, _names, name, _: _write(made, name, 2)
    )
    return made


def _write(committed: Committed, name: str, rows: int) -> None:
    keys = {"key": [f"k{number}" for number in range(rows)], "attempt": [name] * rows}
    path = committed.app.lake(committed.stream).state("second")
    write_deltalake(path, pa.table(keys), mode="append", partition_by=["attempt"])


def run(committed: Committed, *arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["compact", *arguments], env=committed.environment)
    assert result.exit_code == 0, result.output
    return result


def told(committed: Committed, *arguments: str) -> dict[str, Any]:
    (row,) = json.loads(run(committed, *arguments, "--json").stdout)
    return dict(row)


def test_what_became_of_rows_and_files_is_told(committed: Committed) -> None:
    dead = attempt_name(1, 1)
    _write(committed, dead, 3)
    done = told(committed, "visitors")
    assert (done["pipeline"], done["generation"], done["batch"]) == ("visitors", 1, 2)
    assert (done["note"], done["before"]["rows"], done["after"]["rows"]) == ("compacted", 4, 2)
    assert (done["before"]["files"], done["after"]["files"]) == (2, 1)
    assert (done["removed"]["names"], done["removed"]["rows"]) == ([dead], 3)
    assert [each.name for each in committed.app.ledger.snapshots(committed.stream)] == [done["snapshot"]]
    assert told(committed, "visitors")["note"] == "is compacted already"


def test_a_dry_run_says_what_would_be_done_and_does_nothing(committed: Committed) -> None:
    dead = attempt_name(1, 1)
    _write(committed, dead, 1)
    shown = run(committed, "visitors", "--dry-run").stdout
    assert "What would be done" in shown
    assert "would be compacted" in shown
    assert committed.app.ledger.snapshots(committed.stream) == []
    assert dead in names_in(committed.app.lake(committed.stream).state("second"))


def test_without_a_name_only_what_is_due_is_compacted(committed: Committed) -> None:
    assert told(committed)["note"] == "compacted"
    committed.commit(3, {})
    _write(committed, "a3", 1)
    committed.held.release()
    assert told(committed)["note"] == "not due: 1 rows changed since a snapshot of 2"
    _write(committed, "a3", 1)
    assert told(committed)["note"] == "compacted"


def test_many_changelogs_are_due_however_small(committed: Committed, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_CHANGELOGS == 100
    monkeypatch.setattr("tidegate.steps.compaction.MOST_CHANGELOGS", 1)
    assert told(committed)["note"] == "compacted"
    for seq in (3, 4):
        assert told(committed)["note"].startswith(("not due: 0 rows", "is compacted"))
        committed.commit(seq, {})
        committed.held.release()
    assert told(committed)["note"] == "compacted"


def test_state_that_is_no_longer_kept_is_refused_with_what_is(committed: Committed) -> None:
    ledger = committed.app.ledger
    told(committed, "visitors")
    held = ledger.acquire(committed.stream, "test")
    held.give_up(2)
    result = CliRunner().invoke(cli, ["state", "visitors", "--as-of", "1"], env=committed.environment)
    assert type(result.exception).__name__ == "StateGivenUp"
    assert "that after batch 2" in str(result.exception)
