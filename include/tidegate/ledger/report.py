"""How a batch went, and how far a stream is behind, by what the ledger has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.ledger.reader import LedgerReader
from tidegate.ledger.records import Head, Offsets, Plan, Stream
from tidegate.spec.document import stage_names


@dataclass(frozen=True)
class BatchReport:
    """A batch as it went: its plan, counts, seconds per step, and the sinks that have it.

    `counts` is the batch in short: what became of the records that came in (first stage) and what went out
    (last stage). `stages` has all that each stage counted.
    """

    plan: Plan
    counts: dict[str, float]
    seconds: dict[str, float]
    published: dict[str, int]
    stages: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def held_back(self) -> dict[str, int]:
        """Stage -> keys (and windows) of which something is held back after this batch."""
        name = "suppression-buffer-records"
        return {stage: int(counts[name]) for stage, counts in self.stages.items() if name in counts}


def batch_report(ledger: LedgerReader, stream: Stream, seq: int) -> BatchReport | None:
    """How a batch went, or None when it was never planned."""
    plan = ledger.plan(stream, seq)
    if plan is None:
        return None
    attempt = ledger.attempt(stream, seq)
    seconds = {
        name.removeprefix("seconds."): value
        for (_, name), value in ledger.metrics(stream, seq).items()
        if name.startswith("seconds.")
    }
    names = stage_names(plan.spec_compiled, f"batch {seq} of {stream}")
    stages = {name: dict(attempt.stage_counts(name)) for name in names} if attempt else {}
    counts = _in_short(stages, attempt.stage_counts("")) if attempt else {}
    return BatchReport(plan, counts, seconds, ledger.publications(stream, seq), stages)


def _in_short(stages: dict[str, dict[str, float]], whole: Mapping[str, float]) -> dict[str, float]:
    first, last = (list(stages.values())[at] for at in (0, -1))
    went_out = {name: value for name, value in last.items() if name.startswith("emitted")}
    came_in = {name: value for name, value in first.items() if not name.startswith("emitted")}
    return came_in | went_out | dict(whole)


def lag(head: Head, stable_ends: Offsets) -> int:
    """Offsets that are there to be read and are not read yet."""
    return sum(max(0, end - head.offsets.get(at, 0)) for at, end in stable_ends.items())
