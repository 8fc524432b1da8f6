"""The rules on a batch's counts, as pure decisions over numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from tidegate.quality.builtin.facts import BatchCounts
from tidegate.quality.builtin.observation import Observation


def counts_add_up(counts: BatchCounts, outbox_rows: int) -> Observation:
    """Check that each record that was read has one fate, and that the outbox has each emission for sinks.

    `came_in = used + quarantined + deduplicated + late`, and the outbox's files have `outgoing` rows.

    Example::

        counts_add_up(BatchCounts(10, 8, 1, 1, 0, 3, 3), outbox_rows=3).passed  # True
    """
    missing, unsent = counts.came_in - counts.accounted, counts.outgoing - outbox_rows
    # a record that `explode` makes no records of is used, and counted nowhere, so some may be missing
    is_whole = missing >= 0 if counts.explodes else missing == 0
    text = (
        f"{counts.came_in} came in: {counts.used} used + {counts.quarantined} quarantined + "
        f"{counts.deduplicated} deduplicated + {counts.late} late; "
        f"{counts.outgoing} go out, the outbox has {outbox_rows}"
    )
    return Observation(is_whole and not unsent, text)


def share_at_most(counts: BatchCounts, records: int, most: float) -> Observation:
    """Check that at most the share `most` (0 to 1) of the records that were read is among these `records`.

    Example::

        share_at_most(BatchCounts(100, 98, 2, 0, 0, 5, 5), records=2, most=0.01).passed  # False
    """
    share = counts.share(records)
    return Observation(share <= most, share)


@dataclass(frozen=True)
class UsualRange:
    """The range `mean ± max(deviations * d, slack)` of the shares of earlier batches.

    d is the standard deviation of all of them, not of a sample.

    Args:
        slack: In shares, 0 to 1.
        least_batches: With fewer batches, there is no range.
        least_records: Batches that read fewer records are ignored.
    """

    deviations: float = 3.0
    slack: float = 0.05
    least_batches: int = 5
    least_records: int = 100


_USUAL = UsualRange()


def emitted_share_as_before(
    counts: BatchCounts, history: Sequence[BatchCounts], usual: UsualRange = _USUAL
) -> Observation:
    """Check that the share of the records read that the stage emitted is within the usual range.

    If there are too few earlier batches, or this batch read too little, the expectation is met. Batches count
    alike, whatever their size.

    Args:
        history: The counts of earlier batches.
        usual: How the range is computed.
    """
    shares = [past.share(past.emitted) for past in history if past.came_in >= usual.least_records]
    share = counts.share(counts.emitted)
    if counts.came_in < usual.least_records or len(shares) < max(usual.least_batches, 1):
        return Observation(
            True, f"{share:.4f}; {len(shares)} earlier batches are too few, or the batch is too small"
        )
    mean = sum(shares) / len(shares)
    deviation = sqrt(sum((past - mean) ** 2 for past in shares) / len(shares))
    room = max(usual.deviations * deviation, usual.slack)
    least, most = max(0.0, mean - room), mean + room
    # sums of doubles are not exact: a constant share must not fall out of its own range
    is_within = least - 1e-12 <= share <= most + 1e-12
    return Observation(is_within, f"{share:.4f}; {len(shares)} earlier batches: {least:.4f} to {most:.4f}")
