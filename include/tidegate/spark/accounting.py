"""The account of a batch: each input row of a pass is used, removed, quarantined, deduplicated or late."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tidegate import kernel
from tidegate.errors import CountMismatch
from tidegate.spark.frames import accounting_passes, readers_of_source
from tidegate.spark.shuffle import Report, SliceReport, TaskReport
from tidegate.spark.steps import KernelPass

_FILTERED = ("removed", "quarantined", "deduplicated", "expired-window-record-drop")
_KEPT_LATE = ("late-quarantined", "late-emitted")
_FATES = (*_FILTERED, *_KEPT_LATE, "used", "tombstones-ignored", "late-record-drop")


def stage_counts(reports: Iterable[Report], passes: Sequence[KernelPass]) -> dict[str, kernel.Counts]:
    """Return pass -> the counts of all of its tasks together; also of passes without a report.

    The reports of slices have the counts of records that were dropped where they were read.
    """
    counts = {pass_.name: kernel.Counts() for pass_ in passes}
    counts |= {pass_.late.name: kernel.Counts() for pass_ in passes if pass_.late is not None}
    first = [pass_ for pass_ in passes if "" in pass_.inputs]
    for report in reports:
        if isinstance(report, TaskReport):
            counts[report.stage].include(report.counts)
        elif isinstance(report, SliceReport):
            for stage, dropped in report.dropped.items():
                counts[stage].include(dropped)
            for pass_ in first:
                if report.source in pass_.sources:
                    counts[pass_.name]["removed"] += report.removed
    return counts


@dataclass(frozen=True)
class _Rows:
    """The rows that a pass emits, or that sources have for it.

    Args:
        number: all of them.
        deletions: those that delete a key.
    """

    number: int
    deletions: int


def account_for(
    passes: Sequence[KernelPass],
    counts: dict[str, kernel.Counts],
    reports: Sequence[Report],
    reused: Collection[str] = (),
) -> kernel.Counts:
    """Return the counts of the whole batch, and note in `counts` the deletions that a pass did not get.

    The fate of a source's record is its fate in the pass that accounts for the source, or in a filter before
    it (`frames.accounting_passes`).

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
    level = [pass_ for pass_ in passes if "" in pass_.inputs]
    filters = [pass_ for pass_ in passes if pass_.is_filter]
    first = accounting_passes([pass_ for pass_ in passes if pass_.reads_source and not pass_.is_filter])
    emitted: dict[str, _Rows] = {}
    for pass_ in passes:
        counted = counts[pass_.name]
        if pass_.name in reused:
            emitted[pass_.name] = _Rows(counted["emitted"], counted["emitted-tombstones"])
            continue
        if "" in pass_.inputs:
            input_ = _records_for(pass_, slices, level)
        else:
            input_ = _together([emitted[name] for name in pass_.inputs])
        bypassing = unkeyed if pass_.is_deduplication else 0
        input_rows = input_.number
        if not pass_.takes_deletions:
            counted["tombstones-ignored"] = input_.deletions
            input_rows -= input_.deletions
        _require_equal(pass_, input_rows - bypassing, counted)
        if pass_ in filters or pass_ in first:
            names = (*_FILTERED, *_KEPT_LATE) if pass_.is_filter else _FATES
            batch_counts.include({name: counted[name] for name in names})
        # The invariant: what a pass emits, and what went around it, is the input of the passes behind it.
        # What a changed table has brought into a filter is no record of the source, and not counted as one.
        own = counted["emitted"] - (counted["rejoined"] if pass_.is_filter else 0)
        emitted[pass_.name] = _Rows(own + bypassing, counted["emitted-tombstones"])
    accounted = {source for pass_ in first for source in pass_.sources}
    batch_counts.include(_left_over([slice_ for slice_ in slices if slice_.source not in accounted]))
    return batch_counts


def _together(inputs: Sequence[_Rows]) -> _Rows:
    """Return the rows that a pass gets of all of its inputs."""
    return _Rows(sum(rows.number for rows in inputs), sum(rows.deletions for rows in inputs))


def _records_for(pass_: KernelPass, slices: Sequence[SliceReport], level: Sequence[KernelPass]) -> _Rows:
    """Return the records that reach a pass of the first level: those of its sources, but unusable ones only
    if it is the first reader of their source.
    """
    number = deletions = 0
    for slice_ in slices:
        if slice_.source in pass_.sources:
            is_first = level[readers_of_source(slice_.source, level)[0]] is pass_
            # Rows of empty arrays only carry their count: the source drops them before the first pass.
            number += slice_.rows - slice_.empty - (0 if is_first else slice_.unusable)
            deletions += slice_.deletions
    return _Rows(number, deletions)


def _left_over(slices: Sequence[SliceReport]) -> kernel.Counts:
    """Return the fates of records whose sources no pass accounts for: they are those before the stages."""
    unusable, removed = sum(slice_.unusable for slice_ in slices), sum(slice_.removed for slice_ in slices)
    rows = sum(slice_.rows - slice_.empty for slice_ in slices)
    fates = {"quarantined": unusable, "removed": removed, "used": rows - unusable - removed}
    return kernel.Counts(fates if slices else {})


def counts_of_sources(reports: Iterable[Report]) -> dict[str, kernel.Counts]:
    """Return for each of several sources what became of its records where they were read, as the stages that
    `ledger.report` reads; empty for a single source, whose records are those of the batch.
    """
    counts: defaultdict[str, kernel.Counts] = defaultdict(kernel.Counts)
    for report in reports:
        if isinstance(report, SliceReport):
            counts[f"{report.source}:records"].include(
                {
                    "read": report.records,
                    "exploded": report.rows - report.records,
                    "nothing-to-explode": report.empty,
                    "removed": report.removed,
                    "quarantined": report.unusable,
                }
            )
    return dict(counts) if len(counts) > 1 else {}


def _require_equal(pass_: KernelPass, input_rows: int, counts: kernel.Counts) -> None:
    if input_rows != counts.accounted:
        raise CountMismatch(
            f"{input_rows} records came into {pass_.name}, but {counts.accounted} are accounted for "
            f"({counts['used']} used + {counts['removed']} removed + {counts['quarantined']} quarantined + "
            f"{counts['deduplicated']} deduplicated + {counts['expired-window-record-drop']} too late)",
            "Run again; if it stays, please report it with the pipeline file.",
        )
