"""The kernel, record by record: any reduce with any strategy, windows, timers and bounded buffers.

docs/semantics.md, "Timers": a timer fires before the key's next record when another key's record reached it,
after the record when it is the key's own that reaches it, and otherwise at the end of the batch. Where each
record starts the timer anew, it fires before a record that is beyond it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import pyarrow as pa

from tidegate.garbage import not_collected
from tidegate.kernel.bounded import Buffer
from tidegate.kernel.counts import Counts
from tidegate.kernel.folding import FlushFailed, Folding
from tidegate.kernel.json_text import serialize
from tidegate.kernel.rows import LAST, MOVED, REPLACED, STATE, TIMER, first_by
from tidegate.kernel.stage import Batch, Stage
from tidegate.kernel.state import NEVER, Entry
from tidegate.kernel.strategies.join import Joining
from tidegate.kernel.tables import ABSENT

_REPETITIONS = ("repeated", "outdated")
"""The fates of records that repeat an earlier one."""
_RETRACTED = ("retracted",)


class Loop:
    """A stage over one Arrow batch of whole groups: of keys, or, if its buffer is bounded, of partitions.

    Args:
        rows: Rows in the kernel's order, each group's state before its records.
        schema: The output schema.
        counts: Gets what became of the records.
    """

    def __init__(
        self, stage: Stage, batch: Batch, rows: pa.RecordBatch, schema: pa.Schema, counts: Counts
    ) -> None:
        self._stage = stage
        self._emit = stage.emit
        self._batch = batch
        self._counts = counts
        is_join = stage.window is not None and stage.window.pairs
        kind = Joining if is_join else Folding
        self._folding = folding = kind(stage, batch, rows, schema, counts)
        self._fates = folding.usable if stage.on_error == "quarantine" else folding.used
        self._columns = folding.columns
        self._values = folding.values
        self._outcome = folding.outcome
        self._gate = folding.gate
        self._timers = folding.timers
        self._buffer = folding.buffer
        self._entries = folding.entries
        self._tally: dict[str, int] = defaultdict(int)
        self._measures_at_end = stage.emit.max_text_bytes is None

    def run(self, group_ends: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Apply all rows; yields emission, state and trace rows.

        Raises BufferFull, and the errors of records (`RECORD_ERRORS`) if the stage stops for them.

        Args:
            group_ends: The row after the last one of each group, ascending.
        """
        start = 0
        with not_collected():
            for end in group_ends:
                self._apply(start, end)
                self._finish_group()
                start = end
            self._count_fates()
            decided = list(self._outcome.batches(self._counts))
        yield from decided

    def _apply(self, start: int, end: int) -> None:
        """Apply a group's rows, its state first."""
        first = self._restore(start, end)
        if self._stage.expects and self._batch.tables:
            first = self._expect(start, first, end)
        for row in range(first, end):
            self._record(row)

    def _expect(self, start: int, first: int, end: int) -> int:
        """Let a key that the table has wait for its first record, or forget one that it has no longer; return
        the row at which records begin.

        Args:
            start: The key's first row.
            first: The row after its state.
            end: The row after its last one.
        """
        existing = self._entries.entries_of_key(start)
        waiting = [entry for entry in existing if self._columns.comes_from_table(entry.row)]
        if first == end or self._columns.table[first] is None:
            for entry in waiting:
                self._entries.remove(entry)
            return first
        since = self._batch.since
        if since >= 0 and not any(entry.live for entry in existing):
            self._folding.expect(first, since)
        return first + 1

    def _restore(self, start: int, end: int) -> int:
        """Restore a group's state, and return the row at which its records begin."""
        row = start
        while row < end and self._columns.kind[row] == STATE:
            self._entries.restore(row)
            row += 1
        if self._buffer is not None:
            self._buffer.begin()
        return row

    def _record(self, row: int) -> None:
        before, timestamp = self._columns.before[row], self._columns.timestamp[row]
        # another key's record has reached these timers: they fire before this record is applied; and a record
        # beyond the end of its key's silence begins another one
        reached = max(before, timestamp - 1) if self._emit.restarts else before
        if self._timers.next_due <= reached:
            self._folding.cause = TIMER
            self._fire(reached)
        # a record at or after the end of its key's time to live finds no state
        if self._stage.ttl is not None and self._timers.next_due <= timestamp:
            self._end_state(row, timestamp)
        advances = timestamp > before
        now = timestamp if advances else before
        # a changed row of a table comes first at its instant, as the record that reaches it
        is_first = advances or self._columns.table[row] is not None
        self._folding.cause = first_by(row) if is_first else row
        description = self._description(row) if self._batch.trace else ""
        try:
            fates = self._fates(row, timestamp, now)
        except FlushFailed as failed:
            raise failed.error from None
        # once, and not once per window: each trace has the entries of all windows
        for fate in dict.fromkeys(fates) if self._batch.trace else ():
            self._outcome.trace(row, fate, now, description)
        # this record's own time reaches them: they fire after it is applied, its second row included
        if self._timers.next_due <= now and fates != _RETRACTED:
            self._folding.cause = TIMER if advances else row
            self._fire(now)
        # last: a timer that has just fired may have made room
        if self._buffer is not None and self._buffer.is_full:
            self._folding.cause = row
            self._relieve(self._buffer, now)
        if self._count(row, fates) == "late" and self._stage.on_late != "drop":
            self._folding.keep_late(row, timestamp, now)

    def _end_state(self, row: int, timestamp: int) -> None:
        """Fire all timers of a key whose state has ended before its record, which finds none."""
        entry = self._entries.at(row, None)
        if entry.expires_at is not None and entry.expires_at <= timestamp:
            self._folding.cause = TIMER
            self._fire(timestamp)

    def _description(self, row: int) -> str:
        """Return JSON text of the record's value, and of its key's entries before it is applied."""
        described = map(self._gate.described, self._entries.entries_of_key(row))
        entries = [entry for entry in described if entry]
        return serialize({"value": self._folding.described(row), "known": entries}).decode()

    def _count(self, row: int, fates: Sequence[str]) -> str:
        """Count a record once, whatever became of it in each of its windows, and return that fate."""
        fate = fates[0]
        if self._columns.table[row] is not None:
            self._counts["rejoined"] += 1  # it is no record of the input
            return fate
        if self._folding.retracts and self._columns.change[row] in (REPLACED, MOVED):
            self._tally["retracted"] += 1  # the row that adds counts for both
            return fate
        if len(fates) > 1:
            dropped = [window_fate for window_fate in fates if window_fate in ("late", "repeated")]
            # "repeated" sorts after "late": it wins
            fate = "used" if len(dropped) < len(fates) else max(dropped)
        if self._values.null[row] and fate not in ("late", *_REPETITIONS, "quarantined"):
            self._counts["tombstones"] += 1
        self._tally[fate] += 1
        return fate

    def _count_fates(self) -> None:
        """Count what became of the records of all rows."""
        late, repeated = self._tally.pop("late", 0), sum(self._tally.pop(fate, 0) for fate in _REPETITIONS)
        self._tally.pop("quarantined", 0)  # counted with their rows
        if self._folding.retracts:
            self._counts["retracted"] += self._tally.pop("retracted", 0)
        self._counts["expired-window-record-drop"] += late
        self._counts["deduplicated"] += repeated
        self._counts["used"] += sum(self._tally.values())

    def _fire(self, time: int) -> None:
        """Fire all timers of the group that a time has reached."""
        while (fired := self._timers.pop(time)) is not None:
            self._on_timer(*fired, time)

    def _on_timer(self, due: int, entry: Entry, time: int) -> None:
        """Fire an entry's timer; this counts as having happened when it was due."""
        # its session is over, and it still has to wait; or the timer was set before the stage was edited
        if (entry.pending or not self._entries.expire) and self._timers.due(entry) > due:
            # store the new timer: in the next batch the partition may be behind this time
            self._entries.touch(entry)
            self._timers.set(entry, due)
            return
        if self._stage.ttl is not None and self._stage.ttl.is_over(entry, due):
            self._folding.expire(entry, due)
            return
        reason = self._emit.on_time(entry, due)
        if reason is not None and self._stage.expects and self._columns.comes_from_table(entry.row):
            reason = ABSENT
        if reason is not None and entry.pending:
            overtime = time - due
            self._counts["suppression-overtime-count"] += 1
            self._counts["suppression-overtime-sum"] += overtime
            self._counts.include({"suppression-overtime-min": overtime})
        if reason is not None:
            self._folding.flush_apart(entry, reason, due)
        if entry.forget <= due or (reason is None and self._emit.expires):
            self._entries.remove(entry)
            return
        if reason is None and due < entry.close:
            self._folding.forget_emission(entry)
        self._timers.set(entry, due)

    def _relieve(self, buffer: Buffer, now: int) -> None:
        """Emit early what a full buffer cannot hold: first what would be emitted first anyway."""
        while buffer.is_full:
            buffer.require_early()
            self._counts["buffer-evict"] += 1
            self._flush_early(self._timers.first_pending(), "emit_early", now)

    def _flush_early(self, entry: Entry, reason: str, now: int) -> None:
        self._folding.flush_apart(entry, reason, now)
        if entry.forget <= now:
            self._entries.remove(entry)
        else:
            self._timers.set(entry, now)

    def _finish_group(self) -> None:
        """Fire what the end of the batch reaches, and store what has changed."""
        self._folding.cause = TIMER
        # each entry's partition has an end of its own; timers beyond it stay in the state row (`due_at`)
        while (fired := self._timers.pop(NEVER)) is not None:
            due, entry = fired
            end = self._columns.end(entry.row)
            if due <= end:
                self._on_timer(due, entry, end)
        if self._batch.drain and self._emit.drains:
            self._drain()
        for entry in self._entries.changed:
            self._store(entry)
        # no entry is in two groups, so memory is that of the largest group
        self._entries.clear()
        self._timers.clear()
        if self._buffer is not None:
            self._buffer.clear()

    def _drain(self) -> None:
        self._folding.cause = LAST
        for entry in self._entries.pending():
            if self._stage.expects and self._columns.comes_from_table(entry.row):
                continue  # nothing is held back of a key that has had no record
            self._flush_early(entry, "drained", self._columns.end(entry.row))

    def _store(self, entry: Entry) -> None:
        counts = self._counts
        if entry.pending and self._measures_at_end:
            # measured once per batch; only `max_bytes` needs it with each record
            entry.bytes = self._values.size(entry.accumulator)
        if not self._stage.keeps_values:
            entry.accumulator = None
        if entry.live:
            self._outcome.remember(entry, self._gate.hashed)
        # an entry that came and expired within the batch has no row to replace
        elif entry.stored or not entry.removed:
            self._outcome.expire(entry)
        # differences: `counts.running_totals` adds them to the totals before the batch
        counts["suppression-buffer-records"] += bool(entry.pending) - bool(entry.stored_pending)
        counts["suppression-buffer-bytes"] += entry.bytes - entry.stored_bytes
        counts["state-rows"] += entry.live - entry.stored_live
