"""`on: change`."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa

from tidegate.kernel.equivalence import Bytes, Equivalence, Exact, PythonEqual, SqlEqual
from tidegate.kernel.options import BadOption, Columns, Duration, Form, Sample, option
from tidegate.kernel.reduce import Values
from tidegate.kernel.state import Entry
from tidegate.kernel.strategies.at_once import FIRST_SEEN, first_seen
from tidegate.kernel.strategy import CLOCK, Clock, Emit, Marker, Retype, Sameness, StateChange
from tidegate.kernel.windows import Window
from tidegate.kernel.within import Within

EQUIVALENCES: tuple[type[Equivalence], ...] = (Exact, Bytes, Within, SqlEqual, PythonEqual)
"""The equivalences: a word, or a mapping whose first option names it."""


def _is_alone(ignore: Columns | None, options: Mapping[str, Any]) -> None:
    if ignore is not None and options.get("columns") is not None:
        raise BadOption("`columns` and `ignore` are both given", "Keep one: the other follows from it.")


def _goes_with_bytes(timestamp: bool, options: Mapping[str, Any]) -> None:
    if timestamp and options.get("equal", Bytes()) != Bytes():
        fix = "Write `equal: bytes`, or leave it out."
        raise BadOption("`timestamp: true` goes with `equal: bytes` only", fix)


def _can_be_hashed(state: str, options: Mapping[str, Any]) -> None:
    if state == "hash" and options.get("equal", Exact()).word is None:
        fix = "Use `state: value`, or `equal: exact` or `bytes`."
        raise BadOption("hashes can only be compared for equality, not by a distance or a condition", fix)


def _has_the_value(clock: str, options: Mapping[str, Any]) -> None:
    by_clock = clock == "run" and options.get("heartbeat_ms") is not None
    if by_clock and options.get("state") == "hash":
        fix = "Use `state: value`, or `clock: stream`, whose heartbeats come with records."
        raise BadOption("the clock cannot repeat a value if the state has only its hash", fix)


def _fits_between(at_most_every_ms: int | None, options: Mapping[str, Any]) -> None:
    if at_most_every_ms is None:
        return
    if options.get("state") == "hash":
        fix = "Use `state: value`: the last change waits in the state."
        raise BadOption("a change cannot wait for the end of `at_most_every` as a hash", fix)
    heartbeat_ms = options.get("heartbeat_ms")
    if heartbeat_ms is not None and heartbeat_ms < at_most_every_ms:
        fix = "Use a `heartbeat` that is at least as long, or leave it out."
        raise BadOption("the heartbeat would emit more often than `at_most_every` allows", fix)


def _sample_emissions(first: Mapping[str, Any], last: Mapping[str, Any]) -> list[dict[str, Any]]:
    emissions = [{"value": first, "timestamp": 1000}]
    # the records are the same if all of their columns have a type without a certain text
    return emissions if last == first else [*emissions, {"value": last, "timestamp": 3000}]


@dataclass(frozen=True)
class Change(Emit):
    """Emit a record whose value differs from the last emitted one of its key.

    It is compared with the last *emitted* value, so that slow drift is emitted at some point. In a stage,
    `columns` always lists the compared columns: those that the file lists, or all without `ignore`.
    """

    columns: Columns | None = option(
        "Compare only these columns. Null: all.", "columns: [isAvailable]", default=None
    )
    ignore: Columns | None = option(
        "Compare all columns but these.", "ignore: [updatedAt]", default=None, check=_is_alone
    )
    equal: Annotated[Equivalence, Form("equivalence")] = option(
        "When two values count as equal: `exact`, the same `bytes` as JSON, or one of the forms.",
        "equal: exact",
        default=Exact(),
    )
    timestamp: bool = option(
        "With `equal: bytes`: whether equal values also need equal timestamps.",
        "timestamp: true",
        default=False,
        check=_goes_with_bytes,
    )
    state: Literal["value", "hash"] = option(
        "Whether state has the emitted value, or only a hash of it.",
        "state: value",
        default="value",
        check=_can_be_hashed,
    )
    heartbeat_ms: Duration | None = option(
        "An unchanged value is emitted again so long after the last emission: "
        "with a record, and under `clock: run` also without one.",
        "heartbeat: 1h",
        default=None,
        written="heartbeat",
    )
    at_most_every_ms: Duration | None = option(
        "The first change is emitted at once, and the last change of so long a time at its end.",
        "at_most_every: 30s",
        default=None,
        written="at_most_every",
        check=_fits_between,
    )
    clock: Clock = option(CLOCK, "clock: stream", default="stream", check=_has_the_value, computed=True)
    on: ClassVar[str] = "change"
    when: ClassVar[str] = "With a record that changes the value."
    reasons: ClassVar[Mapping[str, str]] = {
        **FIRST_SEEN,
        "heartbeat": "unchanged, but the last emission was a heartbeat ago",
        "suppressed": "not emitted: the same as what last went out",
        "at_most_every": "the last change of an interval, at its end",
    }
    timer_reason: ClassVar[str] = "heartbeat"
    forgets_suppressed: ClassVar[bool] = True
    is_change: ClassVar[bool] = True
    only_if_changed: ClassVar[frozenset[str]] = frozenset({"at_most_every"})
    sample: ClassVar[Sample] = Sample(
        """\
    {select}
    reduce: latest
    # The stage emits a value only if it differs from the last emitted value of its key.
    emit: {on: change, equal: exact}
