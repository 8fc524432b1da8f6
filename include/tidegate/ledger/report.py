"""Reports of batches, and the lag of a stream, from the rows of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.batch_counts import COLUMNS, FATES, FIELDS, LATE, RECORDS, came_in, in_all_stages, in_quarantine
from tidegate.ledger.facts import BatchFacts, Failure
from tidegate.ledger.reader import LedgerReader
from tidegate.ledger.records import Attempt, Head, ManifestRef, OffsetRange, Offsets, Plan, Stream
from tidegate.model.compiled import stage_names
from tidegate.stage_names import late_name

STEPS = ("plan", "compute", "validate", "commit", "publish")
"""The steps of a batch, in their order."""

SUPPRESSED = ("idempotent-update-skip", "intermediate-result-suppression", "filtered")
"""Metrics of values that a stage had and did not emit: unchanged, replaced in a buffer, or filtered."""

REASON = "quarantined."
"""The prefix of the metrics that count the records in quarantine by reason."""

_SECONDS = "seconds."


def read_offsets(ranges: Iterable[OffsetRange]) -> dict[str, dict[int, tuple[int, int]]]:
    """Return topic -> partition -> [start, end) of what consecutive batches have read together.

    Empty ranges do not count. Example: ranges 0-10 and 10-25 of `events`, partition 0, give `{"events": {0:
    (0, 25)}}`.
    """
    read: dict[str, dict[int, tuple[int, int]]] = {}
    for part in ranges:
        if part.span:
            partitions = read.setdefault(part.topic, {})
            start, _ = partitions.get(part.partition, (part.start, part.end))
            partitions[part.partition] = start, part.end
    return read


@dataclass(frozen=True)
class BatchReport:
    """The result of a batch.

    Args:
        counts: the summary of the batch: what happened to the records that came in, other counts of the first
            stage, what was refused (all stages) and what was emitted (last stage).
        seconds: step -> its time.
        published: sink -> records, for the sinks that have the batch.
        stages: all counts of each stage.
        passed_quality: None if no check ran.
        reasons: reason -> records in quarantine, the most frequent first.
        columns: declared column -> records with a value.
        fields: undeclared field of JSON -> records that have it, of the `sampled` ones, the most frequent
            first.
        sampled: the number of records whose fields were compared with the declared columns.
        sources: of several sources, what became of the records of each where they were read.
        quarantined: records, values that break an expectation, and emissions that a sink refuses, which the
            batch has put into quarantine, in all stages.
        late_in_stages: records and emissions that were late, in all stages.
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
    sources: dict[str, dict[str, int]] = field(default_factory=dict)
    quarantined: int = 0
    late_in_stages: int = 0

    @property
    def columns_without_value(self) -> tuple[str, ...]:
        """Declared columns that no usable record has; empty if no record was usable."""
        return tuple(name for name, records in self.columns.items() if not records)

    @property
    def came_in(self) -> int:
        """The number of records that came in: those that were read, and those that `explode` added."""
        return came_in(self.counts)

    @property
    def fates(self) -> dict[str, int]:
        """Metric of `FATES` -> number of records, for the records that came in."""
        return {name: int(self.counts.get(name, 0)) for name in FATES}

    @property
    def other(self) -> int:
        """The number of records that came in and are neither used, in quarantine nor late. Most were
        deduplicated.
        """
        return self.came_in - self.fates["used"] - self.fates["quarantined"] - self.late

    @property
    def late(self) -> int:
        """The number of records that were dropped because all of their windows were closed."""
        return int(self.counts.get(LATE, 0))

    @property
    def held_back(self) -> dict[str, int]:
        """Stage -> number of keys (and windows) with a buffered value after this batch."""
        name = "suppression-buffer-records"
        return {stage: int(counts[name]) for stage, counts in self.stages.items() if name in counts}

    @property
    def suppressed(self) -> int:
        """The number of values that the stages had and did not emit, summed over all stages."""
        return int(sum(counts.get(name, 0) for counts in self.stages.values() for name in SUPPRESSED))


@dataclass(frozen=True)
class HistoryEntry:
    """A batch in the history of its stream.

    Args:
        run_id: the run that planned the batch.
        planned_at_ms: epoch ms; None if only the commit and the run of the batch are left in the ledger.
        committed_at_ms: epoch ms; None before the commit.
        report: None if only the commit and the run of the batch are left in the ledger.
        manifest: of its attempt; None before it is computed, and if the ledger has lost the attempt.
        failure: the last recorded one; if the batch is committed all the same, a later try succeeded.
    """

    stream: Stream
    seq: int
    run_id: str | None
    planned_at_ms: int | None
    committed_at_ms: int | None
    report: BatchReport | None
    manifest: ManifestRef | None
    failure: Failure | None


