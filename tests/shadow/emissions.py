"""Emissions of two jobs, for tests of their comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tidegate.kernel.rows import Position
from tidegate.shadow.comparison import Horizon, Rules, compared_jobs
from tidegate.shadow.emission import SentEmission, Window

ALL_READ = Horizon(other_ms=2**60)
"""Both jobs have read everything."""
EXACT = Rules(lambda emission: None if emission.value is None else repr(emission.value["value"]))


def emission(
    value: Any,
    timestamp: int,
    key: str = "k",
    *,
    window: Window | None = None,
    source: Position | None = None,
    at: int | None = None,
) -> SentEmission:
    """Return an emission with one column; None is a deletion."""
    columns = None if value is None else {"value": value}
    return SentEmission(key, window, columns, timestamp, timestamp if at is None else at, source)


def classes(
    ours: Iterable[SentEmission],
    theirs: Iterable[SentEmission],
    rules: Rules = EXACT,
    horizon: Horizon = ALL_READ,
) -> dict[str, int]:
    """Return the number of emissions of each class that has some."""
    compared = compared_jobs(ours, theirs, rules, horizon)
    return dict(Counter(str(item.verdict) for item in compared))
