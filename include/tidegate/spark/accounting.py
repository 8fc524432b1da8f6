"""The account of a batch: each input row of a pass is used, removed, quarantined, deduplicated or late."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tidegate import kernel
from tidegate.errors import CountMismatch
from tidegate.spark.shuffle import Report, SliceReport, TaskReport
from tidegate.spark.steps import KernelPass

_SOURCE_COUNTS = ("removed", "quarantined", "deduplicated", "expired-window-record-drop")
_KEPT_LATE = ("late-quarantined", "late-emitted")


def stage_counts(reports: Iterable[Report], passes: Sequence[KernelPass]) -> dict[str, kernel.Counts]:
    """Return pass -> the counts of all of its tasks together; also of passes without a report.

    The reports of slices have the counts of records that were dropped where they were read.
    """
    counts = {pass_.name: kernel.Counts() for pass_ in passes}
    counts |= {pass_.late.name: kernel.Counts() for pass_ in passes if pass_.late is not None}
    of_source = [counts[pass_.name] for pass_ in passes if "" in pass_.inputs]
    for report in reports:
        if isinstance(report, TaskReport):
            counts[report.stage].include(report.counts)
        elif isinstance(report, SliceReport):
            for stage, dropped in report.dropped.items():
                counts[stage].include(dropped)
            for counted in of_source:
                counted["removed"] += report.removed
    return counts


@dataclass(frozen=True)
class _Rows:
    """The rows that a pass emits, or that the source has.

    Args:
        number: all of them.
        deletions: those that delete a key.
        unusable: those in quarantine, which only the first pass gets.
    """

    number: int
    deletions: int
    unusable: int = 0


def account_for(
    passes: Sequence[KernelPass],
    counts: dict[str, kernel.Counts],
    reports: Sequence[Report],
    reused: Collection[str] = (),
) -> kernel.Counts:
    """Return the counts of the whole batch, and note in `counts` the deletions that a pass did not get.

    The fate of a record that the source has is its fate in the first stage, or in a filter before it.

    Raises CountMismatch if a pass has counted more or fewer rows than went into it.

    Args:
        passes: the passes, in order.
        counts: pass -> its counts, of all tasks.
        reports: the reports of all tasks.
        reused: the passes that were not computed: their counts have emissions only.
    """
    slices = [report for report in reports if isinstance(report, SliceReport)]
    records, rows = sum(slice_.records for slice_ in slices), sum(slice_.rows for slice_ in slices)
    empty = sum(slice_.empty for slice_ in slices)
    batch_counts = kernel.Counts({"read": records, "exploded": rows - records, "nothing-to-explode": empty})
    unkeyed = sum(slice_.unkeyed for slice_ in slices)
    unusable = sum(slice_.unusable for slice_ in slices)
    # Rows of empty arrays only carry their count: the source drops them before the first pass.
    source = _Rows(rows - empty, sum(slice_.deletions for slice_ in slices), unusable)
    emitted = {"": source}
    for pass_ in passes:
        counted = counts[pass_.name]
        if pass_.name in reused:
            emitted[pass_.name] = _Rows(counted["emitted"], counted["emitted-tombstones"])
            continue
        input_ = _together([emitted[name] for name in pass_.inputs])
        bypassing = unkeyed if pass_.is_deduplication else 0
        input_rows = input_.number
        if pass_ is not passes[0]:
            input_rows -= input_.unusable
        if not pass_.takes_deletions:
            counted["tombstones-ignored"] = input_.deletions
            input_rows -= input_.deletions
        _require_equal(pass_, input_rows - bypassing, counted)
        if pass_ in passes[: 2 if passes[0].is_filter else 1]:
            batch_counts.include({name: counted[name] for name in (*_SOURCE_COUNTS, *_KEPT_LATE)})
        # The invariant: what a pass emits, and what went around it, is the input of the passes behind it.
        emitted[pass_.name] = _Rows(counted["emitted"] + bypassing, counted["emitted-tombstones"])
    return batch_counts


def _together(inputs: Sequence[_Rows]) -> _Rows:
    """Return the rows that a pass gets of all of its inputs."""
    number, deletions = sum(rows.number for rows in inputs), sum(rows.deletions for rows in inputs)
    return _Rows(number, deletions, sum(rows.unusable for rows in inputs))


def _require_equal(pass_: KernelPass, input_rows: int, counts: kernel.Counts) -> None:
    if input_rows != counts.accounted:
        raise CountMismatch(
            f"{input_rows} records came into {pass_.name}, but {counts.accounted} are accounted for "
            f"({counts['used']} used + {counts['removed']} removed + {counts['quarantined']} quarantined + "
            f"{counts['deduplicated']} deduplicated + {counts['expired-window-record-drop']} too late)",
            "Run again; if it stays, please report it with the pipeline file.",
        )
