"""The counts of a batch, as the ledger has them: stage -> metric -> number.

The stage "" is the whole batch, with the fates of its sources' records. `status` and reports import this
module, and not the kernel, which takes long to import.
"""

from __future__ import annotations

from collections.abc import Mapping

StageCounts = Mapping[str, Mapping[str, float]]

LATE = "expired-window-record-drop"
"""The metric of records that are late for all of their windows."""

KEPT_LATE = ("late-quarantined", "late-emitted")
"""The metrics of late records that are kept. They count under LATE, too."""

FATES = (
    "used",
    "removed",
    "quarantined",
    "deduplicated",
    LATE,
    "nothing-to-explode",
    "tombstones-ignored",
)
"""Metrics of what happens to a record that came in. Each record counts once: they sum up to `came_in`."""

REFUSED_ROW = "emitted-refused-row"
"""Emissions that a database refuses."""

REFUSED_EMISSIONS = ("emitted-too-large", "emitted-refused-timestamp", REFUSED_ROW)
"""Metrics of emissions that a sink would refuse, and that are in quarantine instead."""

QUARANTINED = ("quarantined", "late-quarantined", "refused", *REFUSED_EMISSIONS)
"""Metrics that count records, values that break an expectation, and emissions in quarantine."""

COLUMNS, FIELDS, RECORDS = "columns", "fields", "records"
"""What an attempt's counts have of each source, as `NAME:columns` and so on beside the stages: declared
column -> records with a value; undeclared field -> sampled records that have it, and "" -> records sampled;
and, of each of several sources, what became of its records where they were read.
"""


def is_of_source(stage: str) -> bool:
    """Return whether a key of an attempt's counts has those of a source, and no metrics of a stage."""
    return ":" in stage  # which no stage's name has


def came_in(counts: Mapping[str, float]) -> int:
    """Return the number of a batch's records, with those that `explode` added."""
    return int(counts.get("read", 0) + counts.get("exploded", 0))


def outgoing(counts: Mapping[str, float]) -> int:
    """Return the number of a stage's emissions that its sinks get, without those that a sink would refuse.

    Example: 5 emissions, one of which is `emitted-too-large`, give 4.
    """
    return int(counts.get("emitted", 0) - refused_emissions(counts))


def refused_emissions(counts: Mapping[str, float]) -> int:
    """Return the number of a stage's emissions that are in quarantine, since a sink would refuse them."""
    return int(sum(counts.get(name, 0) for name in REFUSED_EMISSIONS))


def in_quarantine(counts: StageCounts) -> int:
    """Return how many records, values and emissions all stages of a batch have put into quarantine."""
    return in_all_stages(counts, *QUARANTINED)


def in_all_stages(counts: StageCounts, *metrics: str) -> int:
    """Return the sum of metrics over all stages. A record or emission can count in each stage that gets it.

    Example: `in_all_stages(attempt.counts, LATE)` is how many were late.
    """
    stages = counts_of_stages(counts).values()
    return int(sum(numbers.get(metric, 0) for numbers in stages for metric in metrics))


def counts_of_stages(counts: StageCounts) -> StageCounts:
    """Return the counts of the stages alone: those of the whole batch have the sources' records once more."""
    return {name: numbers for name, numbers in counts.items() if name and not is_of_source(name)}


def computed_text(counts: StageCounts) -> str:
    """Return what a batch has read and emitted, for a log.

    Example: `10,000 records came in, 3 in quarantine; emitted: availability 4,918`.
    """
    emitted = [f"{name} {outgoing(numbers):,}" for name, numbers in sorted(counts_of_stages(counts).items())]
    came = f"{came_in(counts.get('', {})):,} records came in, {in_quarantine(counts):,} in quarantine"
    return f"{came}; emitted: {', '.join(emitted)}" if emitted else came


def published_text(published: Mapping[str, int]) -> str:
    """Return how many records each sink has of a batch, for a log.

    Example: `4,918 to kafka:availability`.
    """
    return ", ".join(f"{records:,} to {sink}" for sink, records in published.items()) or "no sink"