""",
        "an unchanged value is not emitted again",
        _sample_emissions,
        times_ms=(1000, 2000, 3000),
        suppresses=True,
    )

    @classmethod
    def complete(cls, options: Mapping[str, Any], given: Collection[str]) -> Mapping[str, Any]:
        """Return the options: with `at_most_every`, changes have timers, and `clock` is `run`."""
        by_default = "clock" not in given and options["at_most_every_ms"] is not None
        return {**options, "clock": "run"} if by_default else options

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Return `new`, `changed` or `deleted` if the value differs from the last emitted one; `heartbeat` if
        that was emitted long enough ago; else None.
        """
        if now is None or entry.emitted is None:
            return first_seen(entry, now)
        # the timestamp of the last emission, not of the last record: drift and heartbeats count from there
        last = entry.emitted_timestamp or 0
        if same is not None and not same(entry.emitted, now, last, timestamp):
            return "changed"
        overdue = self.heartbeat_ms is not None and timestamp - last >= self.heartbeat_ms
        # an unchanged value does not wait for the end of an interval: a later record is the heartbeat
        return self.timer_reason if overdue and timestamp >= self.not_before(entry) else None

    @property
    def spaces_emissions(self) -> bool:
        return self.at_most_every_ms is not None

    @property
    def remembers_flush(self) -> bool:
        """Whether the time of the last emission counts: for the next one, or for a heartbeat by the clock."""
        return self.spaces_emissions or self.repeats_by_clock

    def not_before(self, entry: Entry) -> int:
        """Return the end of the interval that the last emission has begun."""
        if self.at_most_every_ms is None or entry.flushed_at is None:
            return super().not_before(entry)
        return entry.flushed_at + self.at_most_every_ms

    @property
    def repeats_by_clock(self) -> bool:
        """Whether it has a heartbeat by the clock: an unchanged value is emitted without a record."""
        return self.clock == "run" and self.heartbeat_ms is not None

    def due(self, entry: Entry) -> int:
        """Return the end of the interval for a change that waits, also after the window's end; otherwise when
        the heartbeat is due, or the interval after a deletion is over, but no later than the window.
        """
        if entry.pending:
            return self.not_before(entry)
        if self.spaces_emissions and entry.emitted is None and entry.flushed_at is not None:
            return min(self.not_before(entry), entry.close)
        if not self.repeats_by_clock or entry.emitted is None or entry.flushed_at is None:
            return entry.close
        assert self.heartbeat_ms is not None, "there is one"
        # no heartbeat after the window's end, when the entry expires
        return min(entry.flushed_at + self.heartbeat_ms, entry.close)

    def on_time(self, entry: Entry, at: int) -> str | None:
        """Return the reason of a change that has waited, or of a heartbeat; None if only the window, or the
        interval after a deletion, is over.
        """
        if entry.pending:
            return "at_most_every"
        if entry.emitted is None:
            return None
        return self.timer_reason if self.repeats_by_clock and at < entry.close else None

    def compare(self, values: Values) -> Sameness:
        """Return the comparison of two outputs, and with `timestamp` of their timestamps.

        Raises UserFunctionFailed if `equal: python` names a function that does not exist.
        """
        same = self.equal.bind(values, self.compared)
        if not self.timestamp:
            return same
        return lambda old, new, old_ms, new_ms: old_ms == new_ms and same(old, new, old_ms, new_ms)

    @property
    def marks(self) -> bool:
        return self.state == "hash"

    def marker(self, values: Values) -> Marker:
        """Return the function that hashes an output: SHA-256, in hex, of its compared columns."""
        text = self.equal.text(values, self.compared)
        if self.timestamp:
            return lambda output, timestamp: hashlib.sha256(text(output) + b"@%d" % timestamp).hexdigest()
        return lambda output, timestamp: hashlib.sha256(text(output)).hexdigest()

    @property
    def ignores_repeats(self) -> bool:
        """Whether equality is transitive, and time does not matter."""
        return self.equal.is_exact and self.heartbeat_ms is None and not self.spaces_emissions

    # on whole columns

    def decides_latest(self, value: pa.StructType) -> bool:
        """Return whether only the values themselves count, and comparing them cannot fail."""
        by_time = self.heartbeat_ms is not None or self.spaces_emissions
        return not by_time and not self.marks and self.equal.decides_columns(value)

    def emits_latest(
        self, now: pa.StructArray, has_last: pa.BooleanArray, start: pa.BooleanArray
    ) -> pa.BooleanArray:
        """Return True where a value differs from what its key emitted before, appears or vanishes."""
        return self.equal.leaves(now, has_last, start, self.compared)

    @property
    def stores_times(self) -> bool:
        """Whether it is not exact: the state rows of an exact one are those of its emissions."""
        return not self.equal.is_exact

    # for the grammar

    def require_fit(self, window: Window | None, is_windowed: bool | None, collects: bool | None) -> None:
        """Check that values can be compared. Raises BadOption for events, and for sessions."""
        if collects:
            fix = "Use `on: threshold` or `on: update`, or `reduce: latest`."
            raise BadOption("events are not compared: `on: change` does not go with `reduce: collect`", fix)
        if window is not None and window.merges:
            fix = "Use `on: update`, or a tumbling or hopping window."
            raise BadOption("each record changes its session: `on: change` does not go with `session`", fix)

    def over(self, emitted: tuple[str, ...]) -> Emit:
        """Return the strategy with `columns` resolved. Raises BadOption if `ignore` leaves no column."""
        if self.columns is not None or not emitted:
            return self
        left = tuple(name for name in emitted if name not in (self.ignore or ()))
        if not left:
            raise BadOption("`ignore` leaves nothing to compare", "Compare at least one column.")
        return replace(self, columns=left)

    @property
    def compared(self) -> tuple[str, ...]:
        return self.columns or ()

    def retyped(self, retype: Retype) -> Emit:
        return replace(self, equal=self.equal.retyped(retype, self.compared))

    @property
    def compares_exactly(self) -> bool:
        return self.equal.is_exact

    @property
    def functions(self) -> Mapping[str, str | None]:
        return self.equal.functions

    def with_digests(self) -> Emit:
        """Return it with present digests. Raises UserFunctionFailed if a function cannot be imported."""
        return replace(self, equal=self.equal.with_digests())

    def emits_whole_values(self, emitted: tuple[str, ...]) -> bool:
        """Return whether all columns are compared, exactly, with the last value."""
        compares_all = self.columns is None or set(self.columns) == set(emitted)
        return compares_all and self.equal.is_exact and self.state == "value"

    def longest_hold_ms(self, window: Window | None) -> int:
        return self.at_most_every_ms or 0

    def state_changes(self, after: Change) -> Iterator[StateChange]:
        """Yield `at_most_every` without it; `state`; and for hashes, all that they are made with."""
        if self.spaces_emissions and not after.spaces_emissions:
            why = "changes that wait for the end of their interval would never be emitted"
            yield "at_most_every", f"{self.at_most_every_ms} ms", None, why
        if self.state != after.state:
            yield "state", self.state, after.state, "the state does not have the other one"
        elif self.state == "hash":
            why = "all values would have another hash, and be emitted again"
            yield "columns", self.compared, after.compared, why
            yield "equal", self.equal.word, after.equal.word, why
            yield "timestamp", self.timestamp, after.timestamp, why
