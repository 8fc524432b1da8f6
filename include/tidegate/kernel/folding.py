"""One record in the entries of its key: in which windows, whether it is held back, and what is emitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidegate.kernel.bounded import Buffer
from tidegate.kernel.counts import Counts
from tidegate.kernel.equivalence import Exact
from tidegate.kernel.gate import Gate
from tidegate.kernel.json_text import serialize
from tidegate.kernel.outcome import Outcome
from tidegate.kernel.rows import REPLACED, TIMER, Columns
from tidegate.kernel.stage import Batch, Stage
from tidegate.kernel.state import NEVER, Entries, Entry
from tidegate.kernel.strategy import Sameness
from tidegate.kernel.tables import reason_of as reason_of_table
from tidegate.kernel.timers import Timers
from tidegate.kernel.unusable import RECORD_ERRORS, at_record, late_reason, reason_of
from tidegate.kernel.windows import Sliding, Span, Window


class Folding:
    """The entries, timers and results of one Arrow batch, to which `loop` gives record after record."""

    def __init__(
        self, stage: Stage, batch: Batch, rows: pa.RecordBatch, schema: pa.Schema, counts: Counts
    ) -> None:
        self._stage = stage
        self._emit = stage.emit
        self._counts = counts
        self.columns = Columns(rows, batch)
        self.values = stage.reduce.bind(rows)
        self.outcome = Outcome(rows, self.values, schema, stage.tells_before, stage.shows_windows)
        self.gate = Gate(stage, self.values, schema.field("value").type)
        self._window = stage.window
        self.timers = Timers(stage.emit, stage.window)
        self.buffer = Buffer(stage.bound, self.values, counts) if stage.bound else None
        self.entries = Entries(stage, self.columns, self.values, self.timers, self.buffer, batch.replay)
        self._closed_window: Span | None = None
        """The last window for which a record was too late."""
        self.cause = TIMER
        """The cause of what is emitted now: the row of a record, or as in `Outcome.emit`."""
        latest, collect = stage.reduce.newest_only, stage.reduce.lists_events
        # without a window, `latest` is one record's value; in a window it depends on all of its records
        self._ignores_nulls = not stage.reduce.takes_nulls
        self._newest_only = latest and stage.window is None
        self._forgets_suppressed = latest and stage.emit.forgets_suppressed
        self._empties = stage.empties
        # emissions are remembered if they may be retracted or compared: events never are
        aggregates = self._ignores_nulls and not collect
        emptied = aggregates and stage.emit.empties and stage.window is None
        self._retracts = stage.emit.remembers_emissions and not (collect or emptied)
        self.retracts = bool(self.columns.change)
        # a final value must not be emitted twice
        self._final = stage.emit.is_final
        self._accumulates = self._final and stage.window is not None and stage.window.accumulates
        self._late_after = stage.emit.late_after_ms
        self._counts_bytes = stage.emit.max_text_bytes is not None
        self._ending = stage.emit.ending(stage, self.values, rows)
        self._spaces_emissions = stage.emit.spaces_emissions
        self._ends_with = stage.emit.ends_with(self.values)
        self._remembers_flush = stage.emit.remembers_flush
        self._traces = batch.trace
        self._ttl = stage.ttl
        # a value that is not emitted may change the state all the same, unless it leaves no trace
        self._same_value: Sameness | None = None
        if stage.ttl is not None and not self._forgets_suppressed:
            self._same_value = Exact().bind(self.values, tuple(schema.field("value").type.names))

    def used(self, row: int, timestamp: int, now: int) -> Sequence[str]:
        """Apply a record that must be usable. Raises one of RECORD_ERRORS, with its position."""
        try:
            return self._fates(row, timestamp, now)
        except RECORD_ERRORS as error:
            raise at_record(error, self._stage, self.columns.position(row)) from error

    def usable(self, row: int, timestamp: int, now: int) -> Sequence[str]:
        """Apply a record, or quarantine it as if it had never come: in all of its windows, or in none."""
        # in a hopping window the record may fail after it was counted in earlier windows
        counts = self._counts.copy()
        savepoints = [self.entries.savepoint(row), self.outcome.savepoint(self.columns.key[row])]
        if self.buffer is not None:
            savepoints.append(self.buffer.savepoint())
        try:
            return self._fates(row, timestamp, now)
        except RECORD_ERRORS as error:
            for roll_back in savepoints:
                roll_back()
            self._counts.clear()
            self._counts.update(counts)
            self.outcome.quarantine(row, reason_of(error))
            return ("quarantined",)

    def described(self, row: int) -> Any:
        """Return a record's own value for people."""
        return self.columns.value(row)

    def _fates(self, row: int, timestamp: int, now: int) -> Sequence[str]:
        """Apply a record, and return what became of it in each window."""
        if self._ignores_nulls and self.values.null[row]:
            return ("ignored",)
        if self._late_after is not None and now - timestamp >= self._late_after and self._may_be_late(row):
            return (self._late(None),)
        if self.retracts and self.columns.change[row] == REPLACED:
            return (self._take_back(self.entries.at(row, None), row, timestamp),)
        if self._window is None:
            return (self._take(self.entries.at(row, None), row, timestamp, now),)
        if self._window.merges:
            return (self._in_session(self._window, row, timestamp, now),)
        if isinstance(self._window, Sliding):
            return self._in_sliding(self._window, row, timestamp, now)
        return self._in_windows(self._window, row, timestamp, now)

    def _in_windows(self, window: Window, row: int, timestamp: int, now: int) -> Sequence[str]:
        fates = []
        for span in window.spans(timestamp):
            if window.is_late(span, now):
                fates.append(self._late(span))
            else:
                fates.append(self._take(self.entries.at(row, span), row, timestamp, now))
        return fates

    def _in_sliding(self, window: Sliding, row: int, timestamp: int, now: int) -> Sequence[str]:
        """Fold a record into the windows of its key that contain it, and add the windows that it defines."""
        last = window.from_start(timestamp)
        if window.is_late(last, now):
            return (self._late(last),)
        entries = self.entries.entries_of_key(row)
        containing = [entry for entry in entries if entry.window and window.joins(entry.window, timestamp)]
        # before windows are added: a repetition must change nothing
        if any(self.entries.repeats(entry, row) for entry in containing):
            return ("repeated",)
        fates = []
        for change in window.changes(entries, timestamp, self.values.copy):
            if window.is_late(change.window, now):
                fates.append(self._late(change.window))
                continue
            entry = self.entries.at(row, change.window)
            if change.contents is not None:
                entry.accumulator, entry.timestamp = change.contents
            if change.has_record:
                fates.append(self._take(entry, row, timestamp, now))
            else:
                self._take(entry, row, entry.timestamp, now, folds=False)
        return fates

    def _take(self, entry: Entry, row: int, timestamp: int, now: int, folds: bool = True) -> str:
        """Fold a record into an entry, unless it only makes the entry; return what became of it."""
        if entry.fence is not None and self.entries.repeats(entry, row):
            return "repeated"
        if self._emit.holds:
            return self._buffer_record(entry, row, timestamp, now, folds)
        return self._forward(entry, row, timestamp, now, folds)

    def _take_back(self, entry: Entry, row: int, timestamp: int) -> str:
        """Take back a row of a table whose next row, in the same group, says what it is now: emit nothing."""
        self._advance(entry, row, self.values.fold(entry.accumulator, row), timestamp)
        return "retracted"

    def _advance(self, entry: Entry, row: int, accumulator: Any, timestamp: int) -> None:
        entry.accumulator = accumulator
        if self._newest_only or timestamp > entry.timestamp:
            entry.timestamp = timestamp
        self.entries.advance(entry, row)

    def _buffer_record(self, entry: Entry, row: int, timestamp: int, now: int, folds: bool = True) -> str:
        """Fold the record in for strategies that hold values back, and flush if that fills the buffer."""
        size = self.values.event_size(row) if self._counts_bytes else 0
        if self._counts_bytes and self._emit.overflows([entry], size):
            # before the record is folded in: no emission may exceed `max_bytes`, unless one event does
            self._make_room(entry, now)
        accumulator = self.values.fold(entry.accumulator, row) if folds else entry.accumulator
        self._advance(entry, row, accumulator, timestamp)
        if self._ttl is not None:
            entry.expires_at = self._ttl.extended(entry, timestamp)
        restarts = entry.pending and self._emit.restarts
        if not entry.pending:
            entry.since = self._emit.starts_at(entry.timestamp, now)
        elif restarts:
            entry.since = max(entry.since, self._emit.starts_at(timestamp, now))
        if entry.pending and not self._emit.empties:
            self._counts["intermediate-result-suppression"] += 1
        entry.pending += 1
        entry.bytes += size
        self.entries.note_pending(entry)
        output = None if self.gate.same is None else self.values.output(entry.accumulator)
        reason = self._emit.on_record(entry, output, entry.timestamp, self.gate.same)
        if reason is None and self._ending is not None:
            reason = self._ending(entry, row)
        fate = "held" if reason is None else self._flush(entry, reason, now)
        # usually only the first record that waits starts the timer
        if reason is not None or entry.pending == 1 or restarts:
            self.timers.set(entry, now)
        return fate

    def _forward(self, entry: Entry, row: int, timestamp: int, now: int, folds: bool = True) -> str:
        """Fold the record in for strategies that emit a value with its record, or not at all."""
        before = self.values.output(entry.accumulator) if self._same_value else None
        accumulator = self.values.fold(entry.accumulator, row) if folds else entry.accumulator
        output = self.values.output(accumulator)
        newest = timestamp if self._newest_only or timestamp > entry.timestamp else entry.timestamp
        passes = self._passes(row, entry, output)
        refusal = self.gate.refusal(entry, output) if passes else None
        is_candidate = passes and refusal is None
        reason = self._emit.on_record(entry, output, newest, self.gate.same) if is_candidate else None
        if reason is not None and (table := self.columns.table[row]) is not None:
            reason = reason_of_table(table)
        fate = reason or (self._emit.suppressed if is_candidate else "refused" if passes else "filtered")
        waiting = entry.pending
        # a record that `change` suppresses writes no state: a batch costs what it changes
        advances = reason is not None or not self._forgets_suppressed or (waiting and is_candidate)
        if advances:
            self._advance(entry, row, accumulator, timestamp)
            # it replaces the value that waits, whether it is emitted itself or not
            self._counts["intermediate-result-suppression"] += bool(waiting)
            entry.empty()
        if reason is not None and self._spaces_emissions and now < self._emit.not_before(entry):
            entry.pending, entry.since = waiting + 1, now
            fate = "held"
        elif reason is not None:
            self._send(entry, output, now, reason)
        elif not passes:
            self._counts["filtered"] += 1
        elif refusal is not None:
            self.outcome.refuse(entry, row, output, newest, refusal)
        elif fate == "suppressed" and output is not None:
            self._counts["idempotent-update-skip"] += 1
        if (fate == reason and self._remembers_flush) or bool(waiting) != bool(entry.pending):
            self.timers.set(entry, now)
        if self.entries.expire and (entry.due == NEVER or (self._emit.expires and reason is not None)):
            self.timers.set(entry, now)
        if self._ttl is not None and advances and (reason or waiting or self._is_other(before, output)):
            entry.expires_at = self._ttl.extended(entry, timestamp)
            self.timers.set(entry, now)
        if reason is not None and self._ends_with is not None and self._ends_with(output):
            entry.expire()
        return fate

    def expect(self, row: int, since: int) -> None:
        """Let a key wait for its first record. The row of a table has a value, whose columns are null.

        Args:
            row: The row of the table.
            since: The time from which its silence counts, in epoch ms.
        """
        entry = self.entries.at(row, None)
        entry.accumulator, entry.timestamp = self.values.fold(None, row), since
        entry.row, entry.pending, entry.since = row, 1, since
        self.entries.touch(entry)
        self.timers.set(entry, since)
        self._counts["expected"] += 1

    def _is_other(self, before: Any, output: Any) -> bool:
        """Return whether a record that is not emitted has changed the value that the state has."""
        if self._same_value is None or before is None or output is None:
            return self._same_value is not None and before is not output
        return not self._same_value(before, output, 0, 0)

    def expire(self, entry: Entry, at: int) -> None:
        """Remove an entry's state at the end of its time to live; a value that returns is new.

        Args:
            at: The end, in epoch ms.
        """
        if self._ttl is not None and self._ttl.emit == "deletion" and entry.emitted is not None:
            self.outcome.emit(entry, None, at, at, self.cause, "expired")
        self._counts["expired"] += 1
        # in place: its position stays, as after a deletion, so that a repetition is still one
        entry.expire()
        self.entries.touch(entry)

    def _passes(self, row: int, entry: Entry, output: Any) -> bool:
        """Return whether `where` accepts an output; a record's own value was tested before."""
        if self._newest_only and self.columns.passes[row] is False:
            return False
        return self._stage.where is None or self.gate.passes(entry, output)

    def _in_session(self, window: Window, row: int, timestamp: int, now: int) -> str:
        """Open a session with a record, or extend one, or join several into one."""
        joined, span = self._joined(window, row, timestamp)
        # a final value is not emitted twice, so no record may join a session that is over
        if window.is_late(span, now) or (self._final and window.close(span) <= now):
            return self._late(span)
        # before sessions are merged: a repetition must change nothing
        if any(self.entries.repeats(entry, row) for entry in joined):
            return "repeated"
        alone = span == (timestamp, timestamp)
        entry = self.entries.at(row, span) if alone else self._merged(joined, row, span, now)
        fate = self._take(entry, row, timestamp, now)
        if not alone or entry.due > entry.close:
            self.timers.set(entry, now)
        return fate

    def keep_late(self, row: int, timestamp: int, now: int) -> None:
        """Quarantine or emit a record that has just come too late for all of its windows."""
        window = self._closed_window
        assert self._window is not None
        assert window is not None
        if self._stage.on_late == "emit":
            self.outcome.emit_late(row, self.columns.key[row], window, now)
            return
        reason = late_reason(window, self._window.close(window), now - timestamp)
        self.outcome.quarantine(row, reason, "late-quarantined")

    def _may_be_late(self, row: int) -> bool:
        return self._emit.may_be_late(self.entries.at(row, None))

    def _late(self, window: Span | None) -> str:
        """Count a record as too late for one window, or too late to decide whether it is a repetition."""
        self._closed_window = window
        self._counts["late-record-drop"] += 1
        return "late"

    def _joined(self, window: Window, row: int, timestamp: int) -> tuple[list[Entry], Span]:
        """Return the sessions that a record belongs to, oldest first, and their common span with it.

        A session that is over and only waits for its emission is among them if it has exactly that span:
        there cannot be two.
        """
        near = [
            (entry, entry.window)
            for entry in self.entries.entries_of_key(row)
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
                self.outcome.emit(entry, None, newest, now, self.cause, "merged")
        accumulator = joined[0].accumulator
        for entry in joined[1:]:
            accumulator = self.values.merge(accumulator, entry.accumulator)
        # `remove` empties entries, so what they hold back is read before
        parts = [(entry, entry.pending, entry.since, entry.bytes) for entry in joined]
        for entry in joined:
            self.entries.remove(entry)
        merged = self.entries.at(row, span)
        merged.accumulator = accumulator
        merged.timestamp = max(entry.timestamp for entry in joined)
        merged.pending = sum(pending for _, pending, _, _ in parts)
        merged.since = min((since for _, pending, since, _ in parts if pending), default=-1)
        merged.bytes = sum(size for *_, size in parts)
        merged.flushed_at = max((e.flushed_at for e in joined if e.flushed_at is not None), default=None)
        self.entries.merge_fences(merged, joined)
        return merged

    def _flush(self, entry: Entry, reason: str, at: int) -> str:
        """Emit what is held back, unless it deletes nothing, `where` rejects it or it is refused, and empty
        the buffer. Return the reason, or why nothing is emitted.

        `at`: the epoch ms at which this counts as having happened. Raises what values can cause
        (`RECORD_ERRORS`).
        """
        output, fate = self.values.output(entry.accumulator), reason
        if not self.gate.passes(entry, output):
            self._counts["filtered"] += 1
            fate = "filtered"
        elif (refusal := self.gate.refusal(entry, output)) is not None:
            self.outcome.refuse(entry, entry.row, output, entry.timestamp, refusal)
            fate = "refused"
        elif output is None and entry.emitted is None:
            fate = self._emit.suppressed  # consumers have nothing that could be deleted
        elif (self._accumulates or reason in self._emit.only_if_changed) and not self._differs(entry, output):
            self._counts["idempotent-update-skip"] += 1
            fate = self._emit.suppressed
        else:
            self._send(entry, output, at, reason)
        if self._accumulates:
            self._hand_over(entry)
        if self._empties:
            self._empty(entry)
        if self._remembers_flush:
            entry.flushed_at = at
        self.entries.empty(entry)
        self.entries.touch(entry)
        return fate

    def _repeat(self, entry: Entry, reason: str, at: int) -> str:
        """Repeat an emitted value with this time as its timestamp, unless `where` rejects it now, or an
        expectation refuses it, which has refused it with its record. Return as `_flush`.
        """
        output, fate = self.values.output(entry.accumulator), reason
        if not self.gate.passes(entry, output):
            fate = "filtered"
        elif self.gate.refusal(entry, output) is not None:
            fate = "refused"
        else:
            self.outcome.emit(entry, output, at, at, self.cause, reason)
            entry.emitted_timestamp = at
            entry.emitted = output
        entry.flushed_at = at
        self.entries.touch(entry)
        return fate

    def flush_apart(self, entry: Entry, reason: str, at: int) -> None:
        """Flush when no record at hand is the cause: an error names the entry and the reason instead.

        Raises one of RECORD_ERRORS if the emission cannot be made.
        """
        try:
            # before a flush, which may empty the entry
            output = self.values.output(entry.accumulator) if self._traces else None
            if self._emit.repeats_by_clock and not entry.pending:
                fate = self._repeat(entry, reason, at)
            else:
                fate = self._flush(entry, reason, at)
            if self._traces and fate not in (reason, "refused"):
                self.outcome.trace(entry.row, fate, at, self._unsent(entry, output))
        except RECORD_ERRORS as error:
            window = "" if entry.window is None else f" in the window {list(entry.window)}"
            what = f"{error.what} (when the key {entry.key!r}{window} goes out, by {reason})"
            raise type(error)(what, error.fix) from error

    def _unsent(self, entry: Entry, output: Any) -> str:
        """Return JSON text of a value that was due and is not emitted: no record has it as its fate."""
        value = self.gate.described_output(output)
        description = {"value": value, "known": [], "unsent": True, **self.gate.described_window(entry)}
        return serialize(description).decode()

    def forget_emission(self, entry: Entry) -> None:
        """Forget when the entry emitted last: the time in which it emits nothing again is over."""
        entry.flushed_at = None
        self.entries.touch(entry)

    def _make_room(self, entry: Entry, now: int) -> None:
        """Emit what has no room beside a record. If that fails, the record is not to blame."""
        try:
            self.flush_apart(entry, "bytes", now)
        except RECORD_ERRORS as error:
            raise FlushFailed(error) from error

    def _send(self, entry: Entry, output: Any, at: int, reason: str) -> None:
        if self._accumulates:
            # what a shorter window has emitted is not the value that this one replaces
            entry.emitted = None
        self.outcome.emit(entry, output, entry.timestamp, at, self.cause, reason)
        entry.emitted_timestamp = entry.timestamp
        if self._retracts:
            hashed = self.gate.hashed
            entry.emitted = self.gate.remembered(output, entry.timestamp) if hashed else output
        if self._remembers_flush:
            # only for a least time between emissions, a deleted key is remembered
            entry.flushed_at = at if output is not None or self._spaces_emissions else None
        if self._empties:
            self._empty(entry)

    def _hand_over(self, entry: Entry) -> None:
        """Let the next longer window compare its result with the last one that was emitted."""
        following = self.entries.next_longer(entry)
        if following is not None:
            following.emitted, following.emitted_timestamp = entry.emitted, entry.emitted_timestamp
            self.entries.touch(following)

    def _differs(self, entry: Entry, output: Any) -> bool:
        """Return whether an output differs from the last emitted one."""
        if output is None or entry.emitted is None:
            return output is not entry.emitted
        last = entry.emitted_timestamp or 0
        return self.gate.same is None or not self.gate.same(entry.emitted, output, last, entry.timestamp)

    @staticmethod
    def _empty(entry: Entry) -> None:
        entry.accumulator = None
        entry.timestamp = -1


class FlushFailed(Exception):
    """A flush failed whose events came before the record at hand, which must not be quarantined for it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error
