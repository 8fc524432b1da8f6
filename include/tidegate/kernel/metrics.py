"""Metrics of a stage from its counts: what is held back and remembered, averages, peaks."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.kernel.counts import Counts

_RUNNING = ("state-rows", "suppression-buffer-records", "suppression-buffer-bytes")
"""Counts that the kernel reports as differences, and that are published as totals."""


def running_totals(counts: Counts, before: Mapping[str, float]) -> Counts:
    """Return a batch's counts with the running ones added to the totals before the batch.

    Example: 2 new `state-rows` after a total of 5 give 7.
    """
    now = Counts(counts)
    for name in _RUNNING:
        now[name] += int(before.get(name, 0))
    return now


def metrics(counts: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of a stage. `before` has its running totals after the previous batch.

    A buffer's average is that of the batch's start and end. If the kernel saw no peak, since it looks at one
    key after the other, the peak is the larger of the two.

    Args:
        counts: The batch's counts, with running totals.
    """
    values = {name: float(value) for name, value in counts.items() if not name.endswith(("-sum", "-count"))}
    for name in ("record-lateness", "suppression-overtime"):
        if counts.get(f"{name}-count"):
            values[f"{name}-avg"] = counts[f"{name}-sum"] / counts[f"{name}-count"]
    for name in ("suppression-buffer-records", "suppression-buffer-bytes"):
        first, last = before.get(name, 0), counts.get(name, 0)
        values[f"{name}-avg"] = (first + last) / 2
        values[f"{name}-max"] = float(max(first, last, counts.get(f"{name}-max", 0)))
    return values
