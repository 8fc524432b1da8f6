"""docs/crash-points.md has every existing failpoint, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from tests.faults.catalogue import failpoint_names

PAGE = Path(__file__).resolve().parents[2] / "docs" / "crash-points.md"


def listed() -> list[str]:
    """The names in the first column of the page's tables."""
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_the_page_walks_through_each_failpoint_once() -> None:
    assert sorted(listed()) == sorted(failpoint_names())
