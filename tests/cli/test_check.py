"""`check`: suites over batches and states that are committed, without Kafka, Spark or a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import update

from tests.batch.aged import Aged
from tests.batch.committed import Committed, Row
from tidegate.batch.suites import suite_parameters
from tidegate.cli import cli
from tidegate.errors import QualityFailed, SettingsInvalid, StateGivenUp
from tidegate.ledger import schema
from tidegate.quality.suite import parse_suite

SINKS = "  - {kind: sql, table: newest}"
POSITIVE = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "m", "min_value": 0}}
SOME = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}}


def write_suite(folder: Path, name: str, *expectations: dict[str, Any]) -> None:
    """Write a suite into the folder of expectations."""
    (folder / "expectations").mkdir(exist_ok=True)
    suite = {"name": name, "expectations": list(expectations)}
    (folder / "expectations" / f"{name}.json").write_text(json.dumps(suite))


def declare(committed: Committed, quality: str) -> None:
    """Add checks to the pipeline file."""
    committed.file.write_text(committed.file.read_text() + f"quality: {quality}\n")


def run(committed: Committed, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["check", "visitors", *arguments], env=committed.environment)


def check_rows(committed: Committed, *arguments: str) -> list[dict[str, Any]]:
    """Return the rows that `check` prints for programs."""
    rows: list[dict[str, Any]] = json.loads(run(committed, *arguments, "--json").stdout)
    return rows


def batches(folder: Path, *of_batches: list[Row]) -> Committed:
    made = Committed(folder, SINKS, f"sqlite:///{folder}/sink.db")
    for seq, rows in enumerate(of_batches, start=1):
        made.commit(seq, {"second": rows}, used=1)
    return made


@pytest.fixture
def planted(tmp_path: Path) -> Committed:
    """Seven batches; 4 and 6 send something negative, 5 sends nothing."""
    values = ([("a", 1)], [("a", 2)], [("b", 3)], [("a", -4), ("b", 5)], [], [("a", -6)], [("a", 7)])
    made = batches(tmp_path, *values)
    write_suite(tmp_path, "positive", POSITIVE)
    write_suite(tmp_path, "some", SOME, POSITIVE)
    return made


def test_newest_batch_is_checked_by_own_suites(planted: Committed) -> None:
    declare(planted, "[{suite: positive}, {suite: some, on_failure: warn}]")
    result = run(planted)
    assert result.exit_code == 0, result.output
    assert "3 of 3 expectations are met in batch 7 of visitors/1" in result.stdout
    assert [(row["suite"], row["batch"], row["passed"]) for row in check_rows(planted)] == [
        ("positive", 7, True),
        ("some", 7, True),
        ("some", 7, True),
    ]


def test_unmet_expectation_is_shown_with_exit_code_2(planted: Committed) -> None:
    result = run(planted, "--batch", "4", "--suite", "positive")
    assert isinstance(result.exception, QualityFailed)
    assert result.exception.exit_code == 2
    assert all(text in result.stdout for text in ("NOT MET", "1 unexpected", "m=-4", "batch 4 of visitors/1"))
    (row,) = check_rows(planted, "--batch", "4", "--suite", "positive")
    assert {name: row[name] for name in ("columns", "rows", "unexpected", "failing", "severity")} == {
        "columns": ["m"],
        "rows": 2,
        "unexpected": 1,
        "failing": [{"key": "a", "m": "-4"}],
        "severity": "critical",
    }


def test_range_shows_failures_to_people_all_to_programs(planted: Committed) -> None:
    shown = run(planted, "--batch", "2..6", "--suite", "some").stdout
    assert "7 of 10 expectations are met in batches 2 to 6" in shown
    assert shown.count("NOT MET") == 3
    rows = check_rows(planted, "--batch", "2..6", "--suite", "some")
    assert [(row["batch"], row["type"][:18]) for row in rows if not row["passed"]] == [
        (4, "expect_column_valu"),
        (5, "expect_table_row_c"),
        (6, "expect_column_valu"),
    ]


def test_only_what_is_critical_is_a_failure(planted: Committed) -> None:
    write_suite(planted.folder, "warned", POSITIVE | {"severity": "warning"})
    result = run(planted, "--batch", "4", "--suite", "warned")
    assert (result.exit_code, "NOT MET" in result.stdout) == (0, True)


def test_single_expectation_can_be_checked(planted: Committed) -> None:
    named = ("--suite", "some", "--batch", "4", "--expectation")
    assert [row["type"] for row in check_rows(planted, *named, SOME["type"])] == [SOME["type"]]
    assert [row["columns"] for row in check_rows(planted, *named, f"{POSITIVE['type']}(m)")] == [["m"]]
    error = run(planted, *named, f"{POSITIVE['type']}(n)").exception
    assert isinstance(error, SettingsInvalid)
    assert "No suite has expect_column_values_to_be_between(n)" in str(error)


def test_bisect_finds_the_first_breaking_batch(
    planted: Committed,
) -> None:
    result = run(planted, "--bisect", "--suite", "positive", "--json")
    document = json.loads(result.stdout)
    assert (document["first"], document["looked_at"], document["from"], document["to"]) == (4, 4, 1, 7)
    assert [row["failing"][0]["m"] for row in document["failed"]] == ["-4"]
    assert isinstance(result.exception, QualityFailed)
    assert "batch 4 of visitors/1" in str(result.exception)
    later = json.loads(run(planted, "--bisect", "--suite", "positive", "--batch", "5..", "--json").stdout)
    assert (later["first"], later["looked_at"]) == (6, 2)


def test_bisect_that_finds_none_says_so(planted: Committed) -> None:
    result = run(planted, "--bisect", "--suite", "positive", "--batch", "..3")
    assert result.exit_code == 0
    assert "All expectations are met in batches 1 to 3 of visitors/1 (looked at 3 of 3)" in result.stdout


@pytest.fixture
def states(tmp_path: Path) -> Aged:
    """Nine batches, each with one key more, and `bad` from batch 6 on. State before batch 3 is given up."""
    aged = Aged(tmp_path, "  - {kind: table, path: out}")
    for seq in range(1, 10):
        aged.batch(seq, keys=["bad"] if seq == 6 else [])
        if seq == 3:
            aged.snapshot(3)
            aged.clean(31)
    good = {"type": "expect_column_values_to_match_regex", "kwargs": {"column": "key", "regex": "^k"}}
    write_suite(tmp_path, "good", good)
    few = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "value.m", "max_value": 8}}
    write_suite(tmp_path, "few", few)
    return aged


def test_whole_state_is_checked_as_of_a_batch(states: Aged) -> None:
    (now,) = check_rows(states, "--state", "--suite", "few")
    assert (now["batch"], now["rows"], now["unexpected"]) == (9, 10, 1)
    assert [(row["key"], row["value.m"]) for row in now["failing"]] == [("k9", "9")]
    (then,) = check_rows(states, "--state", "--suite", "few", "--batch", "8")
    assert (then["batch"], then["rows"], then["passed"], then["is_state"]) == (8, 9, True, True)


def test_bisect_over_states_halves_to_the_batch(states: Aged) -> None:
    document = json.loads(run(states, "--state", "--bisect", "--suite", "good", "--json").stdout)
    assert (document["first"], document["from"], document["to"]) == (6, 3, 9)
    assert document["looked_at"] <= 4
    assert [row["failing"][0]["key"] for row in document["failed"]] == ["bad"]


def test_removed_state_is_not_checked(states: Aged) -> None:
    error = run(states, "--state", "--suite", "good", "--batch", "..2").exception
    assert isinstance(error, SettingsInvalid | StateGivenUp)
    assert check_rows(states, "--state", "--suite", "good", "--batch", "..4")[0]["batch"] == 3


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((), "The pipeline file has no quality check"),
        (("--state", "--suite", "none"), "none.json does not exist"),
        (("--batch", "9", "--suite", "positive"), "Batch 9 of visitors/1 is not kept"),
        (("--batch", "x", "--suite", "positive"), "--batch x names no batches"),
        (("--stage", "first", "--suite", "positive"), "The emissions of the stage first are not kept"),
        (("--stage", "third", "--suite", "positive"), "has no stage third"),
    ],
)
def test_what_cannot_be_checked_is_said(planted: Committed, arguments: tuple[str, ...], what: str) -> None:
    error = run(planted, *arguments).exception
    assert isinstance(error, SettingsInvalid), error
    assert what in str(error)


def test_pipeline_without_batches_has_nothing_to_check(tmp_path: Path) -> None:
    made = Committed(tmp_path, SINKS, f"sqlite:///{tmp_path}/sink.db")
    write_suite(tmp_path, "positive", POSITIVE)
    error = run(made, "--suite", "positive").exception
    assert isinstance(error, SettingsInvalid)
    assert "has no committed batch yet" in str(error)


def test_failing_evaluation_says_why_and_fails(planted: Committed) -> None:
    nowhere = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "none", "min_value": 0}}
    write_suite(planted.folder, "nowhere", nowhere)
    result = run(planted, "--suite", "nowhere")
    assert isinstance(result.exception, QualityFailed)
    assert "could not be evaluated" in result.stdout
    (row,) = check_rows(planted, "--suite", "nowhere")
    assert "none" in row["error"]


def test_check_leaves_everything_unchanged(planted: Committed) -> None:
    before = sorted(path for path in planted.folder.rglob("*"))
    run(planted, "--batch", "1..", "--suite", "some")
    assert sorted(path for path in planted.folder.rglob("*")) == before


def test_stage_that_is_new_has_no_batch_before(tmp_path: Path) -> None:
    made = Committed(tmp_path, SINKS, f"sqlite:///{tmp_path}/sink.db")
    made.commit(1, {"first": [("a", 1)]})
    made.commit(2, {"second": [("a", 1)]})
    with made.app.ledger._engine.begin() as connection:
        counts = {"": {"read": 1}, "first": {"emitted": 1}}
        connection.execute(update(schema.attempts).where(schema.attempts.c.seq == 1).values(counts=counts))
    most = {"max_value": {"$PARAMETER": "previous_emitted * 2"}}
    expected = [{"type": "expect_table_row_count_to_be_between", "kwargs": most}]
    suite = parse_suite(json.dumps({"name": "s", "expectations": expected}), "s")
    plan, attempt = made.app.ledger.plan(made.stream, 2), made.app.ledger.attempt(made.stream, 2)
    assert plan is not None
    assert attempt is not None
    values = suite_parameters(made.app, plan, attempt, "second", suite)
    assert ("previous_emitted" in values, values["previous_read"]) == (False, 1)
    assert suite_parameters(made.app, plan, attempt, "first", suite)["previous_emitted"] == 1
