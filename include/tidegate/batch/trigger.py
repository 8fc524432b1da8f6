"""Why a batch runs, when, and how much of what is there it may read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Protocol

from tidegate.app.root import App
from tidegate.errors import Halted, TriggerInvalid
from tidegate.kernel import FUTURE_MS
from tidegate.ledger import Head, LeasedLedger, Plan, Resolution
from tidegate.ledger.records import ReusedBatch
from tidegate.ledger.stream_condition import CLOCK_AHEAD_MS
from tidegate.model.pipeline import Pipeline

Offsets = Mapping[tuple[str, int], int]
"""(topic, partition) -> an offset that is not read any more."""


class ReplayRequest(Protocol):
    """Records in quarantine that a batch reads again, in place of what Kafka has.

    `quarantine.ReplayedRecords` implements it: a batch knows no more of quarantine than this.
    """

    def planned(
        self, app: App, lease: LeasedLedger, pipeline: Pipeline, head: Head, plan: Plan
    ) -> tuple[Plan, Resolution | None, str]:
        """Return the plan of a batch that reads these records, and the resolution that is stored with it.

        The resolution is None if none of the records is open. The text says which records were left out, and
        why; it is empty if none was.
        """
        ...


@dataclass(frozen=True)
class RepeatedBatch:
    """A batch of another generation that a trigger repeats, with the same records and the same clock.

    Args:
        plan: its plan.
        keeps_lookups: whether lookups are as they were then; otherwise they are as they are now.
        reused: the part that is reused; None: all stages are computed again.
    """

    plan: Plan
    keeps_lookups: bool
    reused: ReusedBatch | None = None

    def planned(self, head: Head, plan: Plan) -> Plan:
        """Return the plan of the batch that repeats it, with the pipeline of `plan`.

        Raises Halted if the generation is not where the repeated batch begins.
        """
        starts = {part.place: part.start for part in self.plan.ranges}
        if any(head.offsets.get(at, start) != start for at, start in starts.items()):
            raise Halted(
                f"Batch {self.plan.seq} of {self.plan.stream} does not begin where {head.stream} is: records "
                "between them were given up, or were read in another batch",
                "Restate up to the batch before it; or make another generation: `tidegate generation new`.",
            )
        pins = {table: pin for table, pin in self.plan.lookups.items() if table in plan.lookups}
        return replace(
            plan,
            clock_ms=self.plan.clock_ms,
            believed_until_ms=self.plan.believed_until_ms,
            topic_ids=self.plan.topic_ids,
            drain=self.plan.drain,
            lookups={**plan.lookups, **pins} if self.keeps_lookups else plan.lookups,
            # also of runs without a batch, which the other generation had between its batches
            clocks=self.plan.clocks,
            reused=self.reused,
        )


@dataclass(frozen=True)
class Trigger:
    """The reason and the time of a batch. Instants are epoch ms.

    `clock_ms` is what the batch takes as now; a backfill's lies in the past, so `now_ms` says when the
    trigger itself was. `interval_end_ms` null reads all that is there, unless an earlier batch of the run has
    found out how far its interval goes: `interval_ends`. Where the interval begins only matters to whoever is
    told which batches have read it. With `drain`, nothing is read and what the stages
    hold back goes out. `backfill` says that it is one of many intervals of the past.

    `until_offsets` and `max_records` let a run read less than its interval: as far as these offsets (nothing
    of partitions that it does not name), and at most so many. What it leaves is of the interval, and later
    runs read it: its clock waits there. `replay`: nothing is read, and records in quarantine come in again.
    `repeats`: what a batch of another generation has read is read, and Kafka is not asked for more.
    `any_clock` allows a clock that is ahead of `now_ms`, `from_start` to send again what another stream sent.
    """

    run_id: str
    clock_ms: int
    interval_end_ms: int | None = None
    now_ms: int | None = None
    drain: bool = False
    backfill: bool = False
    interval_ends: Offsets | None = None
    until_offsets: Offsets | None = None
    max_records: int | None = None
    interval_start_ms: int | None = None
    replay: ReplayRequest | None = None
    repeats: RepeatedBatch | None = None
    any_clock: bool = False
    from_start: bool = False

    def check_clock(self) -> None:
        """Raise TriggerInvalid for a clock ahead of the trigger's own time: no later batch lowers it."""
        if self.any_clock or self.now_ms is None or self.clock_ms <= self.now_ms + CLOCK_AHEAD_MS:
            return
        clock, now = (
            datetime.fromtimestamp(at / 1000, timezone.utc).isoformat(timespec="seconds")
            for at in (self.clock_ms, self.now_ms)
        )
        raise TriggerInvalid(
            f"The clock {clock} of {self.run_id} is later than now, {now}: every window, threshold and time "
            "limit before it would be over for good",
            "Correct the clock, or that of this machine. If you mean it: `tidegate run --clock … --force`.",
        )

    @property
    def believed_until_ms(self) -> int:
        """The latest timestamp (epoch ms) that is believed. A record from later than this is a mistake, and
        not only one for a later interval.
        """
        return max(self.clock_ms, self.now_ms or self.clock_ms) + FUTURE_MS

    @property
    def plausible_until_ms(self) -> int:
        """The latest timestamp (epoch ms) that can end the interval. A later one is of a clock that is ahead,
        and must not hold back the records behind it.
        """
        if self.now_ms is None:
            return self.believed_until_ms
        return max(self.clock_ms, self.now_ms) + CLOCK_AHEAD_MS

    def most_records(self, per_batch: int | None) -> int | None:
        """Return how many records a batch may read; None: any number.

        Args:
            per_batch: the number that its pipeline allows; None: any number.
        """
        return min((most for most in (self.max_records, per_batch) if most is not None), default=None)
