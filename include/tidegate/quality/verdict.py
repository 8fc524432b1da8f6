"""The verdict of a suite, and the result of each expectation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.quality.suite import Severity

MOST_FAILING_ROWS = 20
"""The number of failing rows that are stored per expectation."""
_MOST_CHARACTERS = 200


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
            return f"{self.title}: {_counted(len(self.expectations))} met"
        return f"{self.title}: {len(failed)} of {_counted(len(self.expectations))} not met"

    @property
    def summary(self) -> str:
        """The verdict in a sentence, with each expectation that is not met."""
        failed = self.failed()
        return f"{self.summary_in_short}: {_findings(failed)}" if failed else self.summary_in_short


def _findings(failed: Iterable[ExpectationResult]) -> str:
    return "; ".join(f"{result.severity}: {result.title}: {result.finding}" for result in failed)


def _counted(number: int) -> str:
    return f"{number} expectation{'' if number == 1 else 's'}"
