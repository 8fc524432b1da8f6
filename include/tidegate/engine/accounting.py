"""Every row that came into a pass is accounted for: used, quarantined, deduplicated or late."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate import core
from tidegate.engine.reports import Report, SliceReport, TaskReport
from tidegate.engine.steps import KernelPass
from tidegate.errors import CountMismatch

_OF_SOURCE = ("quarantined", "deduplicated", "expired-window-record-drop")


def stage_counts(reports: Iterable[Report], stages: Sequence[str]) -> dict[str, core.Counts]:
    """What all tasks of each stage have counted together."""
    counts = {stage: core.Counts() for stage in stages}
    for report in reports:
        if isinstance(report, TaskReport):
            counts[report.stage].include(report.counts)
    return counts


def account_for(
    passes: Sequence[KernelPass], counts: dict[str, core.Counts], reports: Sequence[Report]
) -> core.Counts:
    """The counts of the whole batch. Notes in `counts` the deletions that a pass did not get.

    Raises CountMismatch.
    """
    slices = [report for report in reports if isinstance(report, SliceReport)]
    records, rows = sum(slice_.records for slice_ in slices), sum(slice_.rows for slice_ in slices)
    empty = sum(slice_.empty for slice_ in slices)
    batch_counts = core.Counts({"read": records, "exploded": rows - records, "nothing-to-explode": empty})
    came_in, deletions = rows - empty, 0
    unkeyed = sum(slice_.unkeyed for slice_ in slices)
    of_records = passes[: 2 if passes[0].is_filter else 1]
    for pass_ in passes:
        counted = counts[pass_.name]
        bypassing = unkeyed if pass_.is_deduplication else 0
        if not pass_.takes_deletions:
            counted["tombstones-ignored"] = deletions
            came_in -= deletions
        _require_equal(pass_, came_in - bypassing, counted)
        if pass_ in of_records:
            batch_counts.include({name: counted[name] for name in _OF_SOURCE})
        came_in = counted["emitted"] + bypassing
        deletions = counted["emitted-tombstones"]
    return batch_counts


def _require_equal(pass_: KernelPass, came_in: int, counts: core.Counts) -> None:
    if came_in != counts.accounted:
        raise CountMismatch(
            f"{came_in} records came into {pass_.name}, but {counts.accounted} are accounted for "
            f"({counts['used']} used + {counts['quarantined']} quarantined + {counts['deduplicated']} "
            f"deduplicated + {counts['expired-window-record-drop']} too late)",
            "Run again; if it stays, please report it with the pipeline file.",
        )
