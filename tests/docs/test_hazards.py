"""docs/hazards.md names tests; each is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "hazards.md").read_text()
NAMED = re.findall(r"`(\w+/test_\w+\.py)::(test_\w+)`", PAGE)


@cache
def _tests_of(file: str) -> set[str]:
    statements = ast.parse((TESTS / file).read_text()).body
    return {statement.name for statement in statements if isinstance(statement, ast.FunctionDef)}


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_test_that_the_page_names_is_there(file: str, name: str) -> None:
    assert name in _tests_of(file)


def test_every_row_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "| shown by |" not in line]
    assert len(rows) > 40
    assert [row for row in rows if not re.search(r"::test_\w+` (`\S+` )*\|$", row)] == []
