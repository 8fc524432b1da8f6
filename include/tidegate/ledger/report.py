"""How batches went, and how far a stream is behind, by what the ledger has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.ledger.reader import LedgerReader
from tidegate.ledger.records import Attempt, BatchFacts, Failure, Head, OffsetRange, Offsets, Plan, Stream
from tidegate.spec.document import stage_names

STEPS = ("plan", "compute", "validate", "commit", "publish")
"""The steps of a batch, in their order."""

SUPPRESSED = ("idempotent-update-skip", "intermediate-result-suppression", "filtered")
"""Values that a stage had and did not emit: unchanged, replaced while they waited, refused by `where`."""

QUARANTINED = ("quarantined", "emitted-too-large", "emitted-refused-timestamp", "refused")
"""What is counted under these names is in quarantine."""

FATES = (
    "used",
    "quarantined",
    "deduplicated",
    "expired-window-record-drop",
    "nothing-to-explode",
    "tombstones-ignored",
)
"""What becomes of a record that came in, one of these: their numbers add up to `BatchReport.came_in`."""

REASON = "quarantined."
"""What the metrics begin with that count the records in quarantine by reason."""

SOURCE_COLUMNS = "source:columns"
"""In place of a stage, in an attempt's counts: declared column -> records with a value."""
SOURCE_FIELDS = "source:fields"
"""The same: field that is not declared -> sampled records that have it; "" -> how many were sampled."""

_SECONDS = "seconds."


def read_offsets(ranges: Iterable[OffsetRange]) -> dict[str, dict[int, tuple[int, int]]]:
    """Topic -> partition -> [start, end) of what batches that follow each other have read together."""
    read: dict[str, dict[int, tuple[int, int]]] = {}
    for part in ranges:
        if part.span:
            of_topic = read.setdefault(part.topic, {})
            start, _ = of_topic.get(part.partition, (part.start, part.end))
            of_topic[part.partition] = start, part.end
    return read


@dataclass(frozen=True)
class BatchReport:
    """A batch as it went: its plan, counts, seconds per step, and the sinks that have it.

    `counts` is the batch in short: what became of the records that came in (first stage), what was refused
    (all stages) and what went out (last stage). `stages` has all that each stage counted. `passed_quality` is
    None where nobody has checked. `reasons` is reason -> records in quarantine, the most frequent first.
    `columns` is declared column -> records with a value; `fields` is field of JSON that is not declared ->
    records of those that were `sampled`, the most frequent first.
    """

    plan: Plan
    counts: dict[str, float]
    seconds: dict[str, float]
    published: dict[str, int]
    stages: dict[str, dict[str, float]] = field(default_factory=dict)
    passed_quality: bool | None = None
    reasons: dict[str, int] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)
    fields: dict[str, int] = field(default_factory=dict)
    sampled: int = 0

    @property
    def columns_without_value(self) -> tuple[str, ...]:
        """Declared columns that no usable record has; nothing where no record was usable."""
        return tuple(name for name, records in self.columns.items() if not records)

    @property
    def came_in(self) -> int:
        """Records that came in: those that were read, and what `explode` made of them beside that."""
        return int(self.counts.get("read", 0) + self.counts.get("exploded", 0))

    @property
    def fates(self) -> dict[str, int]:
        """What became of the records that came in."""
        return {name: int(self.counts.get(name, 0)) for name in FATES}

    @property
    def other(self) -> int:
        """Records that came in and are not used, in quarantine or late: deduplicated, most of them."""
        return self.came_in - self.fates["used"] - self.fates["quarantined"] - self.late

    @property
    def late(self) -> int:
        """Records that were dropped since all of their windows were over."""
        return int(self.counts.get("expired-window-record-drop", 0))

    @property
    def held_back(self) -> dict[str, int]:
        """Stage -> keys (and windows) of which something is held back after this batch."""
        name = "suppression-buffer-records"
        return {stage: int(counts[name]) for stage, counts in self.stages.items() if name in counts}

    @property
    def quarantined(self) -> int:
        """Records, values that break an expectation, and emissions that a sink refuses, in quarantine."""
        later_stages = list(self.stages.values())[1:]
        of_records = sum(self.counts.get(name, 0) for name in QUARANTINED)
        return int(of_records + sum(counts.get("quarantined", 0) for counts in later_stages))

    @property
    def suppressed(self) -> int:
        """Values that the stages had and did not emit, of all stages together."""
        return int(sum(counts.get(name, 0) for counts in self.stages.values() for name in SUPPRESSED))


