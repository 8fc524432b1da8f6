"""Account for every input row of a pass: it is used, quarantined, deduplicated or late."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate import kernel
from tidegate.errors import CountMismatch
from tidegate.spark.reports import Report, SliceReport, TaskReport
from tidegate.spark.steps import KernelPass

_SOURCE_COUNTS = ("quarantined", "deduplicated", "expired-window-record-drop")


def stage_counts(reports: Iterable[Report], stages: Sequence[str]) -> dict[str, kernel.Counts]:
    """Return the counts of all tasks of each stage together.

    Args:
        reports: the reports of all tasks; only those of stages have counts.
        stages: the names of all passes, also of those without a report.
    """
    counts = {stage: kernel.Counts() for stage in stages}
    for report in reports:
        if isinstance(report, TaskReport):
            counts[report.stage].include(report.counts)
    return counts


def account_for(
    passes: Sequence[KernelPass], counts: dict[str, kernel.Counts], reports: Sequence[Report]
) -> kernel.Counts:
    """Return the counts of the whole batch, and note in `counts` the deletions that a pass did not get.

    Raises CountMismatch if a pass has counted more or fewer rows than went into it.

    Args:
        passes: the passes, in order.
        counts: pass -> its counts, of all tasks.
        reports: the reports of all tasks.
    """
    slices = [report for report in reports if isinstance(report, SliceReport)]
    records, rows = sum(slice_.records for slice_ in slices), sum(slice_.rows for slice_ in slices)
    empty = sum(slice_.empty for slice_ in slices)
    batch_counts = kernel.Counts({"read": records, "exploded": rows - records, "nothing-to-explode": empty})
    # Rows of empty arrays only carry their count: the source drops them before the first pass.
    input_rows, deletions = rows - empty, 0
    unkeyed = sum(slice_.unkeyed for slice_ in slices)
    source_passes = passes[: 2 if passes[0].is_filter else 1]
    for pass_ in passes:
        counted = counts[pass_.name]
        bypassing = unkeyed if pass_.is_deduplication else 0
        if not pass_.takes_deletions:
            counted["tombstones-ignored"] = deletions
            input_rows -= deletions
        _require_equal(pass_, input_rows - bypassing, counted)
        if pass_ in source_passes:
            batch_counts.include({name: counted[name] for name in _SOURCE_COUNTS})
        # The invariant: what a pass emits, and what went around it, is the input of the next pass.
        input_rows = counted["emitted"] + bypassing
        deletions = counted["emitted-tombstones"]
    return batch_counts


def _require_equal(pass_: KernelPass, input_rows: int, counts: kernel.Counts) -> None:
    if input_rows != counts.accounted:
        raise CountMismatch(
            f"{input_rows} records came into {pass_.name}, but {counts.accounted} are accounted for "
            f"({counts['used']} used + {counts['quarantined']} quarantined + {counts['deduplicated']} "
            f"deduplicated + {counts['expired-window-record-drop']} too late)",
            "Run again; if it stays, please report it with the pipeline file.",
        )
