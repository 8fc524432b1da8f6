"""What the kernel needs to know: of a stage, and of the batch that is applied to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from tidegate.core.condition import Condition
from tidegate.core.emit import Change, Emit
from tidegate.core.expectation import RowExpectation
from tidegate.core.reduce import Collect, Latest, Reduce
from tidegate.core.unchanged import Unchanged
from tidegate.core.windows import Window

Place = tuple[str, int]
"""A topic-partition."""


@dataclass(frozen=True)
class Bound:
    """What a buffer may hold, per topic-partition: entries, or bytes of key + serialized value."""

    max_records: int | None = None
    max_bytes: int | None = None
    when_full: Literal["emit_early", "shut_down"] = "emit_early"


@dataclass(frozen=True)
class Stage:
    """How records fold into a value, and when that goes out. A buffer without `bound` may grow.

    `on_error`: what becomes of a record that cannot be folded in, tested or compared; under `quarantine` the
    rows' `input` has to hold it. `expectations`: a value that breaks one of them is refused: it does not go
    out, and leaves the kernel as a row of its own. `name` is for messages. `tells_before`: each emission has
    in `emitted` what it replaces; only where the stage `remembers_emitted`. `unchanged`: what a record leaves
    as it was; see there for the stages that it goes with.
    `by_time`: what sits in several partitions is taken by their times, so that the records of each stay in
    their order, whichever of them a pass before has left out.
    """

    reduce: Reduce
    emit: Emit
    window: Window | None = None
    clock: Literal["stream", "run"] = "stream"
    where: Condition | None = None
    deduplicate: Literal["offset", "root", "none"] = "offset"
    bound: Bound | None = None
    on_error: Literal["stop", "quarantine"] = "stop"
    expectations: tuple[RowExpectation, ...] = ()
    name: str = ""
    tells_before: bool = False
    unchanged: Unchanged | None = None
    by_time: bool = False

    @property
    def remembers_emitted(self) -> bool:
        """Whether an entry's state has the value that went out last. Events and flushed aggregates are facts,
        which nothing replaces; where a buffer is bounded, a key has an entry in each partition.
        """
        if self.remembers_hashes or self.bound is not None or isinstance(self.reduce, Collect):
            return False
        return isinstance(self.reduce, Latest) or self.window is not None or not self.emit.empties

    @property
    def remembers_hashes(self) -> bool:
        """Whether a hash is kept of what went out, in place of the value."""
        return self.emit.marks or (isinstance(self.emit, Change) and self.emit.hashed)

    @property
    def keeps_values(self) -> bool:
        """Whether its state rows have values at all."""
        return not (self.remembers_hashes and isinstance(self.reduce, Latest))


def groups(stage: Stage) -> tuple[str, ...]:
    """The columns whose rows are decided together. They have one hash."""
    return ("topic", "partition") if stage.bound else ("key",)


@dataclass(frozen=True)
class Batch:
    """What a batch adds to its rows. All times in epoch ms; -1: none.

    `times`: stream time of each topic-partition at the end of the batch. Under `clock: run`, `clocks` is the
    largest clock that the batches before applied to a topic-partition, `floor` the same where `clocks` has
    nothing, and `clock` this batch's, which is applied to all topic-partitions but those of `cut`: there it
    leaves records of its interval unread. `drain`: what is held back goes out. `replay`: its records were in
    quarantine, so that no batch has applied them, wherever they are in their partitions; what the records
    after them repeat stays as it was. `trace`: also say what became of each record.
    """

    times: Mapping[Place, int] = field(default_factory=dict)
    clock: int | None = None
    floor: int = -1
    clocks: Mapping[Place, int] = field(default_factory=dict)
    cut: frozenset[Place] = frozenset()
    drain: bool = False
    replay: bool = False
    trace: bool = False

    @cached_property
    def ends(self) -> Mapping[Place, int]:
        """The time of topic-partitions at the end of the batch; where nothing stands, it is `least_end`."""
        places = self.times.keys() | self.clocks.keys() | self.cut
        return {place: max(self.times.get(place, -1), self._clock_after(place)) for place in places}

    @cached_property
    def least_end(self) -> int:
        """The time at the end of the batch of a topic-partition that `ends` does not have."""
        return max(self.floor, -1 if self.clock is None else self.clock)

    def _clock_after(self, place: Place) -> int:
        start = self.clocks.get(place, self.floor)
        return start if self.clock is None or place in self.cut else max(start, self.clock)
