"""What stands for the results of a Spark job: rows of state, of outboxes and of quarantine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

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
