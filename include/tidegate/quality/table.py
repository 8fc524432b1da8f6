"""A verdict as a table of plain text, for the log of a task."""

from __future__ import annotations

from io import StringIO

from tidegate.quality.verdict import ExpectationResult, Verdict

_WIDTH = 150
_MOST_ROWS_SHOWN = 5
"""The number of failing rows in the log. Data Docs and the ledger have more."""


def verdict_table(verdict: Verdict, docs: str) -> str:
    """Return the expectations in the suite's order, some failing rows, and the place of the page.

    Args:
        docs: The folder or bucket that contains the pages.
    """
    # imported here, since most processes that import this module print no table
    from rich.box import ASCII2
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=ASCII2, title=f"Quality: {verdict.summary_in_short}", title_justify="left")
    for column in ("", "severity", "expectation", "column", "observed"):
        table.add_column(column, overflow="fold")
    for result in verdict.expectations:
        mark = "ok" if result.passed else "FAIL"
        columns = ", ".join(result.columns)
        cells = (mark, result.severity.value, result.type, columns, _observed(result))
        table.add_row(*(Text(cell) for cell in cells))
    text = StringIO()
    # A fixed width and plain characters: a task's log has no terminal to ask.
    console = Console(file=text, width=_WIDTH, color_system=None, legacy_windows=False, force_terminal=False)
    console.print(table)
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    lines += [line for result in verdict.failed() for line in _failing(result)]
    if verdict.page is not None:
        lines.append(f"Data Docs: {page_place(docs, verdict.page)}")
    return "\n".join(lines)


def page_place(docs: str, page: str) -> str:
    """Return the full path of a page below `docs`."""
    return f"{docs.rstrip('/')}/{page}"


def _observed(result: ExpectationResult) -> str:
    notes = [part for part in (result.finding, result.note) if part]
    return ", ".join(notes)


def _failing(result: ExpectationResult) -> list[str]:
    shown = result.failing[:_MOST_ROWS_SHOWN]
    lines = [", ".join(f"{name}={value}" for name, value in row.items()) for row in shown]
    return [f"{result.title} fails for:", *(f"  {line}" for line in lines)] if lines else []
