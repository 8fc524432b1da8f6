"""An audit: a suite, the rows that it is evaluated on, and the place of the results. It can be pickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from tidegate.quality.audited import AuditedRows
from tidegate.quality.builtin.facts import StageFacts
from tidegate.quality.suite import Suite


@dataclass(frozen=True)
class PagePlace:
    """The place of a check's page in Data Docs.

    Args:
        root: A folder or a bucket that contains the whole site.
        day: The day of the batch's clock, in UTC.
        number: The check's place among the checks of the pipeline, from 1 on.
        try_number: The batch's try, from 1 on.
    """

    root: str
    pipeline: str
    generation: int
    day: date
    seq: int
    number: int
    try_number: int

    @property
    def folder(self) -> str:
        """The folder of the day, below the root: `orders/g1/2026-01-31`."""
        return f"{self.pipeline}/g{self.generation}/{self.day.isoformat()}"


@dataclass(frozen=True)
class Audit:
    """A suite that is evaluated over rows.

    Args:
        title: The suite's name and what it is evaluated on, for people.
        rows: The rows; they are read only when the audit is evaluated.
        parameters: name -> value, for `$PARAMETER` in the suite.
        modules: Modules whose expectations the suite may have. They are imported, so they must be trusted.
        facts: What built-in expectations need of the batch; None for a suite without such expectations.
        place: Where the page is written; None writes no page.
    """

    title: str
    suite: Suite
    rows: AuditedRows
    parameters: Mapping[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    facts: StageFacts | None = None
    place: PagePlace | None = None
