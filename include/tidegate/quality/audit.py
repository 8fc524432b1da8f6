"""What there is to evaluate: a suite, the rows, and where the results go. It can be pickled."""

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
    """Where Data Docs show a check of a batch: below `root`, a folder or a bucket.

    `day` is that of the batch's clock; `number` the check's place among the pipeline's, `try_number`
    the batch's try, all from 1 on.
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
        """Of the day, below the root."""
        return f"{self.pipeline}/g{self.generation}/{self.day.isoformat()}"


@dataclass(frozen=True)
class Audit:
    """A suite over rows. `title` is the suite's name and what it is evaluated on.

    `parameters`: name -> value, for `$PARAMETER` in the suite. `modules`: those whose expectations it may
    have, which have to be trusted. `facts`: what built-in expectations know of the batch. `place`: None, no
    page is written.
    """

    title: str
    suite: Suite
    rows: AuditedRows
    parameters: Mapping[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    facts: StageFacts | None = None
    place: PagePlace | None = None
