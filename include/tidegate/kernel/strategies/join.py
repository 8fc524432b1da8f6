"""`join`: pair the records of two inputs whose timestamps are close to each other.

The rules are those of Kafka Streams' KStream-KStream joins. A record of the left side and one of the right
side match if they have the same key and the right one's timestamp is from `before` before the left one's to
`after` after it. Each record that can still match is an entry of its own: `Joining` pairs a record
with the entries of the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.counts import Counts
from tidegate.kernel.folding import Folding
from tidegate.kernel.json_text import encoder
from tidegate.kernel.options import BadOption, Delay, Duration, Form, option
from tidegate.kernel.reduce import Reduce, RowValues
from tidegate.kernel.rows import STATE
from tidegate.kernel.stage import Batch, Stage
from tidegate.kernel.state import Entry
from tidegate.kernel.strategy import CLOCK, Clock, Emit, StateChange
from tidegate.kernel.unusable import LATE
from tidegate.kernel.windows import Span, Window

IS_LEFT = "_is_left"
"""The column of a record's value that says which side the record is of. No emission has it."""
Side = Annotated[str, Form("side")]
"""The name of an input."""


@dataclass(frozen=True)
class JoinWindow(Window):
    """The time in which two records match. The span of an entry is its record's timestamp and a number, which
    is even on the left side, and tells records of one timestamp apart.
    """

    before_ms: int
    after_ms: int
    grace_ms: int
    pairs: ClassVar[bool] = True

    @property
    def open_ms(self) -> int:
        """The longest time from a record until none can match it any more, in milliseconds."""
        return max(self.before_ms, self.after_ms) + self.grace_ms + 1

    def close(self, span: Span) -> int:
        """Return the stream time from which no record matches that of an entry.

        Example: with `before` 3, `after` 5 and a grace of 2, the left record `(10, 0)` matches up to 17, so
        that it is over at 18.
        """
        return span[0] + (self.before_ms if span[1] % 2 else self.after_ms) + self.grace_ms + 1

    def joins(self, span: Span, timestamp: int) -> bool:
        """Return whether the record of an entry matches a record of the other side."""
        later, earlier = self.after_ms, self.before_ms
        if span[1] % 2:
            later, earlier = earlier, later
        return -earlier <= timestamp - span[0] <= later

    def described(self, span: Span) -> Mapping[str, Any]:
        """Return the side and the timestamp of an entry's record."""
        return {"side": "right" if span[1] % 2 else "left", "timestamp": span[0]}


@dataclass(frozen=True)
class Join(Emit):
    """Join the records of two inputs by key, if their timestamps are close to each other.

    Args:
        left: the name of the left input.
        right: the name of the right input.
        kind: `inner` emits pairs; `left` also the left records without a match; `outer` those of both sides.
        within_ms: how far apart the timestamps of a pair are at most; null if `before` and `after` say it.
        before_ms: how much earlier than the left record the right one may be.
        after_ms: how much later it may be.
        grace_ms: how much longer late records are accepted.
    """

    left: Side = option("The input on the left side.", "left: orders")
    right: Side = option("The input on the right side.", "right: payments")
    kind: Literal["inner", "left", "outer"] = option(
        "Which records without a match are emitted: none (`inner`), those of the `left` side, or all "
        "(`outer`).",
        "kind: left",
        default="inner",
    )
    within_ms: Duration | None = option(
        "How far apart the timestamps of a pair may be.", "within: 10m", default=None, written="within"
    )
    before_ms: Delay | None = option(
        "How much earlier than the left record the right one may be, if that is not `within`.",
        "before: 0s",
        default=None,
        written="before",
    )
    after_ms: Delay | None = option(
        "How much later than the left record the right one may be, if that is not `within`.",
        "after: 10m",
        default=None,
        written="after",
    )
    grace_ms: Delay = option(
        "How much longer a record that is out of order still finds its match.",
        "grace: 1m",
        default=0,
        written="grace",
    )
    clock: Clock = option(CLOCK, "clock: stream", default="run")
    on: ClassVar[str] = "join"
    when: ClassVar[str] = "With each pair, and when a record can have no match any more."
    reasons: ClassVar[Mapping[str, str]] = {
        "matched": "a record of the other side matches it",
        "unmatched": "no record of the other side has matched it, and its time is over",
        "unpaired": "not emitted: no record of the other side matches it yet",
    }
    timer_reason: ClassVar[str] = "unmatched"
    drains: ClassVar[bool] = False

    @classmethod
    def complete(cls, options: Mapping[str, Any], given: Collection[str]) -> Mapping[str, Any]:
        """Return the options with `before` and `after`. Raises BadOption without them, or for one input."""
        if options["left"] == options["right"]:
            fix = "Name two inputs. A second stage with the same fields can be the other side."
            raise BadOption(f"both sides are `{options['left']}`", fix)
        within = options["within_ms"]
        bounds = {name: options[name] for name in ("before_ms", "after_ms")}
        filled = {name: within if bound is None else bound for name, bound in bounds.items()}
        if None in filled.values():
            fix = "Write `within: 10m`, or both `before: 0s` and `after: 10m`."
            raise BadOption("it does not say how far apart the records of a pair may be", fix)
        if within is not None and None not in bounds.values():
            raise BadOption(
                "`within` has no effect beside `before` and `after`", "Leave `within` out, or one of them."
            )
        return {**options, **filled}

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.left, self.right)

    @property
    def window(self) -> JoinWindow:
        """The time in which two records match."""
        return JoinWindow(self.before_ms or 0, self.after_ms or 0, self.grace_ms)

    def emits_unmatched(self, is_left: bool) -> bool:
        """Return whether records of a side that have no match are emitted."""
        return self.kind == "outer" or (self.kind == "left" and is_left)

    def on_time(self, entry: Entry, at: int) -> str | None:
        """Return `unmatched` if the entry's record waits for a match; otherwise None."""
        return self.timer_reason if entry.pending else None

    def longest_hold_ms(self, window: Window | None) -> int:
        """Return the longest time until a record is emitted without a match; 0: no such are."""
        return 0 if self.kind == "inner" else self.window.open_ms

    def state_changes(self, after: Join) -> Iterator[StateChange]:
        why = "the records that wait are of another input"
        for name in ("left", "right"):
            if getattr(self, name) != getattr(after, name):
                yield name, getattr(self, name), getattr(after, name), why
        if self.kind != after.kind:
            yield "kind", self.kind, after.kind, "the records so far wait for another result"


