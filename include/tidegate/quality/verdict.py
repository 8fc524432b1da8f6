"""What quality suites have found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.quality.suite import Severity

MOST_FAILING_ROWS = 20
"""How many failing rows of an expectation are kept."""
_MOST_CHARACTERS = 200


def cut(text: str, most: int = _MOST_CHARACTERS) -> str:
    """A text, of which the end is left out where it is long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass(frozen=True)
class ExpectationResult:
    """How an expectation went.

    `number`: its place in the suite. `columns`: none, it is of the whole. `rows`: how many it was evaluated
    on. `observed`: what was found, in words. `unexpected`: how many rows do not meet it, `share` how many of
    those that are not null, 0 to 1; None: it does not count them. `failing`: some of those rows, each column
    -> value as a text that is cut, the key's first. `error`: why it could not be evaluated, which is a
    failure. `note`: what else there is to say of how it was evaluated.
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
        """Its only column."""
        return self.columns[0] if len(self.columns) == 1 else None

    @property
    def title(self) -> str:
        """Type and columns."""
        return f"{self.type}({', '.join(self.columns)})"

    @property
    def finding(self) -> str:
        """What was found, in a few words."""
        if self.error is not None:
            return f"could not be evaluated: {self.error}"
        if self.unexpected is None or (self.observed and not self.share):
            return f"observed {self.observed or 'nothing'}"
        share = "" if self.share is None else f" ({self.share:.2%})"
        return f"{self.unexpected:,} unexpected{share}"


@dataclass(frozen=True)
class Verdict:
    """What a suite has found. `title`: the suite, and what it was evaluated on. `page`: where Data Docs show
    it, below the place of all; None: nowhere.
    """

    title: str
    expectations: tuple[ExpectationResult, ...] = ()
    page: str | None = None

    def failed(self, *severities: Severity) -> tuple[ExpectationResult, ...]:
        """The expectations of these severities (none: any) that are not met, in the suite's order."""
        severities = severities or tuple(Severity)
        return tuple(
            result for result in self.expectations if not result.passed and result.severity in severities
        )

    @property
    def stops(self) -> bool:
        """Whether the batch may not go on."""
        return bool(self.failed(Severity.CRITICAL))

    @property
    def passed(self) -> bool:
        """Whether there is nothing that stops a batch or has to be told."""
        return not self.failed(Severity.CRITICAL, Severity.WARNING)

    @property
    def summary_in_short(self) -> str:
        """How many expectations are met."""
        failed = self.failed()
        if not failed:
            return f"{self.title}: {_counted(len(self.expectations))} met"
        return f"{self.title}: {len(failed)} of {_counted(len(self.expectations))} not met"

    @property
    def summary(self) -> str:
        """What was found, in a sentence."""
        failed = self.failed()
        return f"{self.summary_in_short}: {_findings(failed)}" if failed else self.summary_in_short


def _findings(failed: Iterable[ExpectationResult]) -> str:
    return "; ".join(f"{result.severity}: {result.title}: {result.finding}" for result in failed)


def _counted(number: int) -> str:
    return f"{number} expectation{'' if number == 1 else 's'}"
