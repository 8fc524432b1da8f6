"""docs/kafka-connect.md: the tables name each setting of the two connectors that the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_pages import EXAMPLES_OF_PAGES
from tidegate.yaml.load import parse_case_pipeline
from tidegate.yaml.tree import read

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "kafka-connect.md").read_text()
SETTINGS = sorted(set(re.findall(r"^(?!connector\.class|transforms)([a-z][\w.]+)=", PAGE, re.MULTILINE)))
TRANSFORMS = sorted(set(re.findall(r"^transforms\.\w+\.type=.*\.(\w+)\$", PAGE, re.MULTILINE)))
CELLS = re.findall(r"^\| (`[^|]*) \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize("setting", [*SETTINGS, *TRANSFORMS])
def test_a_table_maps_each_shown_setting(setting: str) -> None:
    assert any(f"`{setting}" in cell for cell in CELLS)


def test_both_connectors_show_their_settings() -> None:
    assert len(SETTINGS) > 18
    assert len(TRANSFORMS) == 2


@pytest.mark.parametrize("example", ["kafka-connect-0", "kafka-connect-1"])
def test_example_writes_to_the_connectors_place(example: str) -> None:
    (case,) = read(EXAMPLES_OF_PAGES[example], "page.yaml").data["cases"]
    (sink,) = parse_case_pipeline(case["pipeline"], "page.yaml").sinks
    assert sink.name in ("sql:shop:public.orders", "table:raw/visits")
