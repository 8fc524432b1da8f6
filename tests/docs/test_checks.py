"""docs/checks.md: its expectations are those that there are, and its suite is one."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tidegate.quality.facts import BUILTIN_TYPES, needs_of

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "checks.md").read_text()
ROWS = dict(re.findall(r"^\| `(expect_\w+)` \|.*\|(.*)\|$", PAGE, re.MULTILINE))
OPTION = re.compile(r"`(\w+)`: ([\d.]+|true)(?= |,|$)")


def test_table_lists_exactly_the_builtin_expectations() -> None:
    assert tuple(ROWS) == BUILTIN_TYPES


def test_suite_of_the_page_uses_builtin_expectations() -> None:
    (text, *_) = re.findall(r"^```json\n(\{\n.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    suite = json.loads(text)
    assert needs_of(suite["expectations"]).history == 20
    assert {expectation["type"] for expectation in suite["expectations"]} <= set(BUILTIN_TYPES)


def test_option_table_equals_the_class_defaults() -> None:
    import tidegate.quality.builtin as builtin

    for type_, cell in ROWS.items():
        name = "".join(part.capitalize() for part in type_.split("_"))
        fields = getattr(builtin, name).__fields__
        options = set(getattr(builtin, name).success_keys)
        assert set(re.findall(r"`(\w+)`", cell)) == options, type_
        for option, default in OPTION.findall(cell):
            if option != "max_share":
                assert fields[option].default == json.loads(default), option
