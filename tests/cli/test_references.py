"""`tidegate validate` and `doctor` look for what pipeline files name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.batch.committed import Committed
from tests.cli.test_commands import tidegate
from tests.model.files import GOOD, edited

pytestmark = pytest.mark.process

STORES = GOOD.replace("pipeline: levels", "pipeline: stores").replace("suite: availability", "suite: theirs")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A home with a pipeline `stores`, and its suite."""
    for name in ("pipelines", "expectations", "checkpoints"):
        (tmp_path / name).mkdir()
    (tmp_path / "checkpoints" / "orders.json").write_text('{"name": "orders"}')
    (tmp_path / "pipelines" / "stores.yaml").write_text(STORES)
    (tmp_path / "expectations" / "theirs.json").write_text('{"name": "theirs", "expectations": []}')
    return tmp_path


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


SUITE = ("suite: availability", "suite: {}")
CHECKPOINT = ("suite: availability", "checkpoint: {}")
TABLE = ("lookup: []", "lookup: [{{table: {}, on: [key], columns: [seen]}}]")
COLUMN = (TABLE[0], TABLE[1].replace("seen", "region"))
FUNCTION = ("equal: exact", 'equal: {{python: "{}"}}')


def written(edit: tuple[str, str], name: str) -> str:
    old, new = edit
    further_edits = [] if edit in (SUITE, CHECKPOINT) else [(SUITE[0], SUITE[1].format("theirs"))]
    return edited((old, new.format(name)), *further_edits)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("edit", "name", "field", "expected"),
    [
        (SUITE, "thiers", "quality.suite", "thiers.json does not exist. Did you mean `theirs`?"),
        (CHECKPOINT, "ordres", "quality.checkpoint", "ordres.json does not exist. Did you mean `orders`?"),
        (CHECKPOINT, "orders", "quality.checkpoint", "orders.json cannot be used: it has no"),
        (TABLE, "store/levels", "lookup.0.table", "the pipeline `store`. Did you mean `stores`?"),
        (TABLE, "stores/level", "lookup.0.table", "no stage `level`. Did you mean `levels`?"),
        (COLUMN, "stores/levels", "lookup.0.table", "has no column `region`. Its columns are key,"),
        (TABLE, "/no/table", "lookup.0.table", "there is no Delta table at /no/table"),
        (FUNCTION, "no_such.module:same", "stages.0.emit.equal.python", "no_such.module:same"),
    ],
)
def test_validate_reports_missing_files_and_names(
    folder: Path, edit: tuple[str, str], name: str, field: str, expected: str
) -> None:
    text = written(edit, name)
    (folder / "pipelines" / "p.yaml").write_text(text)
    for arguments in ((), (str(folder / "pipelines" / "p.yaml"),)):
        result = tidegate(folder, "validate", "--json", *arguments, TIDEGATE_PYTHON_MODULES="no_such")
        assert result.returncode == 2
        (problem,) = json.loads(result.stdout)
        line = next(number for number, line in enumerate(text.splitlines(), 1) if name in line)
        assert (problem["field"], problem["line"]) == (field, line)
        assert expected in f"{problem['message']}. {problem['fix']}"


def test_database_not_set_here_is_only_reported(folder: Path) -> None:
    sink = "  - kind: sql\n    table: out\n    connection: reports\nquality:"
    text = written(TABLE, "stores/levels").replace("quality:", sink)
    (folder / "pipelines" / "p.yaml").write_text(text)
    result = tidegate(folder, "validate")
    assert (result.returncode, result.stdout) == (0, "2 files checked, no mistakes.\n")
    assert "TIDEGATE_SQL_REPORTS is not set here" in result.stderr.replace("\n", " ")
    result = tidegate(folder, "validate", TIDEGATE_SQL_REPORTS="sqlite:///x.db")
    assert (result.returncode, result.stderr) == (0, "")


def test_lookup_of_a_mistaken_file_is_no_mistake(folder: Path) -> None:
    (folder / "pipelines" / "p.yaml").write_text(written(TABLE, "stores/levels"))
    (folder / "pipelines" / "stores.yaml").write_text(STORES + "typo: 1\n")
    result = tidegate(folder, "validate", "--json")
    assert [problem["field"] for problem in json.loads(result.stdout)] == ["typo"]


def test_doctor_names_a_suite_that_does_not_exist(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: table}\nquality: {suite: mine}")
    result = tidegate(tmp_path, "doctor", "--json", **committed.environment)
    findings = [row["found"] for row in json.loads(result.stdout) if row["check"] == "pipeline visitors"]
    assert any(
        f"The quality suite {tmp_path}/expectations/mine.json does not exist" in finding
        for finding in findings
    )


def test_doctor_finds_no_pipeline_of_a_wrong_name(folder: Path) -> None:
    result = tidegate(folder, "doctor", "store", "--json")
    assert result.returncode == 2
    (finding,) = (row for row in json.loads(result.stdout) if row["check"] == "pipeline store")
    assert finding["ok"] == "WRONG"
    assert "Did you mean `stores`?" in finding["found"]
    file = str(folder / "pipelines" / "stores.yaml")
    assert f"pipeline {file}" in tidegate(folder, "doctor", file, "--json").stdout


def test_status_survives_a_file_that_cannot_be_read(folder: Path) -> None:
    (folder / "pipelines" / "a_folder.yaml").mkdir()
    result = tidegate(folder, "status", "--json")
    assert (result.returncode, result.stdout) == (0, "[]\n")
