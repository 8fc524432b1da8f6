"""The outcome of a pipeline on the records of a case file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate import kernel
from tidegate.errors import TidegateError
from tidegate.kernel.json_columns import json_texts
from tidegate.spark.stage_run import StageRun
from tidegate.spec.exact import read_exactly

Position = tuple[str, int, int]


@dataclass(frozen=True)
class Emitted:
    """One emission of the last stage.

    Args:
        value: the emitted columns as a JSON object; None: a deletion.
        timestamp: of the emission, epoch ms.
        window: start and end, epoch ms; None without a window.
        reason: the reason that the strategy gives.
        at: when it happened, epoch ms.
        source: the position of the record that caused it.
    """

    key: str
    value: Any
    timestamp: int
    window: tuple[int, int] | None
    reason: str
    at: int
    source: Position


@dataclass(frozen=True)
class Fate:
    """The fate of a record in a pass.

    Args:
        timestamp: of the record, epoch ms.
        fate: what became of it.
        at: when that happened, epoch ms.
        value: the columns that the pass selects of the record.
        previous: the state before, as in `TraceEvent`.
    """

    pass_name: str
    key: str
    source: Position
    timestamp: int
    fate: str
    at: int
    value: Any
    previous: Any


@dataclass
class Outcome:
    """The outcome: emissions of the last stage, in order per key, and the fates of the records;
    or the error.
    """

    emissions: list[Emitted] = field(default_factory=list)
    counts: kernel.Counts = field(default_factory=kernel.Counts)
    fates: list[Fate] = field(default_factory=list)
    error: TidegateError | None = None

    def by_key(self) -> dict[str, list[Emitted]]:
        """Return key -> its emissions, in order."""
        emissions: dict[str, list[Emitted]] = {}
        for emission in self.emissions:
            emissions.setdefault(emission.key, []).append(emission)
        return emissions

    def include(self, pass_name: str, run: StageRun) -> None:
        """Add the counts and traces of a pass."""
        self.counts.include(run.counts)
        self.fates += [_fate(pass_name, row) for row in run.traces]

    def emit(self, rows: pa.Table) -> None:
        """Add emissions of the last stage, in the form that the kernel gives."""
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