@dataclass(frozen=True)
class Joined(Reduce):
    """The columns of two records. A record's value has those of its own side, and null in the others."""

    word: ClassVar[str] = "join"

    def computed(self, select: Mapping[str, str]) -> Mapping[str, str]:
        """Return the selected columns, and the side of the record."""
        return {**select, IS_LEFT: "`left` IS NOT NULL"}

    def emitted(self, computed: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(name for name in computed if name != IS_LEFT)

    def accumulator_type(self, value: pa.DataType) -> pa.DataType:
        """Return the type of the records' columns: an entry has one record."""
        return value

    def output_type(self, value: pa.DataType) -> pa.DataType:
        """Return the type of the records' columns without the side."""
        return pa.struct([field for field in value if field.name != IS_LEFT])

    def shown(self, state: pa.Table) -> pa.Table:
        """Return the records that wait, each with its side and with the columns of that side's record.

        The window of an entry is no window of the stage: its start is the record's timestamp.
        """
        values = state["value"].combine_chunks()
        is_left = pc.struct_field(values, IS_LEFT)
        columns = [field for field in values.type if field.name != IS_LEFT]
        of_people = pa.StructArray.from_arrays(
            [pc.struct_field(values, field.name) for field in columns], fields=columns, mask=values.is_null()
        )
        side = pc.if_else(is_left, "left", "right")
        shown = state.drop_columns(["value", "window_start", "window_end"])
        return shown.append_column("side", side).append_column("value", of_people)

    def bind(self, rows: pa.RecordBatch) -> JoinedValues:
        return JoinedValues(rows, self.output_type(rows.schema.field("value").type))


Output = tuple[int, int | None]
"""The places of two records that match, in any order: each has null in the columns of the other. None: there
is no match.
"""


class JoinedValues(RowValues):
    """Values in a pool: row i's value, of a record or of a state row, is at i. An output is two places."""

    pool = None  # the reference of an output is no place

    def __init__(self, rows: pa.RecordBatch, output: pa.StructType) -> None:
        is_state = pc.equal(rows.column("kind"), STATE)
        self._values = pc.if_else(is_state, rows.column("accumulator"), rows.column("value"))
        self._output = output
        self._columns: dict[str, list[Any]] = {}
        self._text = encoder(output)
        self.null = self._values.is_null().to_pylist()
        self._is_left = pc.struct_field(self._values, IS_LEFT).to_pylist()

    def is_left(self, row: int) -> bool:
        """Return whether a row's record is of the left side."""
        return bool(self._is_left[row])

    def output(self, accumulator: Any) -> Any:
        """Return the output of a record without a match."""
        return None if accumulator is None else (accumulator, None)

    def restore(self, row: int) -> tuple[Any, Any]:
        """Return the place of the state row's record. No emission of an entry replaces another one."""
        return (None if self.null[row] else row), None

    def field(self, name: str) -> Callable[[Any], Any]:
        column = self._columns.setdefault(name, pc.struct_field(self._values, name).to_pylist())

        def read(output: Output) -> Any:
            first, second = output
            return column[first] if second is None or column[first] is not None else column[second]

        return read

    def type_of(self, name: str) -> pa.DataType:
        return self._output.field(name).type

    def size(self, accumulator: Any) -> int:
        """Return the bytes of the JSON text that is emitted of a record without a match."""
        if accumulator is None:
            return 0
        value = self._values[accumulator].as_py()
        return len(self._text({field.name: value[field.name] for field in self._output}).encode())

    def event_size(self, row: int) -> int:
        return self.size(None if self.null[row] else row)

    def accumulator_array(self, accumulators: Sequence[Any]) -> pa.Array:
        return self._values.take(pa.array(accumulators, pa.int64()))

    def output_array(self, outputs: Sequence[Any]) -> pa.Array:
        places = zip(*(output or (None, None) for output in outputs), strict=True)
        first, second = (self._values.take(pa.array(place, pa.int64())) for place in places)
        columns = [
            pc.coalesce(pc.struct_field(first, field.name), pc.struct_field(second, field.name))
            for field in self._output
        ]
        missing = pa.array([output is None for output in outputs])
        return pa.StructArray.from_arrays(columns, fields=list(self._output), mask=missing)


class Joining(Folding):
    """Pairs each record with those of the other side, in place of folding it into the entry of its key.

    An entry is one record. It is `pending` as long as the record may be emitted without a match.
    """

    def __init__(
        self, stage: Stage, batch: Batch, rows: pa.RecordBatch, schema: pa.Schema, counts: Counts
    ) -> None:
        super().__init__(stage, batch, rows, schema, counts)
        assert isinstance(stage.emit, Join)
        assert isinstance(self.values, JoinedValues)
        self._join, self._pairs = stage.emit, self.values
        self._time: JoinWindow = stage.emit.window

    def described(self, row: int) -> Any:
        """Return the side of a record, and its columns; those of the other side are null."""
        value = self.columns.value(row)
        if value is None:
            return None
        side = "left" if value.pop(IS_LEFT) else "right"
        return {"side": side, **value}

    def _fates(self, row: int, timestamp: int, now: int) -> Sequence[str]:
        """Emit the pairs of a record, and let it wait for further ones."""
        if self.values.null[row]:
            return ("ignored",)
        entries = self.entries.entries_of_key(row)
        if any(self.entries.repeats(entry, row) for entry in entries):
            return ("repeated",)
        is_left = self._pairs.is_left(row)
        span = _free_span({entry.window for entry in entries}, timestamp, is_left)
        if self._time.is_late(span, now):
            return (self._late(span),)
        matches = [entry for entry in entries if self._matches(entry, is_left, timestamp)]
        own = self.entries.at(row, span)
        self._advance(own, row, self.values.fold(None, row), timestamp)
        if not matches and self._join.emits_unmatched(is_left):
            own.pending, own.since = 1, timestamp
            self.entries.note_pending(own)
        self.timers.set(own, now)
        # as in Kafka Streams' window stores: by timestamp, and then in the order in which they came
        fates = [
            self._pair(own, other, now) for other in sorted(matches, key=lambda entry: entry.window or ())
        ]
        return (min(fates, default="held" if own.pending else "unpaired", key=_FATES.index),)

    def keep_late(self, row: int, timestamp: int, now: int) -> None:
        """Quarantine a record that has just come too late to match any other one: a join emits none."""
        closed = self._time.close((timestamp, 0 if self._pairs.is_left(row) else 1))
        reason = (
            f"{LATE}: {now - timestamp} ms behind its partition; it could match others up to {closed - 1}"
        )
        self.outcome.quarantine(row, reason, "late-quarantined")

    def _matches(self, entry: Entry, is_left: bool, timestamp: int) -> bool:
        span = entry.window
        assert span is not None
        return is_left == bool(span[1] % 2) and self._time.joins(span, timestamp)

    def _pair(self, own: Entry, other: Entry, now: int) -> str:
        """Emit a pair unless `where` or an expectation excludes it; return what became of it."""
        if other.pending:
            self.entries.empty(other)
            self.entries.touch(other)
        output = (own.accumulator, other.accumulator)
        newest = max(own.timestamp, other.timestamp)
        if not self.gate.passes(own, output):
            self._counts["filtered"] += 1
            return "filtered"
        if (refusal := self.gate.refusal(own, output)) is not None:
            self.outcome.refuse(own, own.row, output, newest, refusal)
            return "refused"
        self.outcome.emit(own, output, newest, now, self.cause, "matched")
        return "matched"


_FATES = ("matched", "refused", "filtered", "held", "unpaired")
"""The fates of a record that is used: of several pairs, the first one counts."""


def _free_span(taken: set[Span | None], timestamp: int, is_left: bool) -> Span:
    """Return the span of a record that no other record of its key has."""
    number = 0 if is_left else 1
    while (timestamp, number) in taken:
        number += 2
    return timestamp, number