@dataclass(frozen=True)
class HistoryEntry:
    """A batch among others. Times in epoch ms; `committed_at_ms` is None before it is decided.

    `report` is None, and so is `planned_at_ms`, of a batch that has left the ledger but for its commit and
    its run. `failure` is the last one that was noted; where the batch went through all the same, a later try
    did. `run_id` is of the run that planned it.
    """

    stream: Stream
    seq: int
    run_id: str | None
    planned_at_ms: int | None
    committed_at_ms: int | None
    report: BatchReport | None
    failure: Failure | None


def batch_report(ledger: LedgerReader, stream: Stream, seq: int) -> BatchReport | None:
    """How a batch went, or None when it was never planned."""
    plan = ledger.plan(stream, seq)
    if plan is None:
        return None
    metrics = {name: value for (_, name), value in ledger.metrics(stream, seq).items()}
    return _report(plan, ledger.attempt(stream, seq), metrics, ledger.publications(stream, seq))


def batch_history(
    ledger: LedgerReader, stream: Stream, before: int | None = None, limit: int = 50
) -> list[HistoryEntry]:
    """At most `limit` batches before batch `before` (None: from the newest on), the newest first.

    What is planned and not decided is one of them. Raises PlanUnreadable, Halted.
    """
    return [_entry(facts) for facts in ledger.batches(stream, before, limit)]


def _entry(facts: BatchFacts) -> HistoryEntry:
    plan = facts.plan
    return HistoryEntry(
        stream=facts.stream,
        seq=facts.seq,
        run_id=facts.run_id,
        planned_at_ms=_ms(facts.planned_at),
        committed_at_ms=_ms(facts.committed_at),
        report=_report(plan, facts.attempt, facts.metrics, facts.publications) if plan is not None else None,
        failure=facts.failure,
    )


def _report(
    plan: Plan, attempt: Attempt | None, metrics: Mapping[str, float], published: Mapping[str, int]
) -> BatchReport:
    names = stage_names(plan.spec_compiled, f"batch {plan.seq} of {plan.stream}")
    stages = {name: dict(attempt.stage_counts(name)) for name in names} if attempt else {}
    quality = metrics.get("quality.passed")
    return BatchReport(
        plan=plan,
        counts=_in_short(stages, attempt.stage_counts("")) if attempt else {},
        seconds={
            name.removeprefix(_SECONDS): value for name, value in metrics.items() if name.startswith(_SECONDS)
        },
        published=dict(published),
        stages=stages,
        passed_quality=None if quality is None else bool(quality),
        reasons=_reasons(metrics),
        columns=_numbers(attempt, SOURCE_COLUMNS),
        fields=_numbers(attempt, SOURCE_FIELDS),
        sampled=int(attempt.stage_counts(SOURCE_FIELDS).get("", 0)) if attempt else 0,
    )


def _numbers(attempt: Attempt | None, counted: str) -> dict[str, int]:
    counts = attempt.stage_counts(counted) if attempt is not None else {}
    numbers = [(name, int(number)) for name, number in counts.items() if name]
    return dict(sorted(numbers, key=lambda item: -item[1]))


def _reasons(metrics: Mapping[str, float]) -> dict[str, int]:
    counted = [(name.removeprefix(REASON), int(n)) for name, n in metrics.items() if name.startswith(REASON)]
    return dict(sorted(counted, key=lambda reason: (-reason[1], reason[0])))


def _in_short(stages: dict[str, dict[str, float]], whole: Mapping[str, float]) -> dict[str, float]:
    first, last = (list(stages.values())[at] for at in (0, -1))
    went_out = {name: value for name, value in last.items() if name.startswith("emitted")}
    came_in = {name: value for name, value in first.items() if not name.startswith("emitted")}
    refused = sum(counts.get("refused", 0) for counts in stages.values())
    return came_in | went_out | dict(whole) | ({"refused": refused} if refused else {})


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def lag(head: Head, stable_ends: Offsets) -> int:
    """Offsets that are there to be read and are not read yet."""
    return sum(max(0, end - head.offsets.get(at, 0)) for at, end in stable_ends.items())


__all__ = ["STEPS", "BatchReport", "HistoryEntry", "batch_history", "batch_report", "lag"]
