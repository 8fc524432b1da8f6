"""A stage over a history of batches, one record at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tests.kernel.model.entry import Entry, merged
from tests.kernel.model.grammar import Condition, Settings, settings_of
from tests.kernel.model.limits import natural_due, over_bound, overflows, reached, trigger_times
from tests.kernel.model.outlet import Outlet
from tests.kernel.model.records import Batch, BufferFull, Partition, Position, Record, Refused, Value, Window
from tests.kernel.model.values import Folded, equivalent, fold, same, selected
from tests.kernel.model.windows import closes_at, is_late, reaches, union, windows_at

BUFFERING = ("time_limit", "interval", "threshold", "quiet", "any")


class Buffered(NamedTuple):
    """The buffered records since they were last emitted, and the entries that have them."""

    records: int
    entries: int


@dataclass(frozen=True)
class Step:
    """A record, and its partition's time before it and with it."""

    record: Record
    before: int
    now: int


class Model:
    """`conditions` gives each `where`, `sql` and `python` of the stage a meaning:
    `where(row)`, `sql(old, new)`, `python(old, new)`, by their text. `expected(row)`: whether a value breaks
    no expectation.
    """

    def __init__(
        self,
        stage: Mapping[str, Any],
        deduplicate: str = "offset",
        conditions: Mapping[str, Condition] | None = None,
        expected: Condition | None = None,
    ) -> None:
        self.settings = settings_of(stage, conditions or {}, expected)
        self.deduplicate = deduplicate
        self.out = Outlet(self.settings)
        self.emissions = self.out.emissions
        self.refused = self.out.refused
        self.counts = self.out.counts
        self._entries: list[Entry] = []
        self._last_results: dict[tuple[str, Partition | None, int], Value] = {}
        self._stream_times: dict[Partition, int] = {}
        self._clocks: list[tuple[int, frozenset[Partition]]] = []
        self._batch = 0

    # -- a batch ----------------------------------------------------------------------------------------

    def apply(self, batch: Batch) -> None:
        """One batch; raises BufferFull when the stage says so, after which the model is of no use."""
        self._batch += 1
        for step in self._in_order(self._timed(batch.records)):
            self._handle(step)
        if batch.clock is not None:
            # Quote: at the end of each batch its clock is applied, so an idle key or partition still fires
            self._clocks.append((batch.clock, batch.cut))
        # Quote: fire every timer of every entry with due <= end time of the entry's partition
        self._fire(lambda entry: self._time_of(entry.partition))

    def drain(self) -> None:
        """Quote: `tidegate drain` flushes all

        In the order of timers; what has none comes last.
        """
        if self.settings.on not in BUFFERING and not self.settings.duration("at_most_every"):
            return
        waiting = [entry for entry in self._entries if entry.pending]
        for entry in sorted(waiting, key=lambda entry: (entry.due is None, entry.due or 0, entry.start)):
            self._flush(entry, "drained", self._time_of(entry.partition))

    def buffered(self) -> Buffered:
        """Return what waits for a timer, a count or a close."""
        waiting = [entry.pending for entry in self._entries if entry.pending]
        return Buffered(sum(waiting), len(waiting))

    def live(self) -> set[tuple[str, Window | None]]:
        """Key and window of each entry of which anything is left."""
        return {(entry.key, entry.window) for entry in self._entries if self._is_live(entry)}

    def _is_live(self, entry: Entry) -> bool:
        if entry.window is not None or entry.pending:
            return True  # an entry whose window is over has been removed
        if self._between(entry):
            return True
        if entry.folded and fold(self.settings, entry.folded) is not None:
            return True
        if self.settings.emit.get("since") == "last_flush" and entry.last_flush is not None:
            # Quote: since the key's `last_flush` (never flushed: first event)
            return True
        # Quote: a deletion is emitted as a null value if the key had been emitted. Nothing else can delete.
        return entry.emitted is not None and (
            self.settings.reduce == "latest" or self.settings.on != "threshold"
        )

    def _time_of(self, partition: Partition) -> int:
        """Quote: Stream time of a topic-partition is the largest timestamp seen in it so far.
        `clock: run`: the time of a partition is the larger of its stream time and the clocks of the batches
        so far
        Quote: A batch that leaves records of its interval unread (`max_records`) applies no clock to the
        partitions in which it leaves them
        """
        stream_time = self._stream_times.get(partition, -1)
        if self.settings.clock == "stream":
            return stream_time
        return max([stream_time, *(clock for clock, cut in self._clocks if partition not in cut)])

    def _timed(self, records: Iterable[Record]) -> list[Step]:
        """Quote: the largest timestamp seen in it so far, records that are dropped later included"""
        steps = []
        for record in sorted(records, key=_by_position):
            before = self._time_of(record.home)
            stream_time = self._stream_times.get(record.home, -1)
            self._stream_times[record.home] = max(stream_time, record.timestamp)
            steps.append(Step(record, before, self._time_of(record.home)))
        return steps

    def _in_order(self, steps: list[Step]) -> list[Step]:
        """Quote: Records of one key are taken by (topic-partition, offset); where a key's records sit in
        several partitions, by (timestamp, topic, partition, offset)
        """
        if self.settings.bounded:
            # Quote: each record handled in (topic, partition, offset) order
            return steps
        ordered = []
        for key in sorted({step.record.key for step in steps}):
            of_key = [step for step in steps if step.record.key == key]
            if len({step.record.home for step in of_key}) > 1:
                self.counts["keys-in-several-partitions"] += 1
                of_key.sort(key=lambda step: (step.record.timestamp, *_by_position(step.record)))
            ordered += of_key
        return ordered

    def _handle(self, step: Step) -> None:
        """Quote: A. fire every timer of k's entries with due <= before, in order (due, window start);
        B. apply the record; C. fire every timer of k's entries with due <= now
        """
        record, home = step.record, self._home(step.record)
        self._fire(lambda _: step.before, record.key, home)
        if self.settings.on == "quiet":
            # a silence that has ended between two records of the key is one, whoever made the time pass
            self._fire(lambda _: record.timestamp - 1, record.key, home)
        if any(
            entry.key == record.key and entry.expires is not None and entry.expires <= record.timestamp
            for entry in self._entries
        ):
            # Quote: If a value returns after the expiry, it counts as new: whoever made the time pass
            self._fire(lambda _: record.timestamp, record.key, home)
        self._apply(step)
        self._fire(lambda _: step.now, record.key, home)
        if self.settings.bounded:
            # Quote: after step C for ALL keys of the partition (their timers fire at `now` too)
            self._fire(lambda _: step.now, home=home)
            self._keep_bound(record.home, step.now)

    def _home(self, record: Record) -> Partition | None:
        """Quote: state and buffer belong to the topic-partition (emit_early and shut_down)"""
        return record.home if self.settings.bounded else None

    # -- timers -----------------------------------------------------------------------------------------

    def _fire(
        self, until: Callable[[Entry], int], key: str | None = None, home: Partition | None = None
    ) -> None:
        """Fire all due timers of a key, of a topic-partition, or of all, the earliest first."""
        while True:
            due = [
                (at, entry.key, entry.start, closing, entry)
                for entry in self._entries
                if key in (None, entry.key) and home in (None, entry.home)
                for at, closing in self._timers(entry)
                if at <= until(entry)
            ]
            if not due:
                return
            at, _, _, closing, entry = min(due, key=lambda timer: timer[:4])
            if closing:
                self._close(entry, at)
            elif at == entry.ends and not entry.pending:
                self._expire(entry, at)
            elif self.settings.on == "window_close":
                self._early(entry, at)
            elif self.settings.on == "change" and entry.pending:
                self._flush(entry, "at_most_every", at)
            elif self.settings.on == "change" and entry.emitted is None:
                entry.last_out = None
            elif self.settings.on == "change":
                self._beat(entry, at)
            else:
                self._flush(entry, self._elapsed(entry), at)

    def _timers(self, entry: Entry) -> list[tuple[int, bool]]:
        timers = [] if entry.due is None else [(entry.due, False)]
        if self.settings.window and entry.window and not entry.expired:
            timers.append((closes_at(self.settings.window, entry.window), True))
        if entry.ends is not None and not entry.pending:
            timers.append((entry.ends, False))
        if not entry.pending and (end := self._between(entry)):
            # a deleted key is only remembered until it may emit again
            timers += [(end, False)] if all(end < at for at, _ in timers) else []
        heartbeat = self.settings.duration("heartbeat")
        if self.settings.clock == "run" and heartbeat and not entry.pending and entry.emitted is not None:
            # Quote: under `clock: run` the value is also emitted by the clock, without a record, each time
            # that much has passed
            assert entry.last_out is not None
            beat = entry.last_out + heartbeat
            timers += [(beat, False)] if all(beat < at for at, _ in timers) else []
        return timers

    def _elapsed(self, entry: Entry) -> str:
        """Quote: the reason names the trigger that fired"""
        if self.settings.on == "any":
            return min(trigger_times(self.settings, entry), key=lambda timer: timer[0])[1]
        return _ELAPSED[self.settings.on]

    def _between(self, entry: Entry) -> int | None:
        """Return when a key that emitted a deletion last may emit again; None for other keys."""
        wait = self.settings.duration("at_most_every")
        is_deleted = entry.emitted is None and entry.last_out is not None
        return entry.last_out + wait if wait and is_deleted and entry.last_out is not None else None

    def _beat(self, entry: Entry, at: int) -> None:
        """The value once more, if it may go out as it is now."""
        value = fold(self.settings, entry.folded)
        if value is not None and self.out.passes(value, entry.window) and self.out.is_expected(value):
            self.out.emit(entry, value, at, "heartbeat", at)
        entry.last_out = at

    def _expire(self, entry: Entry, at: int) -> None:
        """Quote: removes a key's state; the user chooses whether the expiry emits a deletion"""
        if self.settings.deletes and entry.emitted is not None:
            self.out.emit(entry, None, at, "expired", at)
        self.counts["expired"] += 1
        # its position stays: what was applied before is a repetition all the same
        entry.folded, entry.emitted, entry.last_out, entry.last_flush = [], None, None, None
        entry.expires = entry.ends = None

    def _lives_on(self, entry: Entry, step: Step, changed: bool) -> None:
        """Quote: 7 days after the last record that *changed* it (a suppressed record does not extend it)"""
        if not self._is_live(entry):
            entry.expires = entry.ends = None
        elif changed and self.settings.ttl_ms:
            end = step.record.timestamp + self.settings.ttl_ms
            entry.expires = end if entry.expires is None else max(entry.expires, end)
            entry.ends = max(entry.expires, step.now)

    def _close(self, entry: Entry, at: int) -> None:
        """Quote: For `window_close` this timer emits. For the others it is silent; an entry that still
        buffers something under time_limit/interval stays until that is out; under `threshold` the buffered
        content is flushed at close (reason `window_close`)
        """
        entry.expired = True
        if self.settings.on == "window_close":
            # Quote: at close, once, if the value is not null
            self._send_final(entry, at)
        elif self.settings.on == "threshold" and entry.pending:
            self._flush(entry, "window_close", at)
            return
        elif entry.pending and self.settings.on in (*BUFFERING, "change"):
            return
        self._remove(entry)

    def _send_final(self, entry: Entry, at: int) -> None:
        """Send a result; that of a cumulating window only if it differs from the last one that went out for
        a shorter window of the same start.
        """
        assert entry.window
        assert self.settings.window
        place = (entry.key, entry.home, entry.window[0])
        value = fold(self.settings, entry.folded)
        last = self._last_results.get(place)
        is_candidate = (
            value is not None and self.out.passes(value, entry.window) and self.out.is_expected(value)
        )
        if (
            self.settings.window.kind == "cumulating"
            and last is not None
            and is_candidate
            and same(last, value)
        ):
            self.out.counts["idempotent-update-skip"] += 1
        elif self.out.send(entry, "window_close", at):
            self._last_results[place] = value

    def _early(self, entry: Entry, at: int) -> None:
        """Quote: nothing is emitted early if the value has not changed since the last early emission"""
        value = fold(self.settings, entry.folded)
        is_candidate = (
            value is not None and self.out.passes(value, entry.window) and self.out.is_expected(value)
        )
        if is_candidate and not self._is_new(entry, value):
            self.counts["idempotent-update-skip"] += 1
        else:
            self.out.send(entry, "early", at)
        entry.pending, entry.since, entry.due = 0, None, None

    def _is_new(self, entry: Entry, value: Any, settings: Settings | None = None) -> bool:
        if value is None or entry.emitted is None:
            return value is not entry.emitted
        times = (entry.emitted_timestamp, self.out.timestamp(entry))
        return not equivalent(settings or self.settings, entry.emitted, value, times)

    def _flush(self, entry: Entry, reason: str, at: int) -> None:
        """Emit what is buffered, and drop an entry that only waited for that."""
        self.out.send(entry, reason, at)
        entry.pending, entry.since, entry.due = 0, None, None
        entry.ends = None if entry.ends is None else max(entry.ends, at)
        if self.settings.on == "threshold":
            # Quote: A flush empties the content: collect -> [], aggregates -> start anew, latest -> nothing
            entry.folded = []
            entry.last_flush = at
        if not self._is_live(entry):
            entry.expires = entry.ends = None
        if entry.expired:
            self._remove(entry)

    def _remove(self, entry: Entry) -> None:
        self._entries = [other for other in self._entries if other is not entry]

    # -- a record ---------------------------------------------------------------------------------------

    def _apply(self, step: Step) -> None:
        record = step.record
        if record.value is None and self.settings.reduce != "latest":
            # Quote: for aggregates and `collect` it is ignored and counted
            self.counts.update(["used", "tombstones"])
            return
        outcomes = self._offer(step)
        if "taken" in outcomes:
            self.counts["used"] += 1
            self.counts["tombstones"] += record.value is None
        elif "duplicate" in outcomes:
            # Quote: `deduplicated` += 1 if no entry took it and at least one dropped it as a duplicate
            self.counts["deduplicated"] += 1
        else:
            # Quote: If all its windows were late: `expired-window-record-drop` += 1
            self.counts["expired-window-record-drop"] += 1

    def _offer(self, step: Step) -> list[str]:
        """Return the record's fate in each of its windows: taken, duplicate or late."""
        windows = self.settings.window
        if windows is None:
            return [self._offer_to_window(step, None)]
        if windows.kind == "session":
            return [self._offer_to_session(step)]
        return [self._offer_to_window(step, window) for window in windows_at(windows, step.record.timestamp)]

    def _offer_to_window(self, step: Step, window: Window | None) -> str:
        if self._drops_as_late(window, step.now):
            return "late"
        existing = [entry for entry in self._of_key(step.record) if entry.window == window]
        if any(self._repeats(step.record, entry) for entry in existing):
            return "duplicate"
        self._accept(step, replace(existing[0]) if existing else self._fresh(step.record, window), existing)
        return "taken"

    def _offer_to_session(self, step: Step) -> str:
        """Quote: candidates = live sessions of k that overlap [ts-gap, ts+gap]; merged = union with [ts, ts];
        late: dropped, nothing merged
        """
        record, windows = step.record, self.settings.window
        assert windows
        near = [
            (entry, entry.window)
            for entry in sorted(self._of_key(record), key=lambda entry: entry.start)
            if entry.window and reaches(windows, entry.window, record.timestamp)
        ]
        window = union([span for entry, span in near if not entry.expired], record.timestamp)
        # an expired session only waits to go out; but there cannot be two entries of one key and window
        candidates = [entry for entry, span in near if not entry.expired or span == window]
        if self._drops_as_late(window, step.now):
            return "late"
        if any(self._repeats(record, entry) for entry in candidates):
            return "duplicate"
        if overflows(self.settings, [folded for entry in candidates for folded in entry.folded]):
            # sessions that have no room in one value go out one by one before they are joined
            for entry in candidates:
                if entry.pending:
                    self._flush(entry, "bytes", step.now)
        if window == (record.timestamp, record.timestamp) and candidates:
            # Quote: If merged == [ts,ts] and a candidate [ts,ts] exists, it is just updated.
            self._accept(step, replace(candidates[0], expired=False), candidates)
        else:
            self._accept(step, merged(candidates, self._fresh(record, window), self._batch), candidates)
        return "taken"

    def _drops_as_late(self, window: Window | None, now: int) -> bool:
        """Quote: dropped and counted per record and window"""
        if window is None or self.settings.window is None:
            return False
        # what went out as final at that instant must not come again
        final = self.settings.on == "window_close" and closes_at(self.settings.window, window) <= now
        if not final and not is_late(self.settings.window, window, now):
            return False
        self.counts["late-record-drop"] += 1
        return True

    def _of_key(self, record: Record) -> list[Entry]:
        home = self._home(record)
        return [entry for entry in self._entries if entry.key == record.key and entry.home == home]

    def _fresh(self, record: Record, window: Window | None) -> Entry:
        return Entry(record.key, window, self._home(record), record.home)

    def _position(self, record: Record) -> Position:
        """Quote: offset: topic, partition, offset; root: that of the first entry of the chain"""
        return record.root if self.deduplicate == "root" else record.position

    def _repeats(self, record: Record, entry: Entry) -> bool:
        """Quote: a record at or before the position that last changed the key's state (same topic-partition)
        is dropped. If the root's topic or partition differs from what the state holds, start over with the
        new one. Rows that come from one and the same source record count as one: they never shut each other
        out.
        """
        topic, partition, offset = self._position(record)
        return any(
            (topic, partition) == position[:2] and offset <= position[2]
            for position in self._used_positions(record, entry)
        )

    def _used_positions(self, record: Record, entry: Entry) -> Iterable[Position]:
        """The positions to compare with.

        A batch has no offset twice, so `offset` looks at what was known before it: the records of a key in
        several partitions go by timestamp, and one that a later offset overtook must not be lost.
        """
        if self.deduplicate == "offset":
            return entry.known_before(self._batch)
        if self.deduplicate == "none" or entry.taken == (self._batch, record.position):
            return ()
        return (entry.position,) if entry.position else ()

    def _accept(self, step: Step, entry: Entry, replaced: list[Entry]) -> None:
        """The record joins `entry`, which takes the place of what was there."""
        value = selected(self.settings, step.record.value)
        leaves_no_trace = self.settings.on == "change" and self.settings.reduce == "latest"
        if leaves_no_trace and value is not None and not self.out.passes(value, entry.window):
            # Quote: a value that does not pass is as if it had not come (for latest: state unchanged)
            self.counts["filtered"] += 1
            return
        if leaves_no_trace and value is not None and not self.out.is_expected(value):
            newest = max(
                [step.record.timestamp, *(folded.timestamp for folded in entry.folded if entry.window)]
            )
            self.out.refuse(Refused(entry.key, value, newest, entry.window, step.record.position))
            return
        if merges := bool(replaced) and entry.taken is None:
            self._take_back(replaced, step.now)
        if entry.pending and overflows(self.settings, [*entry.folded, Folded(value, step.record.timestamp)]):
            # Quote: a flush by count or bytes at the partition's time when the record came
            self._flush(entry, "bytes", step.now)
        entry.take(step.record, value, self._position(step.record), self._batch)
        before = fold(self.settings, entry.folded[:-1]) if entry.folded[:-1] else None
        went_out = self._decide(entry, step)
        after = fold(self.settings, entry.folded) if entry.folded else None
        waits = self.settings.on in BUFFERING
        self._lives_on(entry, step, went_out or waits or (not leaves_no_trace and not same(before, after)))
        if went_out or merges or not leaves_no_trace:
            # Quote: Unchanged: for latest the state is untouched (position, timestamp, value as before)
            for other in replaced:
                self._remove(other)
            self._entries.append(entry)

    def _take_back(self, sessions: list[Entry], now: int) -> None:
        """Quote: each removed one whose last emission was a non-null value first emits a null with its own
        old window and its own timestamp (reason `merged`), even when its window equals the merged one (not
        with `collect`: what it sent are events, not a value to take back)
        """
        for session in sessions:
            if session.emitted is not None:
                self.out.emit(session, None, session.emitted_timestamp, "merged", now)

    # -- whether it goes out ----------------------------------------------------------------------------

    def _decide(self, entry: Entry, step: Step) -> bool:
        """Whether something went out because of this record alone."""
        if self.settings.on == "update":
            # Quote: every applied record
            return self.out.send(entry, self._reason(entry), step.now)
        if self.settings.on == "change":
            return self._send_change(entry, step)
        self._buffer(entry, step)
        change = next((trigger for trigger in self.settings.triggers if trigger.on == "change"), None)
        if change is not None and self._is_new(entry, fold(self.settings, entry.folded), change):
            self._flush(entry, self._reason(entry), step.now)
            return True
        early = self.settings.emit.get("early") or {}
        if "on" in early and self._is_new(entry, fold(self.settings, entry.folded)):
            self._early(entry, step.now)
        if self.settings.on == "threshold" and (reason := reached(self.settings, entry)):
            self._flush(entry, reason, step.now)
            return True
        return False

    def _reason(self, entry: Entry) -> str:
        """Quote: reasons: new (nothing emitted before or last emitted null), changed, deleted"""
        if fold(self.settings, entry.folded) is None:
            return "deleted"
        # collected events are no value that replaces another: they are always new
        return "new" if entry.emitted is None or self.settings.reduce == "collect" else "changed"

    def _send_change(self, entry: Entry, step: Step) -> bool:
        """Quote: the value differs from the last *emitted* one"""
        value, timestamp = fold(self.settings, entry.folded), self.out.timestamp(entry)
        waited = bool(entry.pending)
        self.counts["intermediate-result-suppression"] += waited
        wait, before = self.settings.duration("at_most_every"), entry.pending
        entry.pending, entry.due = 0, None
        opens = entry.last_out + wait if wait and entry.last_out is not None else -1
        if self._would_change(entry) and step.now < opens:
            # Quote: the stage emits the last change at the end of the interval
            entry.pending, entry.due = before + 1, opens
            return True
        return self._send_at_once(entry, step, value, timestamp, opens) or waited

    def _would_change(self, entry: Entry) -> bool:
        """Whether the value differs from the last emitted one, and may go out."""
        value, timestamp = fold(self.settings, entry.folded), self.out.timestamp(entry)
        if value is None:
            return entry.emitted is not None
        if not self.out.passes(value, entry.window) or not self.out.is_expected(value):
            return False
        times = (entry.emitted_timestamp, timestamp)
        return entry.emitted is None or not equivalent(self.settings, entry.emitted, value, times)

    def _send_at_once(self, entry: Entry, step: Step, value: Any, timestamp: int, opens: int) -> bool:
        if value is None or entry.emitted is None:
            return self.out.send(entry, self._reason(entry), step.now)
        if not self.out.passes(value, entry.window):
            # Quote: for `change`, `where` is tested before comparing
            self.counts["filtered"] += 1
            return False
        if not self.out.is_expected(value):
            assert entry.taken
            self.out.refuse(Refused(entry.key, value, timestamp, entry.window, entry.taken[1]))
            return False
        if not equivalent(self.settings, entry.emitted, value, (entry.emitted_timestamp, timestamp)):
            return self.out.send(entry, "changed", step.now)
        heartbeat = self.settings.duration("heartbeat")
        overdue = heartbeat is not None and step.record.timestamp - entry.emitted_timestamp >= heartbeat
        if overdue and step.record.timestamp >= opens:
            # Quote: a record with an unchanged value goes out all the same when its timestamp is at least
            # that much after the last emission's
            return self.out.send(entry, "heartbeat", step.now)
        self.counts["idempotent-update-skip"] += 1
        return False

    def _buffer(self, entry: Entry, step: Step) -> None:
        """Quote: newer values replace it and do not restart the timer"""
        if entry.pending and self.settings.on != "threshold":
            # Quote: += 1 for each record applied to an entry that already buffers
            self.counts["intermediate-result-suppression"] += 1
        entry.pending += 1
        if entry.since is None:
            entry.since = self._start(entry, step)
        if self.settings.on == "quiet":
            # Each accepted record restarts the timer, as the gap of a session does: the newest one counts.
            entry.since, entry.due = max(entry.since, step.record.timestamp), None
        natural = natural_due(self.settings, entry)
        if entry.due is None and natural is not None:
            # Quote: A timer can't be due before it is set: due = max(natural due, `now` of the record)
            entry.due = max(natural, step.now)

    def _start(self, entry: Entry, step: Step) -> int:
        """Quote: `time_limit`: `after` the timestamp of the key's first buffered value; `interval`: the
        timestamp of the key's first value since it was last emitted. A value's timestamp is the largest
        folded into it (so does Kafka Streams). `threshold`: the timestamp of the `first_event`, its own;
        `arrival`: the partition's time when the first buffered event arrived, this event's own timestamp
        included.
        """
        if self.settings.on == "window_close":
            return step.now
        if self.settings.on != "threshold":
            return self.out.timestamp(entry)
        return step.now if self.settings.since == "arrival" else step.record.timestamp

    # -- bounded buffers --------------------------------------------------------------------------------

    def _keep_bound(self, home: Partition, now: int) -> None:
        """Quote: `emit_early` emits the oldest; `shut_down` fails the batch with `BufferFull`;
        evict by (timer, key)
        """
        buffer = self.settings.emit["buffer"]
        while over_bound(self.settings, self._waiting(home)):
            if buffer.get("when_full") == "shut_down":
                raise BufferFull(f"the buffer of {home} holds more than {buffer}")
            oldest = min(self._waiting(home), key=lambda entry: (entry.due, entry.key, entry.start))
            self.counts["buffer-evict"] += 1
            self._flush(oldest, "emit_early", now)

    def _waiting(self, home: Partition) -> list[Entry]:
        return [entry for entry in self._entries if entry.home == home and entry.pending]


_ELAPSED = {"time_limit": "time_limit", "interval": "interval", "threshold": "elapsed", "quiet": "quiet"}


def _by_position(record: Record) -> tuple[str, int, int, int]:
    return (record.topic, record.partition, record.offset, record.group)
