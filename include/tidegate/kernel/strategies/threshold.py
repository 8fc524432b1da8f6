"""`on: threshold`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from tidegate.expressions import Condition
from tidegate.expressions.rows import KEY
from tidegate.kernel.columns import Keys
from tidegate.kernel.options import BadOption, Count, Duration, Form, Sample, option
from tidegate.kernel.reduce import Values
from tidegate.kernel.reduce.collect import EVENTS, events_overhead
from tidegate.kernel.rows import Mask, mask
from tidegate.kernel.stage import Stage
from tidegate.kernel.state import NEVER, Entry
from tidegate.kernel.strategies.buffering import Buffering
from tidegate.kernel.strategy import CLOCK, Clock, Emit, Ending, Retype, Sameness, StateChange, Time
from tidegate.kernel.windows import Span, Window

_TIME_BYTES = len('"9999-12-31T23:59:59.999999Z"')


@dataclass(frozen=True)
class KeyColumn:
    """A column of the key. `kind` says how its text in a key of one column becomes JSON."""

    name: str
    kind: Literal["plain", "text", "time"] = "text"

    def json_bytes(self, text: str) -> int:
        """Return the bytes of the column's value as JSON; for a time, the bytes of the longest one.

        Example: `KeyColumn("id", "plain").json_bytes("7")` is 1.
        """
        if self.kind == "plain":
            return len(text)
        # the text of a time in the key can be shorter than the time that a message has
        return max(_text_bytes(text), _TIME_BYTES if self.kind == "time" else 0)


@dataclass(frozen=True)
class Envelope:
    """The columns that `with_key: true` adds: those of the key, and `window_start` and `window_end`."""

    key: tuple[KeyColumn, ...] = ()
    window: bool = False

    def json_bytes(self, key: str, window: Span | None) -> int:
        """Return the bytes that the columns add to the JSON object of a value, which has at least one column
        itself.

        Example: the key column `id` with 7 adds 7 bytes, `"id":7,`.
        """
        size = 0
        if len(self.key) == 1:
            size += _text_bytes(self.key[0].name) + len(":,") + self.key[0].json_bytes(key)
        elif self.key:
            size += len(key.encode()) - len("{}") + len(",")  # the canonical key is their JSON object
        if self.window and window is not None:
            size += len(f'"window_start":{window[0]},"window_end":{window[1]},')
        return size


def _text_bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode())


EventBytes = Annotated[int, Form("event bytes")]
"""Bytes of events, which only `reduce: collect` keeps."""

EventCondition = Annotated[Condition, Form("event condition")]
"""A condition over the columns of a record, of aggregates as they are with it, and `n`."""


@dataclass(frozen=True)
class Threshold(Buffering):
    """Emit when enough records, bytes or time have gathered, and then empty the buffer.

    Args:
        count: the number of records at which the buffer is emitted.
        max_bytes: the limit of the JSON text `{"events": […]}` with the columns of `envelope`. What has
            gathered is emitted before an event that does not fit beside it. Only a single larger event
            exceeds the limit.
        after_ms: the longest time that records wait.
        until: the buffer is emitted with the first record that fulfils it, which it contains. `n` is the
            number of its records, if no column has this name.
        since: what `after_ms` counts from: the `arrival` of the first event, which is its partition's time
            with it; the timestamp of that `first_event`; or the entry's `last_flush`.
        envelope: the columns that a sink's message has beside the events; None: none.
    """

    count: Count | None = option("So many records.", "count: 100", default=None)
    max_bytes: EventBytes | None = option(
        "So many bytes of events, with `reduce: collect`; no emission has more.",
        "max_bytes: 900_000",
        default=None,
    )
    after_ms: Duration | None = option(
        "So long, with any number of records.", "after: 30s", default=None, written="after"
    )
    until: EventCondition | None = option(
        "Until a record fulfils this condition, which is emitted with those before it.",
        "until: \"action = 'checkout'\"",
        default=None,
    )
    clock: Clock = option(CLOCK, "clock: stream", default="run")
    since: Literal["arrival", "first_event", "last_flush"] = option(
        "When `after` starts; by default `arrival`, under `clock: stream` `first_event`.",
        "since: first_event",
        default="first_event",
        computed=True,
    )
    envelope: Envelope | None = None
    on: ClassVar[str] = "threshold"
    when: ClassVar[str] = "When enough has gathered."
    reasons: ClassVar[Mapping[str, str]] = {
        "count": "enough records were held back",
        "bytes": "enough bytes were held back",
        "until": "a record fulfils the condition `until`",
        "elapsed": "the time since the first record came, or since the last flush, has passed",
        "window_close": "the window is over",
    }
    empties: ClassVar[bool] = True
    timer_reason: ClassVar[str] = "elapsed"
    sample: ClassVar[Sample] = Sample(
        """\
    {select}
    # The records of a key wait until there are 100 of them, or until the first has waited for a minute.
    reduce: collect
    emit: {on: threshold, count: 100, after: 60s}
