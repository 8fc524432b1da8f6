"""The kernel's inputs beside rows: a stage, and the batch that is applied to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from tidegate.expressions import Condition
from tidegate.kernel.bounded import Bound
from tidegate.kernel.gate import RowExpectation
from tidegate.kernel.reduce import Reduce
from tidegate.kernel.strategy import Clock, Emit
from tidegate.kernel.tables import is_table
from tidegate.kernel.ttl import TimeToLive
from tidegate.kernel.unchanged import Unchanged
from tidegate.kernel.windows import Window

Place = tuple[str, int]
"""A topic-partition."""


@dataclass(frozen=True)
class Stage:
    """The rules by which records fold into a value, and by which it is emitted. A buffer without `bound` has
    no limit.

    Args:
        reduce: folds records into a value.
        emit: the strategy.
        window: None: one entry per key.
        on_error: what becomes of a record that cannot be folded, tested or compared; for `quarantine` the
            rows' `input` must contain it.
        on_late: what becomes of a record all of whose windows are over; for `quarantine` as with `on_error`;
            for `emit` rows have `record`.
        expectations: a value that breaks one of them is refused: it is not emitted, and leaves the kernel as
            a row of kind REFUSED.
        name: for messages.
        tells_before: each emission has in `emitted` the value that it replaces; requires `remembers_emitted`.
        unchanged: how a record marks columns that it leaves unchanged; see there for the supported stages.
        by_time: records in several partitions are taken by the times of their partitions, so that the records
            of each keep their order, whichever of them an earlier pass left out.
        expects: whether keys of a table wait for their first record, see `kernel.tables`; their rows are fed
            by a batch in which the table may have changed.
        ttl: how long a key's state lives after the last record that changed it; without window and bound.
    """

    reduce: Reduce
    emit: Emit
    window: Window | None = None
    where: Condition | None = None
    deduplicate: Literal["offset", "root", "none"] = "offset"
    bound: Bound | None = None
    on_error: Literal["stop", "quarantine"] = "stop"
    on_late: Literal["drop", "quarantine", "emit"] = "drop"
    expectations: tuple[RowExpectation, ...] = ()
    name: str = ""
    tells_before: bool = False
    unchanged: Unchanged | None = None
    by_time: bool = False
    ttl: TimeToLive | None = None
    expects: bool = False

    @property
    def clock(self) -> Clock:
        """The time that counts for the stage."""
        return self.emit.clock

    @property
    def empties(self) -> bool:
        """Whether emitted records are no longer part of the value."""
        return self.reduce.lists_events or self.emit.empties

    @property
    def keeps_input(self) -> bool:
        """Whether it may quarantine a record, so that each record has to come whole."""
        return "quarantine" in (self.on_error, self.on_late)

    @property
    def remembers_emitted(self) -> bool:
        """Whether an entry's state has the last emitted value. Events and flushed aggregates are facts that
        nothing replaces; and with a bounded buffer, a key has an entry in each partition.
        """
        if self.remembers_hashes or self.bound is not None or self.reduce.lists_events:
            return False
        if not self.emit.remembers_emissions:
            return False
        return self.reduce.newest_only or self.window is not None or not self.emit.empties

    @property
    def remembers_hashes(self) -> bool:
        """Whether a hash is stored of the last emission, in place of the value."""
        return self.emit.marks

    @property
    def has_timers(self) -> bool:
        """Whether its entries have timers."""
        return self.window is not None or self.emit.sets_timers or self.ttl is not None

    @property
    def has_one_entry_per_key(self) -> bool:
        """Whether the state of a key is one row: it has no windows, and no entry per topic-partition."""
        return self.window is None and self.bound is None

    @property
    def ignores_repeats(self) -> bool:
        """Whether a record with the value of its key's record before changes nothing but counts."""
        if not (self.reduce.newest_only and self.emit.ignores_repeats):
            return False
        # each of these looks at every record: at its time, its root, or the value that it would emit
        looks = self.window or self.bound or self.unchanged or self.expectations or self.by_time or self.ttl
        return not looks and self.deduplicate != "root" and self.on_error == "stop"

    @property
    def shows_windows(self) -> bool:
        """Whether its emissions have the windows of their entries."""
        return self.window is not None and not self.window.pairs

    @property
    def keeps_values(self) -> bool:
        """Whether its state rows have values."""
        return not (self.remembers_hashes and self.reduce.newest_only)


def groups(stage: Stage) -> tuple[str, ...]:
    """Return the columns whose rows are decided together. They have one hash.

    Example: `("key",)`, or with a bounded buffer `("topic", "partition")`.
    """
    return ("topic", "partition") if stage.bound else ("key",)


@dataclass(frozen=True)
class Batch:
    """The parameters of a batch beside its rows. All times are in epoch ms; -1: none.

    Args:
        times: stream time of each topic-partition at the end of the batch.
        clock: under `clock: run`, this batch's clock, which applies to all topic-partitions but those of
            `cut`.
        floor: the largest clock of earlier batches for topic-partitions that `clocks` does not have.
        clocks: the largest clock that earlier batches applied to a topic-partition.
        cut: topic-partitions in which the batch leaves records of its interval unread.
        drain: emit all that is held back.
        replay: its records were in quarantine, so that no batch has applied them, wherever they are in their
            partitions; fences stay as they are.
        trace: also yield what became of each record.
        since: the time before the batch from which the silence of an expected key counts; -1: there is none.
        tables: topic -> the name of the table whose changed rows make records under this topic, see
            `kernel.tables`; empty if no table has changed.
    """

    times: Mapping[Place, int] = field(default_factory=dict)
    clock: int | None = None
    floor: int = -1
    clocks: Mapping[Place, int] = field(default_factory=dict)
    cut: frozenset[Place] = frozenset()
    drain: bool = False
    replay: bool = False
    trace: bool = False
    since: int = -1
    tables: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def ends(self) -> Mapping[Place, int]:
        """The time of topic-partitions at the end of the batch; for others it is `least_end`."""
        places = self.times.keys() | self.clocks.keys() | self.cut
        return {place: max(self.times.get(place, -1), self._clock_after(place)) for place in places}

    @cached_property
    def least_end(self) -> int:
        """The time at the end of the batch of a topic-partition that `ends` does not have."""
        return max(self.floor, -1 if self.clock is None else self.clock)

    @cached_property
    def end_of_all(self) -> int:
        """The time at the end of the batch that all topic-partitions with records have reached.

        The place of a table has no time of its own.
        """
        ends = (end for (topic, _), end in self.ends.items() if end >= 0 and not is_table(topic))
        return min(ends, default=self.least_end)

    def end_of(self, place: Place) -> int:
        """Return the time of a topic-partition at the end of the batch; for a table, that of all of them."""
        return self.end_of_all if is_table(place[0]) else self.ends.get(place, self.least_end)

    def started(self, starts: Mapping[Place, int]) -> Batch:
        """Return the batch with `since`: the least time that topic-partitions have before it.

        Args:
            starts: The stream time of each topic-partition before the batch, or the timestamp of its first
                record.
        """
        times = [
            max(at, self.clocks.get(place, self.floor))
            for place, at in starts.items()
            if at >= 0 and not is_table(place[0])
        ]
        without = self.floor if self.floor >= 0 else self.least_end
        return replace(self, since=min(times, default=without))

    def _clock_after(self, place: Place) -> int:
        # a clock ahead of unread records of its interval would make them late (docs/semantics.md, "Time")
        start = self.clocks.get(place, self.floor)
        return start if self.clock is None or place in self.cut else max(start, self.clock)
