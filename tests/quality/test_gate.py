"""What a suite finds of rows: by expectation, with severity, observed value, share, and rows that fail."""

from __future__ import annotations

import gc
import json
import re
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from tests.quality.suite_for_tests import (
    NEGATIVE,
    NOT_NEGATIVE,
    POSITIVE,
    audit_of,
    findings,
    rows_of,
    suite_of,
)
from tidegate.quality import gate
from tidegate.quality.measure import Frame
from tidegate.quality.pages import _view
from tidegate.quality.splitting import Parts
from tidegate.quality.suite import Severity
from tidegate.quality.verdict import MOST_FAILING_ROWS, Verdict, verdict_table

UNIQUE = ("expect_column_values_to_be_unique", {"column": "key"})
INCREASING = ("expect_column_values_to_be_decreasing", {"column": "quantity"})


def check(*arguments: Any, **options: Any) -> Verdict:
    return gate.check(audit_of(*arguments, **options))


LEVELS = pa.table({"key": [f"k{n}" for n in range(50)], "quantity": [*range(-25, 24), None]})
MAXIMUM = ("expect_column_max_to_be_between", {"column": "quantity", "max_value": 10})
NO_COLUMN = ("expect_column_values_to_not_be_null", {"column": "qty"})


def test_failing_rows_are_counted_and_named_by_key(tmp_path: Path) -> None:
    (result,) = check(tmp_path, LEVELS).expectations
    assert (result.passed, result.rows, result.unexpected, result.share) == (False, 50, 25, 25 / 49)
    assert result.failing[0] == {"key": "k0", "quantity": "-25.0"}
    assert len(result.failing) == MOST_FAILING_ROWS
    assert result.finding == "25 unexpected (51.02%)"


def test_what_counts_no_rows_says_what_it_observed(tmp_path: Path) -> None:
    (result,) = check(tmp_path, LEVELS, MAXIMUM).expectations
    assert (result.passed, result.unexpected, result.finding) == (False, None, "observed 23.0")


def test_failing_evaluation_fails_with_its_reason(tmp_path: Path) -> None:
    bad = ("expect_column_values_to_be_between", {"column": "quantity", "min_value": []})
    verdict = check(tmp_path, LEVELS, NO_COLUMN, bad, NOT_NEGATIVE)
    assert [result.error is None for result in verdict.expectations] == [False, False, True]
    assert 'The column "qty" in BatchData does not exist' in str(verdict.expectations[0].error)
    assert not any(result.passed for result in verdict.expectations)


def test_results_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    expected = [MAXIMUM, ("expect_table_row_count_to_equal", {"value": 50}), NO_COLUMN, NOT_NEGATIVE]
    assert [result.type for result in check(tmp_path, LEVELS, *expected).expectations] == [
        t for t, _ in expected
    ]


@pytest.mark.parametrize(
    ("severity", "stops", "passed"),
    [(Severity.CRITICAL, True, False), (Severity.WARNING, False, False), (Severity.INFO, False, True)],
)
def test_only_critical_stops_and_info_never_fails(
    tmp_path: Path, severity: Severity, stops: bool, passed: bool
) -> None:
    verdict = check(tmp_path, NEGATIVE, severity=severity)
    assert (verdict.stops, verdict.passed, len(verdict.failed())) == (stops, passed, 1)


def test_empty_batch_fails_only_a_minimum_count(tmp_path: Path) -> None:
    least = ("expect_table_row_count_to_be_between", {"min_value": 1})
    unique = ("expect_column_values_to_be_unique", {"column": "quantity"})
    verdict = check(tmp_path, POSITIVE.slice(0, 0), least, NOT_NEGATIVE, unique)
    assert [passed for _, passed in findings(verdict)] == [False, True, True]


def test_page_has_its_name_beside_the_results(tmp_path: Path) -> None:
    verdict = check(tmp_path, NEGATIVE)
    assert verdict.page == "levels/g1/2026-01-31/000000007.1.quantities.1.stopped.html"
    page = (tmp_path / "docs" / verdict.page).read_text()
    assert "__none__" not in page
    assert "levels/1 batch 7, check 1, try 1: stopped" in page
    assert "<script" not in page
    assert "http:" not in page
    assert "https:" not in page
    assert "/expectations/" not in page  # there is no page of the suite
    shown = re.findall(
        r"<tr><td>(critical|warning|info)</td><td>(\w+)</td><td>.*?</td>\s*<td class=\"(\w+)\"", page
    )
    outcomes = {"critical": "stopped", "warning": "warned", "info": "noted"}
    assert sorted(shown) == sorted(
        (result.severity.value, result.type, "passed" if result.passed else outcomes[result.severity.value])
        for result in verdict.expectations
    )
    assert shown[0][2] == "stopped"
    results = json.loads((tmp_path / "docs" / verdict.page).with_suffix(".json").read_text())
    (result,) = results["expectations"]
    assert (results["batch"], result["severity"], result["unexpected"]) == (7, "critical", 1)


