"""`quality learn`: a suite from what batches have sent out, which they pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from tests.cli.test_check import check_rows
from tests.quality.test_builtin_suite import Promised
from tidegate.cli import cli
from tidegate.errors import SettingsInvalid
from tidegate.inspect import learn
from tidegate.storage import datafile


def run(made: Promised, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["quality", "learn", "visitors", *arguments], env=made.environment)


@pytest.fixture
def made(tmp_path: Path) -> Promised:
    """Ten batches with numbers from 0 to 39, a deletion in each, and a batch that sends nothing."""
    promised = Promised(tmp_path)
    for seq in range(1, 10):
        promised.batch(seq, [*((f"k{seq}-{at}", at) for at in range(40)), ("gone", None)])
    promised.batch(10, [], read=0, used=0)
    return promised


def suite(made: Promised, name: str = "visitors") -> dict[str, Any]:
    written: dict[str, Any] = json.loads((made.folder / "expectations" / f"{name}.json").read_text())
    return written


@pytest.mark.heavy
def test_learned_suite_passes_on_each_batch(made: Promised) -> None:
    result = run(made)
    assert result.exit_code == 0, result.output
    assert "Written:" in result.stdout
    expectations = {
        (proposal["type"], proposal["kwargs"].get("column")): proposal
        for proposal in suite(made)["expectations"]
    }
    assert [type_ for type_, column in expectations if column is None] == [
        "expect_keys_to_not_be_null",
        "expect_counts_to_add_up",
        "expect_equal_neighbours_to_be_absent",
        "expect_quarantined_share_to_be_at_most",
        "expect_emitted_share_to_be_as_before",
    ]
    values = expectations["expect_column_values_to_be_between", "m"]
    assert values["kwargs"] == {"column": "m", "min_value": 0, "max_value": 43}
    assert values["meta"]["learned"] == "0 to 39 in 360 emissions of 9 batches"
    assert all(expectation["meta"]["learned"] for expectation in expectations.values())
    rows = check_rows(made, "--suite", "visitors", "--batch", "1..10")
    assert [row for row in rows if not row["passed"]] == []
    assert len(rows) == 10 * len(expectations)


def test_great_expectations_reads_it(made: Promised) -> None:
    import tidegate.quality.builtin  # noqa: F401
    from tidegate.quality.expectations import gx

    run(made, "--suite", "learned")
    written = suite(made, "learned")
    read = gx.ExpectationSuite(**{name: written[name] for name in ("name", "expectations", "meta")})
    assert len(read.expectations) == len(written["expectations"]) > 5
    assert {expectation.severity.value for expectation in read.expectations} == {"critical", "warning"}


def test_suite_is_overwritten_only_on_request(made: Promised) -> None:
    file = made.folder / "expectations" / "mine.json"
    file.parent.mkdir()
    file.write_text("mine")
    error = run(made, "--suite", "mine").exception
    assert isinstance(error, SettingsInvalid)
    assert "--force" in str(error)
    assert file.read_text() == "mine"
    assert run(made, "--suite", "mine", "--force").exit_code == 0
    assert suite(made, "mine")["name"] == "mine"


def test_failing_proposals_are_omitted_and_reported(made: Promised) -> None:
    made.batch(11, [("a", 1)], read=500)
    result = run(made, "--batches", "2", "--json")
    document = json.loads(result.stdout)
    assert [proposal["type"] for proposal in document["refuted"]] == ["expect_counts_to_add_up"]
    assert "expect_counts_to_add_up" not in {
        expectation["type"] for expectation in suite(made)["expectations"]
    }
    assert document["meta"]["learned"] == "1 emission of the stage second, batches 10 to 11"


def test_only_some_row_groups_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datafile, "ROW_GROUP_ROWS", 100)
    made = Promised(tmp_path)
    made.batch(1, [(f"k{at:04}", at) for at in range(1000)])
    manifest = made.app.manifest(made.stream, made.app.ledger.committed(made.stream)[0][1])
    files, store = manifest.files_of("outbox", "second"), made.app.lake(made.stream).store
    parts = list(learn._parts(store, files, 300))
    assert [part.num_rows for part in parts] == [100, 100, 100]
    assert [part["value"][0]["m"].as_py() for part in parts] == [0, 300, 600]
    assert [part.num_rows for part in learn._parts(store, files, 30)] == [30]
    assert sum(part.num_rows for part in learn._parts(store, files, 10_000)) == 1000


def test_batches_before_a_schema_change_are_omitted() -> None:
    narrow, wide = (pa.table({"x": pa.array([1], type_)}) for type_ in (pa.int32(), pa.int64()))
    more = wide.append_column("y", pa.array(["a"]))
    assert learn._alike([narrow, wide, wide, more.slice(0, 0)]) == [wide, wide]
    assert learn._alike([narrow, wide, more]) == [more]
    assert learn._alike([narrow.slice(0, 0)]) == []


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--stage", "first"), "The emissions of the stage first are not kept"),
        (("--generation", "7"), "has no committed batch yet"),
    ],
)
def test_what_cannot_be_learned_from_is_said(made: Promised, arguments: tuple[str, ...], what: str) -> None:
    error = run(made, *arguments).exception
    assert isinstance(error, SettingsInvalid)
    assert what in str(error)
