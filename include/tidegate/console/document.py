"""Pages that are files: with the console's style, and without links, scripts or anything to load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.console.render import document
from tidegate.shadow import ShadowReport

Rows = Sequence[Mapping[str, Any]]


def shadow_page(report: ShadowReport, counts: Rows, examples: Rows, explained: Mapping[str, Rows]) -> str:
    """Return the page of `tidegate shadow`.

    Args:
        counts: a row for each class.
        examples: a row for each example.
        explained: class -> what tidegate decided about its first example.
    """
    tables = {"Classes": counts, "Examples": examples}
    tables |= {f"What tidegate decided: {verdict}": rows for verdict, rows in explained.items()}
    title = f"{report.pipeline} against {report.topic}"
    return document("document.html", title=title, report=report, tables=tables)
