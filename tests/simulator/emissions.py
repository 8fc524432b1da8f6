"""What stands for the results of a Spark job: rows of state, of outboxes and of quarantine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.simulator.broker import Record

INPUT, MORE = "input", "more"
"""The topics that pipelines read; most have only the first."""

Read = tuple[str, int, int, Record]
"""Topic, partition, offset and record."""

State = dict[str, tuple[str | None, int, int]]
"""Entry -> its value, its used records, and a number of its stage."""


class Emission(NamedTuple):
    """A row of an outbox."""

    key: str
    payload: str | None
    timestamp: int
    source: str
    window_start: None = None
    window_end: None = None


@dataclass
class Decided:
    """The results of a batch: state rows, emissions by stage in the outbox's order, unusable records, and
    the records whose values are refused.

    `totals`: the running totals of stages, by which the clock alone starts a batch.
    """

    state: State
    emissions: dict[str, list[Emission]]
    unusable: list[Read] = field(default_factory=list)
    refused: list[Read] = field(default_factory=list)
    totals: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def difference(actual: Sequence[Any], expected: Sequence[Any]) -> str:
    """Say what is too often, missing or too much in `actual`."""
    twice = [row for row, times in Counter(actual).items() if times > 1]
    lost = [row for row in expected if row not in actual]
    surplus = [row for row in actual if row not in expected]
    return (
        f"twice: {twice}; lost: {lost}; of nobody: {surplus}" if twice or lost or surplus else "out of order"
    )