def test_log_has_a_table_of_failing_rows(tmp_path: Path) -> None:
    table = verdict_table(check(tmp_path, LEVELS, NOT_NEGATIVE, NO_COLUMN), "/docs")
    lines = table.splitlines()
    assert lines[0].startswith("Quality: quantities on the values of levels: 2 of 2 expectations not met")
    assert any(line.startswith("| FAIL | critical | expect_column_values_to_be_between") for line in lines)
    assert "  key=k0, quantity=-25.0" in lines
    assert lines[-1] == "Data Docs: /docs/levels/g1/2026-01-31/000000007.1.quantities.1.stopped.html"


def test_markup_in_values_is_text_on_the_page(tmp_path: Path) -> None:
    rows = pa.table({"key": ["<script>alert(1)</script>"], "quantity": [-1]})
    verdict = check(tmp_path, rows)
    assert "<script" not in (tmp_path / "docs" / str(verdict.page)).read_text()


MARKUP = "<meta http-equiv=refresh content='0;url=//x'><form action=//x><a href=//x>x</a>"


@pytest.mark.parametrize(
    ("type_", "kwargs"),
    [
        ("expect_column_values_to_match_regex", {"column": "name", "regex": "^a"}),
        ("expect_column_values_to_be_in_set", {"column": "name", "value_set": ["a"]}),
        ("expect_column_distinct_values_to_be_in_set", {"column": "name", "value_set": ["a"]}),
        ("expect_column_distinct_values_to_equal_set", {"column": "name", "value_set": ["a"]}),
        ("expect_column_most_common_value_to_be_in_set", {"column": "name", "value_set": ["a"]}),
        ("expect_column_max_to_be_between", {"column": "name", "max_value": 1}),
        ("expect_column_values_to_be_between", {"column": "name", "max_value": 1}),
    ],
)
def test_markup_in_any_value_is_escaped(tmp_path: Path, type_: str, kwargs: dict[str, Any]) -> None:
    rows = pa.table({"key": ["k"], "name": [MARKUP]})
    verdict = check(tmp_path, rows, (type_, kwargs))
    page = (tmp_path / "docs" / str(verdict.page)).read_text()
    assert not verdict.passed
    assert "<meta http-equiv=refresh" not in page
    assert "<form" not in page
    assert "<a href=//x" not in page


def test_each_page_has_a_content_security_policy(tmp_path: Path) -> None:
    check(tmp_path, NEGATIVE)
    pages = list((tmp_path / "docs").rglob("*.html"))
    assert len(pages) > 3
    for page in pages:
        text = page.read_text()
        assert "default-src 'none'; style-src 'self'; img-src data:" in text
        assert "style=" not in text


def test_a_page_leaves_nothing_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Templates that are compiled into a shared folder are code that another user can put there."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    _view.cache_clear()
    assert check(tmp_path, NEGATIVE).page
    assert list(temporary.iterdir()) == []
    assert _view().env.bytecode_cache is None


def test_first_batch_meets_comparisons_with_earlier_ones(tmp_path: Path) -> None:
    least = {"min_value": {"$PARAMETER": "previous_emitted * 0.5"}}
    audit = audit_of(tmp_path, LEVELS, ("expect_table_row_count_to_be_between", least))
    (first,) = gate.check(audit).expectations
    assert (first.passed, "no earlier batch has previous_emitted" in first.observed) == (True, True)
    for emitted, passed in ((100, True), (103, False)):
        (later,) = gate.check(replace(audit, parameters={"previous_emitted": emitted})).expectations
        assert (later.passed, later.observed) == (passed, "50")


def test_user_module_expectation_is_evaluated_as_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop_expectations.py").write_text(
        "from typing import ClassVar\n"
        "from great_expectations.expectations import ExpectColumnValuesToBeBetween\n"
        "class ExpectColumnValuesToBeShares(ExpectColumnValuesToBeBetween):\n"
        "    min_value: float = 0\n    max_value: float = 1\n"
        "class ExpectSharesAsAWhole(ExpectColumnValuesToBeShares):\n"
        "    split: ClassVar[str] = 'whole'\n"
    )
    shares = ("expect_column_values_to_be_shares", {"column": "quantity"})
    audit = audit_of(tmp_path, pa.table({"key": ["a", "b"], "quantity": [0.5, 2.0]}), shares)
    (result,) = gate.check(replace(audit, modules=("shop_expectations",))).expectations
    assert (result.passed, result.unexpected, result.failing[0]["key"]) == (False, 1, "b")
    whole = ("expect_shares_as_a_whole", {"column": "quantity"})
    results = gate.check(replace(audit, suite=suite_of(shares, whole)), part_rows=1).expectations
    assert [result.note for result in results] == [
        "evaluated in parts",
        "evaluated as a whole, of its own columns",
    ]
    assert [(result.unexpected, result.failing[0]["key"]) for result in results] == [(1, "b")] * 2


