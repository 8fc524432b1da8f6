"""The state of keys and of their windows while records are applied: restored, changed, removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidegate.kernel.rows import Columns, Position, repeats

if TYPE_CHECKING:
    from tidegate.kernel.bounded import Buffer
    from tidegate.kernel.reduce import Values
    from tidegate.kernel.stage import Stage
    from tidegate.kernel.timers import Timers
    from tidegate.kernel.windows import Span

NEVER = 2**63 - 1
"""The due time of an entry without a timer."""


class Entry:
    """The state of a (key, window). All times are in epoch ms.

    `accumulator` and `emitted` are the fold of its records and the last emission, as references that the
    stage's reduce understands (`reduce.Values`); None: nothing. `row` is the row that changed it last, a
    record or its own state row: that row's position is the entry's. `pending` is the number of records held
    back, `since` the time from which they wait (`Emit.starts_at`), `bytes` their size if it is counted.
    `removed`: it is over, and only a state row that says so remains to be written.
    """

    # slots keep entries small, and name all attributes that a savepoint restores
    __slots__ = (
        "accumulator",
        "bytes",
        "changed",
        "close",
        "due",
        "emitted",
        "emitted_timestamp",
        "expires_at",
        "fence",
        "fence_row",
        "flushed_at",
        "forget",
        "group",
        "key",
        "pending",
        "removed",
        "row",
        "since",
        "stored",
        "stored_bytes",
        "stored_live",
        "stored_pending",
        "timestamp",
        "window",
    )

    def __init__(self, key: str, window: Span | None, close: int, row: int) -> None:
        self.key = key
        self.window = window
        self.close = close
        """When its window is over; NEVER without a window."""
        self.forget = close
        """When its contents are no longer needed."""
        self.row = row
        self.accumulator: Any = None
        self.timestamp = -1
        """The largest timestamp that is folded into the accumulator; -1: none is."""
        self.emitted: Any = None
        self.emitted_timestamp: int | None = None
        self.flushed_at: int | None = None
        self.expires_at: int | None = None
        """When its time to live is over; None: never."""
        self.pending = 0
        self.since = -1
        self.bytes = 0
        self.due = NEVER
        self.fence: Position | None = None
        """The position at or before which records are repetitions; None: there is none."""
        self.group: Position | None = None
        """The record that set the fence: what was exploded from it is no repetition."""
        self.fence_row: int | None = None
        """The state row whose position the entry keeps, whichever row changes it; None: it has the position
        of `row`.
        """
        self.stored = False
        """Whether the entry has a state row."""
        self.stored_live = False
        """Whether that row is live."""
        self.stored_pending = 0
        self.stored_bytes = 0
        self.changed = False
        self.removed = False

    @property
    def live(self) -> bool:
        """Whether anything is left of the entry: an accumulator, its last emission, a timer, or its last
        flush.

        Only this property decides it: the result is written into the state row, and read from there.
        """
        return not self.removed and (self.remembers or bool(self.pending) or self.due != NEVER)

    @property
    def remembers(self) -> bool:
        """Whether it has an accumulator, its last emission, or the time of its last flush."""
        return self.accumulator is not None or self.emitted is not None or self.flushed_at is not None

    @property
    def position_row(self) -> int:
        """The row whose position the state row gets."""
        return self.row if self.fence_row is None else self.fence_row

    def slots(self) -> list[Any]:
        """Return all attributes, for `reset`."""
        return [getattr(self, name) for name in self.__slots__]

    def reset(self, slots: list[Any]) -> None:
        """Restore all attributes. The caller restores what `accumulator` refers to.

        Args:
            slots: What `slots` returned for this entry.
        """
        for name, value in zip(self.__slots__, slots, strict=True):
            setattr(self, name, value)

    def empty(self) -> None:
        """Note that nothing is held back any more."""
        self.pending = 0
        self.since = -1
        self.bytes = 0

    def expire(self) -> None:
        """Forget all but the position: a record that comes now is the first one."""
        self.accumulator = self.emitted = None
        self.emitted_timestamp = self.flushed_at = self.expires_at = None
        self.timestamp = -1
        self.due = NEVER
        self.empty()


class Entries:
    """Entries by key and window. `changed` has each entry once of which a state row must be written.

    Removed entries that have a state row are kept until the group is finished: an entry that is created again
    for the same key and window takes that row over, so that an entry never has two rows.
    """

    def __init__(
        self,
        stage: Stage,
        columns: Columns,
        values: Values,
        timers: Timers,
        buffer: Buffer | None,
        is_replay: bool = False,
    ) -> None:
        self._stage = stage
        self._columns = columns
        self._values = values
        self._timers = timers
        self._buffer = buffer
        self._is_replay = is_replay
        self._by_offset = stage.deduplicate == "offset"
        self._by_root = stage.deduplicate == "root"
        self._keys: dict[str, dict[Span | None, Entry]] = {}
        self._key: str | None = None
        self._windows: dict[Span | None, Entry] = {}
        self._removed: dict[tuple[str, Span | None], Entry] = {}
        self.changed: list[Entry] = []
        self.expire = stage.window is not None or stage.emit.expires
        """Whether entries expire: then an entry without a timer has expired."""

    def at(self, row: int, span: Span | None) -> Entry:
        """Return the entry of a row's key and a window; create it if there is none.

        Args:
            row: A row of the key; it becomes the row of an entry that is created.
            span: The window; None without windows.
        """
        key = self._columns.key[row]
        # rows are sorted by key: usually the next record has the same one
        if key != self._key:
            self._key, self._windows = key, self._keys.setdefault(key, {})
        # an entry is never falsy: it has neither a length nor a truth value
        return self._windows.get(span) or self._created(key, span, row)

    def _created(self, key: str, span: Span | None, row: int) -> Entry:
        window = self._stage.window
        close = NEVER if window is None or span is None else window.close(span)
        entry = self._windows[span] = Entry(key, span, close, row)
        if window is not None and span is not None:
            entry.forget = window.forget(span)
        return entry

    def _take_row_over(self, entry: Entry) -> None:
        """Let an entry that is created again take over the state row of the removed one: one row per entry.

        Not before the entry has changed: an entry that only a suppressed record has created writes nothing,
        and then the row must say that the removed entry has expired.
        """
        removed = self._removed.pop((entry.key, entry.window), None)
        if removed is not None:
            entry.stored, removed.stored = True, False
            entry.stored_live, removed.stored_live = removed.stored_live, False

    def entries_of_key(self, row: int) -> list[Entry]:
        """Return all entries of a row's key."""
        # a copy: the caller may remove entries while it visits them
        return list(self._keys.get(self._columns.key[row], {}).values())

    def next_longer(self, entry: Entry) -> Entry | None:
        """Return the entry of the next longer window with the same start; None if there is none."""
        assert entry.window is not None
        start, end = entry.window
        windows = [
            other.window
            for other in self.entries_of_key(entry.row)
            if other.window and other.window[0] == start and other.window[1] > end
        ]
        return self._keys[entry.key][min(windows)] if windows else None

    def pending(self) -> list[Entry]:
        """Return the entries that hold records back, in the order of their timers, then by key and window."""
        pending = [entry for entries in self._keys.values() for entry in entries.values() if entry.pending]
        return sorted(
            pending, key=lambda entry: (self._timers.waits_until(entry), entry.key, entry.window or ())
        )

    def restore(self, row: int) -> None:
        """Restore an entry from its state row; of several rows of an entry the last one counts.

        Args:
            row: A state row. State comes before the records of its group.
        """
        stored = self._columns.stored
        start, end = stored["window_start"][row], stored["window_end"][row]
        entry = self.at(row, None if start is None else (start, end))
        entry.row = row
        entry.stored = True
        entry.timestamp = self._columns.timestamp[row]
        entry.accumulator, entry.emitted = self._values.restore(row)
        if self._stage.remembers_hashes:
            entry.emitted = stored["digest"][row]
        entry.pending = entry.stored_pending = stored["pending"][row] or 0
        entry.bytes = entry.stored_bytes = stored["bytes"][row] or 0
        entry.since = stored["since"][row]
        entry.emitted_timestamp = stored["emitted_timestamp"][row]
        if entry.emitted_timestamp is None and entry.emitted is not None:
            # rows of the column rule for an exact `change`: they are written only with an emission
            entry.emitted_timestamp = entry.timestamp
        if self._stage.emit.remembers_flush:
            entry.flushed_at = stored["flushed_at"][row]
        if self._stage.ttl is not None:
            entry.expires_at = stored["expires_at"][row]
        entry.stored_live = stored["live"][row]
        self._restore_fence(entry, row)
        self._restore_timer(entry, stored["due_at"][row])

    def _restore_timer(self, entry: Entry, due: int | None) -> None:
        entry.due = NEVER
        if due is not None:
            self._timers.restore(entry, due)
        elif self.expire and not entry.stored_live:
            self._drop(entry)  # the row says that it has expired
        self.note_pending(entry)

    def _restore_fence(self, entry: Entry, row: int) -> None:
        entry.group = None  # all parts of an exploded record are in one batch
        entry.fence_row = row if self._is_replay and self._by_root else None
        if self._by_offset:
            entry.fence = self._columns.position(row)
        elif self._by_root:
            entry.fence = self._columns.root(row)

    def repeats(self, entry: Entry, row: int) -> bool:
        """Return whether the entry has had the row's record already.

        By offset, only an earlier batch can have had it: within a batch, no offset comes twice. In a replay
        no record is a repetition, and fences stay where they are (`kernel.stage.Batch`).

        Args:
            entry: An entry with a fence, or without one: then nothing is repeated.
            row: A record.
        """
        if entry.fence is None or self._is_replay:
            return False
        if self._by_offset:
            # the cheap test first: usually a record is past the fence
            later = self._columns.offset[row] > entry.fence[2]
            return not later and repeats(self._columns.position(row), entry.fence)
        # parts that are exploded from one record have one root: they do not repeat each other
        position = self._columns.position(row)
        return repeats(self._columns.root(row), entry.fence) and entry.group != position

    def advance(self, entry: Entry, row: int) -> None:
        """Note the row's record as the last one that changed the entry."""
        if self._columns.table[row] is not None:
            # the record was applied before: its position does not move, so a repetition is still one
            entry.fence_row = entry.position_row if entry.fence_row is None else entry.fence_row
            entry.row = row
            self.touch(entry)
            return
        if not self._is_replay:
            entry.fence_row = None
        entry.row = row
        if self._by_root:
            entry.fence, entry.group = self._columns.root(row), self._columns.position(row)
        if not entry.changed:
            self.touch(entry)

    def merge_fences(self, merged: Entry, joined: list[Entry]) -> None:
        """Give a merged session the fences of the sessions that it is made of.

        Args:
            merged: The new session.
            joined: The sessions that it replaces.
        """
        if not self._by_root:
            merged.fence = max((entry.fence for entry in joined if entry.fence is not None), default=None)
        merged.fence_row = max((e.fence_row for e in joined if e.fence_row is not None), default=None)

    def touch(self, entry: Entry) -> None:
        """Note that the entry has changed."""
        if not entry.changed:
            entry.changed = True
            self.changed.append(entry)
            self._take_row_over(entry)

    def note_pending(self, entry: Entry) -> None:
        """Report to a bounded buffer that the records which the entry holds back have changed."""
        if self._buffer is not None:
            self._buffer.update(entry)

    def empty(self, entry: Entry) -> None:
        """Note that the entry holds nothing back any more."""
        entry.empty()
        self.note_pending(entry)

    def remove(self, entry: Entry) -> None:
        """Remove the entry; a state row will record the removal."""
        self._drop(entry)
        entry.removed = True
        self.touch(entry)
        if entry.stored:
            self._removed[entry.key, entry.window] = entry

    def savepoint(self, row: int) -> Callable[[], None]:
        """Return a function that undoes all later changes to the entries of the row's key.

        Args:
            row: A record that may turn out to be unusable.
        """
        key = self._columns.key[row]
        windows = self._keys.setdefault(key, {})
        before = dict(windows)
        removed = {place: entry for place, entry in self._removed.items() if place[0] == key}
        # entries change in place, so all attributes are saved; of what grows, a mark in constant time
        slots = [(entry, entry.slots()) for entry in (*before.values(), *removed.values())]
        marks = [(entry, self._values.mark(entry.accumulator)) for entry in before.values()]
        changed = len(self.changed)

        def roll_back() -> None:
            # entries that came since then leave the buffer; `Timers` skips them without a due time
            for entry in windows.values():
                entry.due = NEVER
                self.empty(entry)
            windows.clear()
            windows.update(before)
            for place in [place for place in self._removed if place[0] == key]:
                del self._removed[place]
            self._removed.update(removed)
            for entry, values in slots:
                entry.reset(values)
            for entry, mark in marks:
                entry.accumulator = self._values.undo(mark)
                self.note_pending(entry)
            del self.changed[changed:]

        return roll_back

    def clear(self) -> None:
        """Forget the group, which is finished."""
        self.changed.clear()
        self._keys.clear()
        self._key = None
        self._removed.clear()

    def _drop(self, entry: Entry) -> None:
        del self._keys[entry.key][entry.window]
        entry.due = NEVER
        self.empty(entry)
