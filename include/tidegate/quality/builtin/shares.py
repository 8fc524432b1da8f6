"""What the counts of a batch have to keep to: each a pure decision over numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from tidegate.quality.builtin.facts import BatchCounts
from tidegate.quality.builtin.observation import Observation


def counts_add_up(counts: BatchCounts, outbox_rows: int) -> Observation:
    """Each record that came in has one fate, and the outbox has each emission that sinks get.

    `came_in = used + quarantined + deduplicated + late`, and the outbox's files have `outgoing` rows. Where
    records are exploded, one may become none: there `came_in` may be more, by at most what was used without a
    trace, which nobody counts.
    """
    missing, unsent = counts.came_in - counts.accounted, counts.outgoing - outbox_rows
    is_whole = missing >= 0 if counts.explodes else missing == 0
    text = (
        f"{counts.came_in} came in: {counts.used} used + {counts.quarantined} quarantined + "
        f"{counts.deduplicated} deduplicated + {counts.late} late; "
        f"{counts.outgoing} go out, the outbox has {outbox_rows}"
    )
    return Observation(is_whole and not unsent, text)


def share_at_most(counts: BatchCounts, records: int, most: float) -> Observation:
    """At most the share `most` (0 to 1) of what came in is among these `records`."""
    share = counts.share(records)
    return Observation(share <= most, share)


@dataclass(frozen=True)
class UsualRange:
    """`mean ± max(deviations * d, slack)`, of the shares of those batches in which at least `least_records`
    came in, and at least `least_batches`; d is their standard deviation (of all of them, not of a sample),
    and `slack` is in shares.
    """

    deviations: float = 3.0
    slack: float = 0.05
    least_batches: int = 5
    least_records: int = 100


_USUAL = UsualRange()


def emitted_share_as_before(
    counts: BatchCounts, history: Sequence[BatchCounts], usual: UsualRange = _USUAL
) -> Observation:
    """The share of what came in that the stage emitted lies within the range that batches before lead to.

    With too few of them, and where too little came in now, nothing can be said, and the expectation is met.
    Batches of any size count alike.
    """
    shares = [past.share(past.emitted) for past in history if past.came_in >= usual.least_records]
    share = counts.share(counts.emitted)
    if counts.came_in < usual.least_records or len(shares) < max(usual.least_batches, 1):
        return Observation(True, f"{share:.4f}; {len(shares)} batches before are too few, or it is too small")
    mean = sum(shares) / len(shares)
    deviation = sqrt(sum((past - mean) ** 2 for past in shares) / len(shares))
    room = max(usual.deviations * deviation, usual.slack)
    least, most = max(0.0, mean - room), mean + room
    # what is written with four digits was also summed up with sixteen
    is_within = least - 1e-12 <= share <= most + 1e-12
    return Observation(is_within, f"{share:.4f}; {len(shares)} batches before: {least:.4f} to {most:.4f}")
