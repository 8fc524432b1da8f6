"""`tidegate status` lists every pipeline; rows for programs say if they are cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.batch.committed import Committed
from tests.cli.test_check import SINKS
from tidegate.cli import cli


@pytest.fixture
def committed(tmp_path: Path) -> Committed:
    made = Committed(tmp_path, SINKS, f"sqlite:///{tmp_path}/sink.db")
    made.commit(1, {"second": [("a", 1), ("b", 2)]})
    return made


def run(committed: Committed, *arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, env=committed.environment)


def test_status_lists_files_without_a_batch(committed: Committed) -> None:
    fresh = committed.file.read_text().replace("pipeline: visitors", "pipeline: fresh")
    committed.file.with_name("fresh.yaml").write_text(fresh)
    broken = fresh.replace("fresh", "broken").replace("reduce: latest", "reduce: latst")
    committed.file.with_name("broken.yaml").write_text(broken)
    _, *rows = json.loads(run(committed, "status", "--json").stdout)
    assert [(row["pipeline"], row["condition"], row["lag"]) for row in rows] == [
        ("broken", "halted", None),
        ("fresh", "not started", None),
    ]


def test_rows_for_programs_say_that_they_are_cut(committed: Committed) -> None:
    assert "first 1 of 2 rows" in run(committed, "emissions", "visitors", "--json", "--limit", "1").stderr
    assert run(committed, "emissions", "visitors", "--json").stderr == ""