def test_expectation_without_metrics_sees_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop_looks.py").write_text(
        "from great_expectations.expectations.expectation import BatchExpectation\n"
        "class ExpectFiftyRows(BatchExpectation):\n"
        "    metric_dependencies = ()\n"
        "    def _validate(self, metrics, runtime_configuration=None, execution_engine=None):\n"
        "        rows = execution_engine.get_domain_records({})\n"
        "        return {'success': list(rows.columns) == ['key', 'quantity'] and len(rows) == 50}\n"
    )
    audit = replace(audit_of(tmp_path, LEVELS, ("expect_fifty_rows", {})), modules=("shop_looks",))
    for part_rows in (1000, 7):
        assert gate.check(audit, part_rows).passed


KEYS = pa.table({"key": [f"k{n}" for n in range(100)], "quantity": [*range(99), None]})
SPLIT = [
    ("expect_column_values_to_be_between", {"column": "quantity", "min_value": 10}),
    ("expect_column_values_to_be_between", {"column": "quantity", "min_value": 5, "strict_min": True}),
    ("expect_column_pair_values_to_be_equal", {"column_A": "quantity", "column_B": "quantity"}),
    ("expect_column_max_to_be_between", {"column": "quantity", "max_value": 98}),
    ("expect_column_values_to_be_unique", {"column": "key"}),
    ("expect_column_unique_value_count_to_be_between", {"column": "key", "min_value": 100}),
    ("expect_table_row_count_to_equal", {"value": 100}),
]


def test_memory_holds_the_rows_of_one_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, tables = Frame.load, list[weakref.ref[Any]]()

    def loaded(frame: Frame, rows: pd.DataFrame) -> None:
        load(frame, rows)
        in_memory = [len(table) for reference in tables if (table := reference()) is not None]
        assert sum(in_memory, len(rows)) <= 2 * 20  # hashes spread values unevenly
        tables.append(weakref.ref(rows))

    monkeypatch.setattr(Frame, "load", loaded)
    audit = replace(audit_of(tmp_path, KEYS, *SPLIT), rows=rows_of(tmp_path, KEYS, group_rows=10))
    gc.disable()  # a table in a cycle of objects would stay
    try:
        results = gate.check(audit, part_rows=10).expectations
    finally:
        gc.enable()
    assert [result.passed for result in results] == [False, False, *[True] * 5]
    assert len(tables) >= 20  # ten parts, and ten by value


def test_rows_that_are_as_expected_need_no_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ("expect_column_values_to_be_between", {"column": "quantity", "min_value": 0})
    audit = audit_of(tmp_path, KEYS, expected, ("expect_table_row_count_to_equal", {"value": 100}))
    monkeypatch.setattr(Frame, "measure", lambda *_: pytest.fail("Great Expectations was asked"))
    for part_rows in (1000, 7):
        assert gate.check(audit, part_rows).passed


@pytest.mark.heavy
def test_more_parts_than_files_keep_equal_values_together(tmp_path: Path) -> None:
    rows = pa.table({"key": [f"k{n % 400}" for n in range(800)]})
    tables = list(Parts(rows_of(tmp_path, rows), 1).by_value(["key"], ["key"]))
    assert len(tables) == 256
    keys = [key for table in tables for key in sorted(set(table["key"]))]
    assert sorted(keys) == sorted(set(rows["key"].to_pylist()))
    assert sum(map(len, tables)) == 800


def test_frequent_value_is_counted_without_holding_rows(tmp_path: Path) -> None:
    rows = pa.table({"key": [f"k{n}" for n in range(60)], "region": ["north"] * 58 + ["south", None]})
    unique = ("expect_column_values_to_be_unique", {"column": "region"})
    number = ("expect_column_unique_value_count_to_be_between", {"column": "region", "max_value": 1})
    audit = audit_of(tmp_path, rows, unique, number)
    for part_rows in (1000, 7):
        first, second = gate.check(audit, part_rows).expectations
        assert (first.unexpected, first.rows, first.passed) == (58, 60, False)
        assert (second.observed, second.passed) == ("2", False)


def test_rows_beyond_memory_have_the_same_verdict(tmp_path: Path) -> None:
    audit = audit_of(tmp_path, LEVELS, NOT_NEGATIVE, MAXIMUM, NO_COLUMN, UNIQUE, INCREASING)
    whole, parts = (gate.check(audit, part_rows).expectations for part_rows in (1000, 7))
    for from_whole, other in zip(whole, parts, strict=True):
        assert (from_whole.passed, from_whole.unexpected, from_whole.observed) == (
            other.passed,
            other.unexpected,
            other.observed,
        )
        assert [row["key"] for row in from_whole.failing] == [row["key"] for row in other.failing]
