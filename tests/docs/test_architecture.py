"""docs/architecture.md follows a record through functions that are in the files beside them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "architecture.md").read_text()
STOPS = re.findall(r"^\| \d+ \|.*\| `([\w/.]+)` \| (.*) \|$", PAGE, re.MULTILINE)
NAMED = [(file, name) for file, names in STOPS for name in re.findall(r"`([\w.]+)`", names)]


def test_the_way_of_a_record_has_few_files() -> None:
    files = {file for file, _ in STOPS}
    assert len(STOPS) == len(re.findall(r"^\| \d+ \|", PAGE, re.MULTILINE))
    assert 20 < len(files) <= 45


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_stop_of_the_record_is_there(file: str, name: str) -> None:
    body: list[ast.stmt] = ast.parse((REPOSITORY / "include" / "tidegate" / file).read_text()).body
    for part in name.split("."):
        definitions = [
            node for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == part
        ]
        assert definitions, f"{file} has no {name}"
        body = definitions[0].body
