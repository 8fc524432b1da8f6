"""Counts of what became of records, under the names of the metrics, and the metrics of a stage."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.rows import RECORD
from tidegate.kernel.tables import kind_of


class Counts(Counter[str]):
    """Metric -> number. `include` keeps the larger of metrics that end in `-max`, the smaller of those in
    `-min`.

    `used + removed + quarantined + deduplicated + expired-window-record-drop` is the number of input records.
    Last records that a changed table has joined again are no input: they count as `rejoined`.
    """

    @property
    def accounted(self) -> int:
        """The number of records with a fate."""
        fates = ("used", "removed", "quarantined", "deduplicated", "expired-window-record-drop")
        return sum(self[name] for name in fates)

    def include(self, other: Mapping[str, int]) -> None:
        """Add the counts of another part of the same batch.

        Example: including `{"emitted": 1, "record-lateness-max": 5}` into `{"emitted": 2,
        "record-lateness-max": 3}` gives `{"emitted": 3, "record-lateness-max": 5}`.
        """
        for name, number in other.items():
            if name.endswith("-min"):
                self[name] = min(self.get(name, number), number)
            else:
                self[name] = max(self[name], number) if name.endswith("-max") else self[name] + number

    def to_json(self) -> str:
        """Return a JSON object with sorted names."""
        return json.dumps(self, sort_keys=True)


COMPUTED_TWICE = "batches-computed-twice"
"""Batches in which a value may have been hidden by dropped repetitions: see `kernel.repeats`."""
_RUNNING = ("state-rows", "suppression-buffer-records", "suppression-buffer-bytes", COMPUTED_TWICE)
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


def count_lateness(rows: pa.RecordBatch, counts: Counts) -> None:
    """Count how far records are behind the time of their partition, in ms: 0 for records that advance it.

    Args:
        counts: Gets number, sum and largest lateness; null times do not count.
    """
    record = pc.equal(rows.column("kind"), RECORD)
    behind = pc.subtract(rows.column("time"), rows.column("timestamp")).filter(record).drop_null()
    if len(behind):
        lateness = pc.max_element_wise(behind, pa.scalar(0, pa.int64()))
        counts["record-lateness-count"] += len(lateness)
        counts["record-lateness-sum"] += pc.sum(lateness).as_py()
        counts.include({"record-lateness-max": pc.max(lateness).as_py()})


def count_emissions(value: pa.Array, reason: pa.Array, counts: Counts) -> None:
    """Count emissions, in all, by reason, and those that are deletions.

    Args:
        value: The emitted values; null is a deletion.
        reason: One reason per emission.
        counts: Gets the numbers.
    """
    counts["emitted"] += len(value)
    counts["emitted-tombstones"] += value.null_count
    for tally in pc.value_counts(reason).to_pylist():
        counts["emitted." + kind_of(tally["values"])] += tally["counts"]
