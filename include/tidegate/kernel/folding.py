"""The kernel, record by record: any reduce with any strategy, windows, timers and bounded buffers.

DESIGN, "Clock": a timer fires before the key's next record when another key's record reached it, after the
record when it is the key's own that reaches it, and otherwise at the end of the batch.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tidegate.kernel.bounded import Buffer
from tidegate.kernel.counts import Counts
from tidegate.kernel.gate import Gate
from tidegate.kernel.json_text import serialize
from tidegate.kernel.outcome import Outcome
from tidegate.kernel.rows import FIRST, LAST, STATE, TIMER, Columns
from tidegate.kernel.stage import Batch, Stage
from tidegate.kernel.state import NEVER, Entries, Entry
from tidegate.kernel.timers import Timers
from tidegate.kernel.unusable import RECORD_ERRORS, at_record, reason_of
from tidegate.kernel.windows import Span, Window

_REPETITIONS = ("repeated", "outdated")
"""The fates of records that repeat an earlier one."""


class Folding:
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
        self._columns = Columns(rows, batch)
        self._values = stage.reduce.bind(rows)
        self._outcome = Outcome(rows, self._values, schema, stage.tells_before)
        self._gate = Gate(stage, self._values, schema.field("value").type)
        self._window = stage.window
        self._timers = Timers(stage.emit, stage.window)
        self._buffer = Buffer(stage.bound, self._values, counts) if stage.bound else None
        self._entries = Entries(stage, self._columns, self._values, self._timers, self._buffer, batch.replay)
        self._cause = TIMER
        """The cause of what is emitted now: the row of a record, or as in `Outcome.emit`."""
        self._tally: dict[str, int] = defaultdict(int)
        latest, collect = stage.reduce.newest_only, stage.reduce.lists_events
        # without a window, `latest` is one record's value; in a window it depends on all of its records
        self._sets_aside = stage.on_error == "quarantine"
        self._ignores_nulls = not stage.reduce.takes_nulls
        self._newest_only = latest and stage.window is None
        self._forgets_suppressed = latest and stage.emit.forgets_suppressed
        self._empties = collect or stage.emit.empties
        # emissions are remembered if they may be retracted or compared: events never are
        aggregates = self._ignores_nulls and not collect
        emptied = aggregates and stage.emit.empties and stage.window is None
        self._retracts = not (collect or emptied)
        # a final value must not be emitted twice
        self._final = stage.emit.is_final
        self._late_after = stage.emit.late_after_ms
        self._counts_bytes = stage.emit.max_text_bytes is not None

    def run(self, group_ends: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Apply all rows; yields emission, state and trace rows.

        Raises BufferFull, and the errors of records (`RECORD_ERRORS`) if the stage stops for them.

        Args:
            group_ends: The row after the last one of each group, ascending.
        """
        start = 0
        with _without_garbage_collection():
            for end in group_ends:
                self._apply(start, end)
                self._finish_group()
                start = end
            self._count_fates()
            decided = list(self._outcome.batches(self._counts))
        yield from decided

    def _apply(self, start: int, end: int) -> None:
        """Apply a group's rows, its state first."""
        for row in range(self._restore(start, end), end):
            self._record(row)

    def _restore(self, start: int, end: int) -> int:
        """Restore a group's state, and return the row at which its records begin."""
        row = start
        while row < end and self._columns.kind[row] == STATE:
            self._entries.restore(row)
            row += 1
        if self._buffer is not None:
            self._buffer.begin()
        return row

    # records

    def _record(self, row: int) -> None:
        before, timestamp = self._columns.before[row], self._columns.timestamp[row]
        # another key's record has reached these timers: they fire before this record is applied
        if self._timers.next_due <= before:
            self._cause = TIMER
            self._fire(before)
        advances = timestamp > before
        now = timestamp if advances else before
        self._cause = FIRST if advances else row
        description = self._description(row) if self._batch.trace else ""
        try:
            fates = self._usable(row, timestamp, now) if self._sets_aside else self._used(row, timestamp, now)
        except _FlushFailed as failed:
            raise failed.error from None
        # this record's own time reaches them: they fire after it is applied
        if self._timers.next_due <= now:
            self._cause = TIMER if advances else row
            self._fire(now)
        # last: a timer that has just fired may have made room
        if self._buffer is not None and self._buffer.is_full:
            self._cause = row
            self._relieve(self._buffer, now)
        self._count(row, fates)
        for fate in fates if self._batch.trace else ():
            self._outcome.trace(row, fate, now, description)

    def _used(self, row: int, timestamp: int, now: int) -> Sequence[str]:
        """Apply a record that must be usable."""
        try:
            return self._fates(row, timestamp, now)
        except RECORD_ERRORS as error:
            raise at_record(error, self._stage, self._columns.position(row)) from error

    def _usable(self, row: int, timestamp: int, now: int) -> Sequence[str]:
        """Apply a record, or quarantine it as if it had never come: in all of its windows, or in none."""
        # in a hopping window the record may fail after it was counted in earlier windows
        counts = self._counts.copy()
        savepoints = [self._entries.savepoint(row), self._outcome.savepoint(self._columns.key[row])]
        if self._buffer is not None:
            savepoints.append(self._buffer.savepoint())
        try:
            return self._fates(row, timestamp, now)
        except RECORD_ERRORS as error:
            for roll_back in savepoints:
                roll_back()
            self._counts.clear()
            self._counts.update(counts)
            self._outcome.quarantine(row, reason_of(error))
            return ("quarantined",)

    def _description(self, row: int) -> str:
        """Return JSON text of the record's value, and of the state of its key's entries before it
        is applied.
        """
        described = map(self._gate.described, self._entries.entries_of_key(row))
        entries = [entry for entry in described if entry]
        return serialize({"value": self._columns.value(row), "known": entries}).decode()

    def _count(self, row: int, fates: Sequence[str]) -> None:
        """Count a record once, whatever became of it in each of its windows."""
        fate = fates[0]
        if len(fates) > 1:
            dropped = [window_fate for window_fate in fates if window_fate in ("late", "repeated")]
            # "repeated" sorts after "late": it wins
            fate = "used" if len(dropped) < len(fates) else max(dropped)
        if self._values.null[row] and fate not in ("late", *_REPETITIONS, "quarantined"):
            self._counts["tombstones"] += 1
        self._tally[fate] += 1

    def _count_fates(self) -> None:
        """Count what became of the records of all rows."""
        late, repeated = self._tally.pop("late", 0), sum(self._tally.pop(fate, 0) for fate in _REPETITIONS)
        self._tally.pop("quarantined", 0)  # counted with their rows
        self._counts["expired-window-record-drop"] += late
        self._counts["deduplicated"] += repeated
        self._counts["used"] += sum(self._tally.values())

    # one record in each of its windows

    def _fates(self, row: int, timestamp: int, now: int) -> Sequence[str]:
        """Apply a record, and return what became of it in each window."""
        if self._ignores_nulls and self._values.null[row]:
            return ("ignored",)
        if self._late_after is not None and now - timestamp >= self._late_after and self._may_be_late(row):
            return (self._late(),)
        if self._window is None:
            return (self._take(self._entries.at(row, None), row, timestamp, now),)
        if self._window.merges:
            return (self._in_session(self._window, row, timestamp, now),)
        return self._in_windows(self._window, row, timestamp, now)

    def _in_windows(self, window: Window, row: int, timestamp: int, now: int) -> Sequence[str]:
        fates = []
        for span in window.spans(timestamp):
            if window.is_late(span, now):
                fates.append(self._late())
            else:
                fates.append(self._take(self._entries.at(row, span), row, timestamp, now))
        return fates

    # one record in one entry

    def _take(self, entry: Entry, row: int, timestamp: int, now: int) -> str:
        """Fold a record into an entry, and return what became of it."""
        if entry.fence is not None and self._entries.repeats(entry, row):
            return "repeated"
        if self._emit.holds:
            return self._buffer_record(entry, row, timestamp, now)
        return self._forward(entry, row, timestamp, now)

    def _advance(self, entry: Entry, row: int, accumulator: Any, timestamp: int) -> None:
        entry.accumulator = accumulator
        if self._newest_only or timestamp > entry.timestamp:
            entry.timestamp = timestamp
        self._entries.advance(entry, row)

    def _buffer_record(self, entry: Entry, row: int, timestamp: int, now: int) -> str:
        """Fold the record in for strategies that hold values back, and flush if that fills the buffer."""
        size = self._values.event_size(row) if self._counts_bytes else 0
        if self._counts_bytes and self._emit.overflows([entry], size):
            # before the record is folded in: no emission may exceed `max_bytes`, unless one event does
            self._make_room(entry, now)
        self._advance(entry, row, self._values.fold(entry.accumulator, row), timestamp)
        if not entry.pending:
            # only the first record that waits starts the timer; newer ones do not restart it
            entry.since = self._emit.starts_at(entry.timestamp, now)
        elif not self._emit.empties:
            self._counts["intermediate-result-suppression"] += 1
        entry.pending += 1
        entry.bytes += size
        self._entries.note_pending(entry)
        reason = self._emit.on_record(entry, None, timestamp, None)
        if reason is not None:
            self._flush(entry, reason, now)
        if reason is not None or entry.pending == 1:
            self._timers.set(entry, now)
        return reason or "held"

    def _forward(self, entry: Entry, row: int, timestamp: int, now: int) -> str:
        """Fold the record in for strategies that emit a value with its record, or not at all."""
        accumulator = self._values.fold(entry.accumulator, row)
        output = self._values.output(accumulator)
        newest = timestamp if self._newest_only or timestamp > entry.timestamp else entry.timestamp
        passes = self._passes(row, entry, output)
        refusal = self._gate.refusal(entry, output) if passes else None
        is_candidate = passes and refusal is None
        reason = self._emit.on_record(entry, output, newest, self._gate.same) if is_candidate else None
        fate = reason or (self._emit.suppressed if is_candidate else "refused" if passes else "filtered")
        # a record that `change` suppresses writes no state: a batch costs what it changes
        if reason is not None or not self._forgets_suppressed:
            self._advance(entry, row, accumulator, timestamp)
        if reason is not None:
            self._send(entry, output, now, reason)
            if self._emit.repeats_by_clock:
                entry.flushed_at = None if output is None else now
                self._timers.set(entry, now)
        elif not passes:
            self._counts["filtered"] += 1
        elif refusal is not None:
            self._outcome.refuse(entry, row, output, newest, refusal)
        elif fate == "suppressed" and output is not None:
            self._counts["idempotent-update-skip"] += 1
        if self._entries.expire and (entry.due == NEVER or (self._emit.expires and reason is not None)):
            self._timers.set(entry, now)
        return fate

    def _passes(self, row: int, entry: Entry, output: Any) -> bool:
        """Return whether `where` accepts an output; a record's own value was tested before."""
        if self._newest_only and self._columns.passes[row] is False:
            return False
        return self._stage.where is None or self._gate.passes(entry, output)

    # sessions

    def _in_session(self, window: Window, row: int, timestamp: int, now: int) -> str:
        """Open a session with a record, or extend one, or join several into one."""
        joined, span = self._joined(window, row, timestamp)
        # a final value is not emitted twice, so no record may join a session that is over
        if window.is_late(span, now) or (self._final and window.close(span) <= now):
            return self._late()
        # before sessions are merged: a repetition must change nothing
        if any(self._entries.repeats(entry, row) for entry in joined):
            return "repeated"
        alone = span == (timestamp, timestamp)
        entry = self._entries.at(row, span) if alone else self._merged(joined, row, span, now)
        fate = self._take(entry, row, timestamp, now)
        if not alone or entry.due > entry.close:
            self._timers.set(entry, now)
        return fate

    def _may_be_late(self, row: int) -> bool:
        return self._emit.may_be_late(self._entries.at(row, None))

    def _late(self) -> str:
        """Count a record as too late for one window, or too late to decide whether it is a repetition."""
        self._counts["late-record-drop"] += 1
        return "late"

    def _joined(self, window: Window, row: int, timestamp: int) -> tuple[list[Entry], Span]:
        """Return the sessions that a record belongs to, oldest first, and their common span with it.

        A session that is over and only waits for its emission is among them if it has exactly that span:
        there cannot be two.
        """
        near = [
            (entry, entry.window)
            for entry in self._entries.entries_of_key(row)
            if entry.window and window.joins(entry.window, timestamp)
        ]
        spans = [(timestamp, timestamp), *(span for entry, span in near if entry.due <= entry.close)]
        span = (min(first for first, _ in spans), max(last for _, last in spans))
        joined = [entry for entry, entry_span in near if entry.due <= entry.close or entry_span == span]
        return sorted(joined, key=lambda entry: entry.window or ()), span

    def _merged(self, joined: list[Entry], row: int, span: Span, now: int) -> Entry:
        """Replace several entries by one, and retract what consumers have of them.

        If their events do not fit into one value, they are emitted before, each under its own window.
        """
        if self._counts_bytes and self._emit.overflows(joined):
            for entry in joined:
                if entry.pending:
                    self._make_room(entry, now)
        for entry in joined:
            entry.row = row
            # consumers have a value under a window that no longer exists: it is deleted first
            if entry.emitted is not None and self._retracts:
                newest = max(entry.timestamp, entry.emitted_timestamp or 0)
                self._outcome.emit(entry, None, newest, now, self._cause, "merged")
        accumulator = joined[0].accumulator
        for entry in joined[1:]:
            accumulator = self._values.merge(accumulator, entry.accumulator)
        # `remove` empties entries, so what they hold back is read before
        parts = [(entry, entry.pending, entry.since, entry.bytes) for entry in joined]
        for entry in joined:
            self._entries.remove(entry)
        merged = self._entries.at(row, span)
        merged.accumulator = accumulator
        merged.timestamp = max(entry.timestamp for entry in joined)
        merged.pending = sum(pending for _, pending, _, _ in parts)
        merged.since = min((since for _, pending, since, _ in parts if pending), default=-1)
        merged.bytes = sum(size for *_, size in parts)
        merged.flushed_at = max((e.flushed_at for e in joined if e.flushed_at is not None), default=None)
        self._entries.merge_fences(merged, joined)
        return merged

    # going out

    def _flush(self, entry: Entry, reason: str, at: int) -> None:
        """Emit what is held back, unless it deletes nothing, `where` rejects it or it is refused, and empty
        the buffer.

        `at`: the epoch ms at which this counts as having happened. Raises what values can cause
        (`RECORD_ERRORS`).
        """
        output = self._values.output(entry.accumulator)
        if not self._gate.passes(entry, output):
            self._counts["filtered"] += 1
        elif (refusal := self._gate.refusal(entry, output)) is not None:
            self._outcome.refuse(entry, entry.row, output, entry.timestamp, refusal)
        elif output is not None or entry.emitted is not None:
            self._send(entry, output, at, reason)
        if self._empties:
            self._empty(entry)
        if self._emit.remembers_flush:
            entry.flushed_at = at
        self._entries.empty(entry)
        self._entries.touch(entry)

    def _repeat(self, entry: Entry, reason: str, at: int) -> None:
        """Repeat an emitted value with this time as its timestamp, unless `where` rejects it now, or an
        expectation refuses it, which has refused it with its record.
        """
        output = self._values.output(entry.accumulator)
        if self._gate.passes(entry, output) and self._gate.refusal(entry, output) is None:
            self._outcome.emit(entry, output, at, at, self._cause, reason)
            entry.emitted_timestamp = at
            entry.emitted = output
        entry.flushed_at = at
        self._entries.touch(entry)

    def _flush_apart(self, entry: Entry, reason: str, at: int) -> None:
        """Flush when no record at hand is the cause: an error names the entry and the reason instead."""
        try:
            if self._emit.repeats_by_clock:
                self._repeat(entry, reason, at)
            else:
                self._flush(entry, reason, at)
        except RECORD_ERRORS as error:
            window = "" if entry.window is None else f" in the window {list(entry.window)}"
            what = f"{error.what} (when the key {entry.key!r}{window} goes out, by {reason})"
            raise type(error)(what, error.fix) from error

    def _make_room(self, entry: Entry, now: int) -> None:
        """Emit what has no room beside a record. If that fails, the record is not to blame."""
        try:
            self._flush_apart(entry, "bytes", now)
        except RECORD_ERRORS as error:
            raise _FlushFailed(error) from error

    def _send(self, entry: Entry, output: Any, at: int, reason: str) -> None:
        self._outcome.emit(entry, output, entry.timestamp, at, self._cause, reason)
        entry.emitted_timestamp = entry.timestamp
        if self._retracts:
            hashed = self._gate.hashed
            entry.emitted = self._gate.remembered(output, entry.timestamp) if hashed else output
        if self._empties:
            self._empty(entry)

    @staticmethod
    def _empty(entry: Entry) -> None:
        entry.accumulator = None
        entry.timestamp = -1

    # timers

    def _fire(self, time: int) -> None:
        """Fire all timers of the group that a time has reached."""
        while (fired := self._timers.pop(time)) is not None:
            self._on_timer(*fired, time)

    def _on_timer(self, due: int, entry: Entry, time: int) -> None:
        """Fire an entry's timer; this counts as having happened when it was due."""
        # its session is over, and it still has to wait; or the timer was set before the stage was edited
        if (entry.pending or not self._entries.expire) and self._emit.due(entry) > due:
            # store the new timer: in the next batch the partition may be behind this time
            self._entries.touch(entry)
            self._timers.set(entry, due)
            return
        reason = self._emit.on_time(entry, due)
        if reason is not None and self._emit.holds:
            overtime = time - due
            self._counts["suppression-overtime-count"] += 1
            self._counts["suppression-overtime-sum"] += overtime
            self._counts.include({"suppression-overtime-min": overtime})
        if reason is not None:
            self._flush_apart(entry, reason, due)
        if reason is None or entry.close <= due:
            self._entries.remove(entry)
        else:
            self._timers.set(entry, due)

    def _relieve(self, buffer: Buffer, now: int) -> None:
        """Emit early what a full buffer cannot hold: first what would be emitted first anyway."""
        while buffer.is_full:
            buffer.require_early()
            self._counts["buffer-evict"] += 1
            self._flush_early(self._timers.first_pending(), "emit_early", now)

    def _flush_early(self, entry: Entry, reason: str, now: int) -> None:
        self._flush_apart(entry, reason, now)
        if entry.close <= now:
            self._entries.remove(entry)
        else:
            self._timers.set(entry, now)

    # the end of a group

    def _finish_group(self) -> None:
        """Fire what the end of the batch reaches, and store what has changed."""
        self._cause = TIMER
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
        self._cause = LAST
        for entry in self._entries.pending():
            self._flush_early(entry, "drained", self._columns.end(entry.row))

    def _store(self, entry: Entry) -> None:
        counts = self._counts
        if self._emit.holds and entry.pending and not self._counts_bytes:
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


class _FlushFailed(Exception):
    """A flush failed whose events came before the record at hand, which must not be quarantined for it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Turn off Python's garbage collection: it would search for cycles while all new objects are still
    needed.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
