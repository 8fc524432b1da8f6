"""The state of one key, or of one window of a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.kernel.model.records import Partition, Position, Record, Value, Window
from tests.kernel.model.values import Folded


@dataclass
class Entry:
    """`emitted` None: nothing went out yet, or last a null. `home` is the topic-partition that owns the
    entry, where buffers are bounded; `partition` that of the record last applied to it. `position` is the
    one that last changed it; `taken`: in which batch, and the record's own position. `expires`: the end of
    its time to live; `ends`: when its timer fires for that."""

    key: str
    window: Window | None
    home: Partition | None
    partition: Partition
    folded: list[Folded] = field(default_factory=list)
    emitted: Value = None
    emitted_timestamp: int = -1
    position: Position | None = None
    taken: tuple[int, Position] | None = None
    positions_before: tuple[Position, ...] = ()
    pending: int = 0
    since: int | None = None
    due: int | None = None
    last_flush: int | None = None
    last_out: int | None = None
    expires: int | None = None
    ends: int | None = None
    expired: bool = False

    @property
    def start(self) -> Window:
        """The order of a key's entries."""
        return self.window or (-1, -1)

    def take(self, record: Record, value: Value, position: Position, batch: int) -> None:
        """The record becomes part of the value, and the one that last changed the entry."""
        self.folded = [*self.folded, Folded(value, record.timestamp)]
        self.partition = record.home
        self.positions_before = self.known_before(batch)
        self.position = position
        self.taken = (batch, record.position)

    def known_before(self, batch: int) -> tuple[Position, ...]:
        """The position that last changed the entry before this batch; of merged sessions, all of theirs."""
        if self.taken is None or self.taken[0] == batch:
            return self.positions_before
        return (self.position,) if self.position else ()


def merged(sessions: Sequence[Entry], fresh: Entry, batch: int) -> Entry:
    """Quote: The merged entry folds the candidates' values, then the record. It starts as never emitted
    (time of last flush: the latest of theirs); buffered since = the smallest `since` of what was buffered;
    pending = sum. `first`/`last`/`collect_*` concatenate in window order.
    """
    for session in sessions:
        fresh.folded = [*fresh.folded, *session.folded]
        fresh.pending += session.pending
        fresh.positions_before += session.known_before(batch)
    flushes = [session.last_flush for session in sessions if session.last_flush is not None]
    waiting = [session.since for session in sessions if session.since is not None]
    fresh.last_flush = max(flushes, default=None)
    fresh.since = min(waiting, default=None)
    return fresh
