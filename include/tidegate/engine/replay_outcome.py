"""What comes of a pipeline on records that are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate import core
from tidegate.core.json_columns import json_texts
from tidegate.engine.stage_run import StageRun
from tidegate.errors import TidegateError
from tidegate.spec.exact import read_exactly

Position = tuple[str, int, int]


@dataclass(frozen=True)
class Emitted:
    """One emission: `value` as its JSON object, null for a deletion; why it went out, and when (`at`)."""

    key: str
    value: Any
    timestamp: int
    window: tuple[int, int] | None
    reason: str
    at: int
    source: Position


@dataclass(frozen=True)
class Fate:
    """What became of a record in a pass.

    `value` is what the pass selects of the record; `known` what was known before, as in `TraceEvent`.
    """

    pass_name: str
    key: str
    source: Position
    timestamp: int
    fate: str
    at: int
    value: Any
    known: Any


@dataclass
class Outcome:
    """All emissions of the last stage, in order per key, and what became of the records; or why it failed."""

    emissions: list[Emitted] = field(default_factory=list)
    counts: core.Counts = field(default_factory=core.Counts)
    fates: list[Fate] = field(default_factory=list)
    error: TidegateError | None = None

    def by_key(self) -> dict[str, list[Emitted]]:
        """Key -> its emissions, in order."""
        emissions: dict[str, list[Emitted]] = {}
        for emission in self.emissions:
            emissions.setdefault(emission.key, []).append(emission)
        return emissions

    def include(self, pass_name: str, run: StageRun) -> None:
        """Add what a pass has counted and traced."""
        self.counts.include(run.counts)
        self.fates += [_fate(pass_name, row) for row in run.traces]

    def emit(self, rows: pa.Table) -> None:
        """Add emissions of the last stage, which come as the kernel gives them."""
        if not rows.num_rows:
            return
        texts = json_texts(rows["value"].combine_chunks()).to_pylist()
        for row, text in zip(rows.drop_columns(["value"]).to_pylist(), texts, strict=True):
            window = None if row["window_start"] is None else (row["window_start"], row["window_end"])
            value = None if text is None else read_exactly(text)
            emission = Emitted(
                row["key"], value, row["timestamp"], window, row["reason"], row["at"], _source(row)
            )
            self.emissions.append(emission)


def _fate(pass_name: str, row: Mapping[str, Any]) -> Fate:
    trace = read_exactly(row["trace"])
    return Fate(
        pass_name,
        row["key"],
        _source(row),
        row["timestamp"],
        row["reason"],
        row["at"],
        trace["value"],
        trace["known"],
    )


def _source(row: Mapping[str, Any]) -> Position:
    return row["topic"], row["partition"], row["offset"]