def batch_report(ledger: LedgerReader, stream: Stream, seq: int) -> BatchReport | None:
    """Return the report of a batch; None if the batch was never planned.

    Raises Halted if the ledger lacks the pipeline that the batch was planned with.
    """
    plan = ledger.plan(stream, seq)
    if plan is None:
        return None
    metrics = {name: value for (_, name), value in ledger.metrics(stream, seq).items()}
    return _report(plan, ledger.attempt(stream, seq), metrics, ledger.publications(stream, seq))


def batch_history(
    ledger: LedgerReader, stream: Stream, before: int | None = None, limit: int = 50
) -> list[HistoryEntry]:
    """Return at most `limit` batches before batch `before` (None: from the newest on), newest first.

    A batch that is planned and not decided is included. Raises PlanUnreadable if this version of tidegate
    cannot read a plan, Halted if the ledger lacks the pipeline of one.
    """
    return [history_entry(facts) for facts in ledger.batches(stream, before, limit)]


def history_entry(facts: BatchFacts) -> HistoryEntry:
    """Return a batch as histories have it. Raises PlanUnreadable if this version of tidegate cannot read the
    plan.
    """
    plan = facts.plan
    return HistoryEntry(
        stream=facts.stream,
        seq=facts.seq,
        run_id=facts.run_id,
        planned_at_ms=_ms(facts.planned_at),
        committed_at_ms=_ms(facts.committed_at),
        report=_report(plan, facts.attempt, facts.metrics, facts.publications) if plan is not None else None,
        manifest=facts.attempt.manifest if facts.attempt is not None else None,
        failure=facts.failure,
    )


def _report(
    plan: Plan, attempt: Attempt | None, metrics: Mapping[str, float], published: Mapping[str, int]
) -> BatchReport:
    names = stage_names(plan.spec_compiled, f"batch {plan.seq} of {plan.stream}")
    stages = {name: dict(attempt.stage_counts(name)) for name in names} if attempt else {}
    counts = attempt.counts if attempt else {}
    late = {name: dict(counts[name]) for name in map(late_name, names) if name in counts}
    quality = metrics.get("quality.passed")
    return BatchReport(
        plan=plan,
        counts=_in_short(stages, attempt.stage_counts("")) if attempt else {},
        seconds={
            name.removeprefix(_SECONDS): value for name, value in metrics.items() if name.startswith(_SECONDS)
        },
        published=dict(published),
        stages=stages | late,
        passed_quality=None if quality is None else bool(quality),
        reasons=_reasons(metrics),
        columns=_numbers(attempt, COLUMNS),
        fields=_numbers(attempt, FIELDS),
        sampled=sum(int(counts.get("", 0)) for counts in source_counts(attempt, FIELDS).values()),
        sources={
            name: {fate: int(number) for fate, number in counts.items()}
            for name, counts in source_counts(attempt, RECORDS).items()
        },
        quarantined=in_quarantine(counts),
        late_in_stages=in_all_stages(counts, LATE),
    )


def source_counts(attempt: Attempt | None, kind: str) -> dict[str, Mapping[str, float]]:
    """Return source -> its counts of a kind, such as `COLUMNS`."""
    counts = attempt.counts if attempt is not None else {}
    return {stage.partition(":")[0]: counts[stage] for stage in counts if stage.partition(":")[2] == kind}


def _numbers(attempt: Attempt | None, kind: str) -> dict[str, int]:
    """Return the counts of a kind; the names of several sources are put before those of their columns."""
    by_source = source_counts(attempt, kind)
    numbers = [
        (name if len(by_source) == 1 else f"{source}.{name}", int(number))
        for source, counts in by_source.items()
        for name, number in counts.items()
        if name
    ]
    return dict(sorted(numbers, key=lambda pair: -pair[1]))


def _reasons(metrics: Mapping[str, float]) -> dict[str, int]:
    counted = [(name.removeprefix(REASON), int(n)) for name, n in metrics.items() if name.startswith(REASON)]
    return dict(sorted(counted, key=lambda reason: (-reason[1], reason[0])))


def _in_short(stages: dict[str, dict[str, float]], whole: Mapping[str, float]) -> dict[str, float]:
    first, last = (list(stages.values())[at] for at in (0, -1))
    went_out = {name: value for name, value in last.items() if name.startswith("emitted")}
    of_input = {name: value for name, value in first.items() if not name.startswith("emitted")}
    refused = sum(counts.get("refused", 0) for counts in stages.values())
    return of_input | went_out | dict(whole) | ({"refused": refused} if refused else {})


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def lag(head: Head, stable_ends: Offsets) -> int:
    """Return the number of offsets that can be read and are not read yet.

    Args:
        head: the last committed batch.
        stable_ends: the last stable offsets: a `read_committed` consumer cannot read past them.

    Example: with offset 40 in the head and a last stable offset of 100, the lag is 60.
    """
    # A log that was recreated or truncated can end before the head: other checks report that.
    return sum(max(0, end - head.offsets.get(at, 0)) for at, end in stable_ends.items())
