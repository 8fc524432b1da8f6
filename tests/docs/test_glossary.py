"""docs/glossary.md names classes and functions that exist. Classes that share a name are distinguished."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "include" / "tidegate"
WORDS, _, SHARED = (REPOSITORY / "docs" / "glossary.md").read_text().partition("## The same word")
NAMED = re.findall(r"\| `([a-z_.]+)\.(\w+)` \|$", WORDS, re.MULTILINE)


@cache
def defined(module: Path) -> dict[str, type[ast.AST]]:
    """The classes and functions at the top of a module."""
    body = ast.parse(module.read_text()).body
    return {node.name: type(node) for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}


@pytest.mark.parametrize(("module", "name"), NAMED)
def test_what_the_page_names_is_there(module: str, name: str) -> None:
    assert name in defined(PACKAGE / f"{module.replace('.', '/')}.py")


def test_classes_that_share_a_name_are_distinguished() -> None:
    homes: dict[str, set[Path]] = defaultdict(set)
    for module in PACKAGE.rglob("*.py"):
        for name, kind in defined(module).items():
            if kind is ast.ClassDef and not name.startswith("_"):
                homes[name].add(module)
    rows = [line.split("|")[1] for line in SHARED.splitlines() if line.startswith("| `")]
    distinguished = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert distinguished == {name for name, modules in homes.items() if len(modules) > 1}


def test_every_row_has_a_meaning() -> None:
    rows = [line for line in WORDS.splitlines() if line.startswith("| ") and not line.startswith("| word")]
    assert len(rows) > 30
    assert [row for row in rows if len(row.split("|")[2].split()) < 3] == []
