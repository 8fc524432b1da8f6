"""The verdict of a suite, the result of each expectation, and their table for the log of a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import StringIO

from tidegate.numerals import counted
from tidegate.quality.suite import Severity

MOST_FAILING_ROWS = 20
"""The number of failing rows that are stored per expectation."""
_MOST_CHARACTERS = 200
_WIDTH = 150
_MOST_ROWS_SHOWN = 5
"""The number of failing rows in the log. Data Docs and the ledger have more."""


def cut(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Return a text, shortened to `most` characters if it is longer.

    Example::

        cut("abcdef", 4)  # "abc…"
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass(frozen=True)
class ExpectationResult:
    """The result of one expectation.

    Args:
        number: The expectation's place in the suite, from 1 on.
        columns: The columns that it names; empty if it applies to the whole table.
        observed: The observed value, as text.
        rows: The number of rows that it was evaluated on.
        unexpected: The number of rows that do not meet it; None if the expectation does not count rows.
        share: `unexpected` divided by the rows that are not null, 0 to 1; None if it does not count rows.
        failing: Some of the failing rows: column -> value as a shortened text, the key's columns first.
        error: The reason why it could not be evaluated, which counts as a failure.
        note: How the rows were split, for people.
    """

    number: int
    type: str
    columns: tuple[str, ...]
    severity: Severity
    passed: bool
    observed: str = ""
    rows: int | None = None
    unexpected: int | None = None
    share: float | None = None
    failing: tuple[Mapping[str, str], ...] = ()
    error: str | None = None
    note: str = ""

    @property
    def column(self) -> str | None:
        """The only column; None if there are several or none."""
        return self.columns[0] if len(self.columns) == 1 else None

    @property
    def title(self) -> str:
        """The type and the columns."""
        return f"{self.type}({', '.join(self.columns)})"

    @property
    def finding(self) -> str:
        """The observation in a few words: the observed value, or the number of unexpected rows."""
        if self.error is not None:
            return f"could not be evaluated: {self.error}"
        if self.unexpected is None or (self.observed and not self.share):
            return f"observed {self.observed or 'nothing'}"
        share = "" if self.share is None else f" ({self.share:.2%})"
        return f"{self.unexpected:,} unexpected{share}"


@dataclass(frozen=True)
class Verdict:
    """The verdict of a suite.

    Args:
        title: The suite, and what it was evaluated on.
        page: The page in Data Docs, below the root of the site; None if there is none.
    """

    title: str
    expectations: tuple[ExpectationResult, ...] = ()
    page: str | None = None

    def failed(self, *severities: Severity) -> tuple[ExpectationResult, ...]:
        """Return the expectations that are not met, in the suite's order; `severities`: only of these
        (none: of any).
        """
        severities = severities or tuple(Severity)
        return tuple(
            result for result in self.expectations if not result.passed and result.severity in severities
        )

    @property
    def stops(self) -> bool:
        """Whether a critical expectation is not met, so the batch must stop."""
        return bool(self.failed(Severity.CRITICAL))

    @property
    def passed(self) -> bool:
        """Whether no critical expectation or warning failed. Failures with the severity `info` do not
        count.
        """
        return not self.failed(Severity.CRITICAL, Severity.WARNING)

    @property
    def summary_in_short(self) -> str:
        """The number of expectations that are met or not met."""
        failed = self.failed()
        if not failed:
            return f"{self.title}: {counted(len(self.expectations), 'expectation')} met"
        return f"{self.title}: {len(failed)} of {counted(len(self.expectations), 'expectation')} not met"

    @property
    def summary(self) -> str:
        """The verdict in a sentence, with each expectation that is not met."""
        failed = self.failed()
        return f"{self.summary_in_short}: {_findings(failed)}" if failed else self.summary_in_short


def _findings(failed: Iterable[ExpectationResult]) -> str:
    return "; ".join(f"{result.severity}: {result.title}: {result.finding}" for result in failed)


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
    """Return the full path of a page of Data Docs.

    Example: `page_place("/lake/docs/", "orders/g1/index.html")` is `/lake/docs/orders/g1/index.html`.
    """
    return f"{docs.rstrip('/')}/{page}"


def _observed(result: ExpectationResult) -> str:
    notes = [part for part in (result.finding, result.note) if part]
    return ", ".join(notes)


def _failing(result: ExpectationResult) -> list[str]:
    shown = result.failing[:_MOST_ROWS_SHOWN]
    lines = [", ".join(f"{name}={value}" for name, value in row.items()) for row in shown]
    return [f"{result.title} fails for:", *(f"  {line}" for line in lines)] if lines else []