""",
        "buffered records are emitted together after a minute",
        lambda first, last: [{"value": {EVENTS: [first, last]}, "timestamp": 2000}],
        tick_ms=61_000,
    )

    @classmethod
    def complete(cls, options: Mapping[str, Any], given: Collection[str]) -> Mapping[str, Any]:
        """Return the options with the default of `since`. Raises BadOption if there is no threshold."""
        if all(options[name] is None for name in ("count", "max_bytes", "after_ms", "until")):
            fix = 'Write `count: 100`, `max_bytes: 900_000`, `after: 60s` or `until: "<condition>"`.'
            raise BadOption("there is no threshold", fix)
        if "since" not in given:
            return {**options, "since": "arrival" if options["clock"] == "run" else "first_event"}
        if options["after_ms"] is None:
            raise BadOption("`since` says when `after` starts, and `after` is missing", "Write `after: 60s`.")
        return options

    @property
    def max_text_bytes(self) -> int | None:
        return self.max_bytes

    @property
    def full_at(self) -> int | None:
        return self.count

    def starts_at(self, timestamp: Time, now: Time) -> Time:
        """Return the start of the wait. By `arrival`, a late event is not due before others can gather with
        it.

        Args:
            timestamp: The first event's own timestamp.
            now: The time of its partition with it.
        """
        return now if self.waits_from_arrival else timestamp

    @property
    def waits_from_arrival(self) -> bool:
        return self.since == "arrival"

    def due_since(self, since: Time) -> Time:
        """Return when `after_ms` has passed; NEVER if it is not set."""
        return super().due_since(since) if self.after_ms is None else since + self.after_ms

    @property
    def remembers_flush(self) -> bool:
        """Whether it counts from the last flush: an event long after that is emitted at once."""
        return self.since == "last_flush"

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Return `count` or `bytes` if the record fills the buffer; `entry` contains it already."""
        if self.count is not None and entry.pending >= self.count:
            return "count"
        if self.max_bytes is None:
            return None
        return "bytes" if self._text_bytes([entry], 0) >= self.max_bytes else None

    def ending(self, stage: Stage, values: Values, rows: pa.RecordBatch) -> Ending | None:
        """Return the test of `until`, which returns `until` for a record that fulfils it."""
        if self.until is None:
            return None
        fulfils = _Until(self.until, stage, values, rows).fulfils
        return lambda entry, row: "until" if fulfils(entry, row) else None

    def overflows(self, entries: Sequence[Entry], event_bytes: int | None = None) -> bool:
        if self.max_bytes is None or not any(entry.pending for entry in entries):
            return False
        more = 0 if event_bytes is None else 1
        return self._text_bytes(entries, more) + (event_bytes or 0) > self.max_bytes

    def _text_bytes(self, entries: Sequence[Entry], more: int) -> int:
        """Return the bytes of the entries' events as one text, with the commas of `more` events."""
        events = events_overhead(sum(entry.pending for entry in entries) + more)
        last = entries[-1]
        envelope = 0 if self.envelope is None else self.envelope.json_bytes(last.key, last.window)
        return envelope + events + sum(entry.bytes for entry in entries)

    def due(self, entry: Entry) -> int:
        """Return when time has passed, or the end of the window if that is earlier."""
        return min(self._elapsed(entry), entry.close)

    def on_time(self, entry: Entry, at: int) -> str | None:
        """Return the reason for emitting what has gathered."""
        if not entry.pending:
            return None
        # both can be due at the same time: then the reason is `elapsed`
        return self.timer_reason if self._elapsed(entry) <= at else "window_close"

    def _elapsed(self, entry: Entry) -> int:
        if not entry.pending:
            return NEVER
        flushed = entry.flushed_at if self.since == "last_flush" else None
        return self.due_since(entry.since if flushed is None else flushed)

    def decides_plain(self, stage: Stage, value: pa.StructType) -> bool:
        """Return whether events are counted only, from one flush to the next."""
        if self.until is not None and self.until.column(pa.array([], value)) is None:
            return False
        counted = self.max_bytes is None and not self.remembers_flush and stage.bound is None
        return counted and stage.reduce.lists_events and self.is_decided_by_key(stage)

    def special(self, stage: Stage, keys: Keys) -> Iterator[Mask]:
        yield from super().special(stage, keys)
        if self.until is not None and self.until.column(keys.column("value")) is None:
            yield np.ones(keys.rows.num_rows, np.bool_)

    def last_rows(self, keys: Keys) -> Mask | None:
        if self.until is None:
            return None
        fulfilled = self.until.column(keys.column("value"))
        assert fulfilled is not None, "other keys are special"
        return mask(fulfilled.fill_null(False)) & ~keys.is_state

    def retyped(self, retype: Retype) -> Emit:
        return self if self.until is None else replace(self, until=retype(self.until, None))

    def with_envelope(self, envelope: Envelope | None) -> Emit:
        return replace(self, envelope=envelope)

    def longest_hold_ms(self, window: Window | None) -> int:
        return self.after_ms or 0

    def state_changes(self, after: Threshold) -> Iterator[StateChange]:
        """Yield `after` if it is new: buffered values have no timer."""
        if self.after_ms is None and after.after_ms is not None:
            why = "buffered values have no timer, and would wait for their key's next record"
            yield "after", None, f"{after.after_ms} ms", why


class _Until:
    """The condition `until`, bound to the records of one Arrow batch."""

    def __init__(self, condition: Condition, stage: Stage, values: Values, rows: pa.RecordBatch) -> None:
        self._condition = condition
        self._values = values
        self._aggregates = [(name, values.field(name)) for name in stage.reduce.by_name]
        self._events = rows.column("value")
        # computed for all records at once, if Arrow can
        self._verdicts = None if self._aggregates else condition.of_rows(self._events)
        self._columns: dict[str, list[Any]] | None = None

    def fulfils(self, entry: Entry, row: int) -> bool:
        """Return whether a record fulfils the condition; null is not true, and a deletion never does.

        Args:
            entry: The entry with the record.
            row: The record.

        Raises ConditionFailed if there is no result.
        """
        if self._values.null[row]:
            return False
        if self._verdicts is not None:
            return self._verdicts[row] is True
        columns = self._aggregated(entry) if self._aggregates else self._event(row)
        return self._condition.evaluate({"n": entry.pending, **columns, KEY: entry.key}) is True

    def _aggregated(self, entry: Entry) -> dict[str, Any]:
        output = self._values.output(entry.accumulator)
        return {name: read(output) for name, read in self._aggregates}

    def _event(self, row: int) -> dict[str, Any]:
        if self._columns is None:
            # each column becomes Python objects at most once
            columns = zip(self._events.type.names, self._events.flatten(), strict=True)
            self._columns = {name: column.to_pylist() for name, column in columns}
        return {name: column[row] for name, column in self._columns.items()}
