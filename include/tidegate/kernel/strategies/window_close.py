"""`on: window_close`. The rule on whole columns, for aggregates in tumbling windows, is in `closing`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from tidegate.kernel.bounded import Bound
from tidegate.kernel.columns import Keys
from tidegate.kernel.counts import Counts
from tidegate.kernel.equivalence import Exact
from tidegate.kernel.options import BadOption, Duration, HasOptions, Sample, option
from tidegate.kernel.reduce import Values
from tidegate.kernel.rows import Mask, ints
from tidegate.kernel.stage import Stage
from tidegate.kernel.state import Entry
from tidegate.kernel.strategies import closing
from tidegate.kernel.strategy import CLOCK, Clock, Emit, Sameness, StateChange, Time
from tidegate.kernel.windows import Window


def _never_early(when_full: str, options: Mapping[str, Any]) -> None:
    if when_full == "emit_early":
        fix = "Use `shut_down` or `spill`, or `on: time_limit`, which may emit early."
        raise BadOption("`on: window_close` emits the final value, and never early", fix)


@dataclass(frozen=True)
class FinalBound(Bound):
    """The bound of the buffer of `on: window_close`, which never emits early."""

    when_full: Literal["emit_early", "shut_down", "spill"] = option(
        "The batch fails with `BufferFull`, or there is no bound; `emit_early` is refused.",
        "when_full: shut_down",
        default="shut_down",
        check=_never_early,
    )


@dataclass(frozen=True)
class Early(HasOptions):
    """Two ways to emit a window's value before it is final: at fixed times, or with changes."""

    every_ms: Duration | None = option(
        "At each multiple of it from the window's start, if the value has changed.",
        "every: 1m",
        default=None,
        written="every",
    )
    on: Literal["change"] | None = option(
        "With each record that changes the value.", "on: change", default=None
    )

    @classmethod
    def complete(cls, options: Mapping[str, Any], given: Collection[str]) -> Mapping[str, Any]:
        """Return the options. Raises BadOption unless there is one of them."""
        if (options["every_ms"] is None) == (options["on"] is None):
            fix = "Write `early: {every: 1m}` or `early: {on: change}`."
            raise BadOption("early results come at fixed times, or with changes", fix)
        return options


def _has_no_bound(early: Early | None, options: Mapping[str, Any]) -> None:
    buffer = options.get("buffer")
    if early is not None and buffer is not None and buffer.when_full != "spill":
        fix = "Use `when_full: spill`, or leave `buffer` out."
        raise BadOption("a bounded buffer does not have the early results", fix)


@dataclass(frozen=True)
class WindowClose(Emit):
    """Emit the final value once per key and window, when the window is closed; early results before it, if
    `early` asks for them.

    Args:
        emitted: the columns of the value, which early results compare.
    """

    buffer: FinalBound | None = option(
        "A bound for values that wait.", "buffer: {max_records: 1000, when_full: shut_down}", default=None
    )
    early: Early | None = option(
        "Results before the final one; null: none.", "early: {every: 1m}", default=None, check=_has_no_bound
    )
    clock: Clock = option(CLOCK, "clock: stream", default="run")
    emitted: tuple[str, ...] = ()
    on: ClassVar[str] = "window_close"
    when: ClassVar[str] = "Once per key and window, when the window is closed."
    reasons: ClassVar[Mapping[str, str]] = {
        "window_close": "the window is over",
        "early": "a result before the window is over",
    }
    holds: ClassVar[bool] = True
    drains: ClassVar[bool] = False
    only_if_changed: ClassVar[frozenset[str]] = frozenset({"early"})
    sample: ClassVar[Sample] = Sample(
        """\
    # Each window is one hour. Late records count until ten minutes after its end.
    window: {tumbling: 1h, grace: 10m}
    reduce: {n: "count(*)"}
    emit: {on: window_close}
""",
        "the count of an hour is emitted ten minutes after its end",
        lambda first, last: [{"value": {"n": 2}, "timestamp": 120_000, "window": [0, 3_600_000]}],
        times_ms=(60_000, 120_000),
        tick_ms=4_200_000,
    )

    @property
    def is_final(self) -> bool:
        """Whether there are no early results."""
        return self.early is None

    @property
    def fires_without_buffer(self) -> bool:
        """Whether the final value may already have been an early result."""
        return self.early is not None

    def compare(self, values: Values) -> Sameness | None:
        """Return the exact comparison of an early result with the one before it; None if there are none."""
        return None if self.early is None else Exact().bind(values, self.emitted)

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Return `early` for a value that differs from the last early result, if such are emitted at once."""
        if self.early is None or self.early.on is None:
            return None
        if now is None or entry.emitted is None:
            return None if now is entry.emitted else "early"
        assert same is not None, "early results are compared"
        last = entry.emitted_timestamp or 0
        return None if same(entry.emitted, now, last, timestamp) else "early"

    @property
    def waits_from_arrival(self) -> bool:
        """Whether an early result waits for a multiple of `every` by the partition's time."""
        return self.early is not None and self.early.every_ms is not None

    def starts_at(self, timestamp: Time, now: Time) -> Time:
        """Return the partition's time, after which the next early result is due."""
        return now if self.waits_from_arrival else timestamp

    def due(self, entry: Entry) -> int:
        """Return the next multiple of `every` if the value may have changed, else the window's close."""
        every_ms = None if self.early is None else self.early.every_ms
        if every_ms is None or not entry.pending or entry.window is None:
            return entry.close
        start = entry.window[0]
        return min(start + ((entry.since - start) // every_ms + 1) * every_ms, entry.close)

    def on_time(self, entry: Entry, at: int) -> str | None:
        """Return the reason: the window is over, or an early result is due; None if only the contents of a
        window that was over are no longer needed.
        """
        if self.early is not None:
            return "window_close" if at >= entry.close else "early"
        return "window_close" if entry.pending else None

    def over(self, emitted: tuple[str, ...]) -> Emit:
        return self if self.early is None else replace(self, emitted=emitted)

    def require_fit(self, window: Window | None, is_windowed: bool | None, collects: bool | None) -> None:
        """Check that the stage has a window. Raises BadOption."""
        if is_windowed is False:
            fix = "Add a window such as `window: {tumbling: 1h, grace: 10m}`, or use `on: interval`."
            raise BadOption("`on: window_close` needs a window", fix)
        if self.early is None:
            return
        if collects:
            fix = 'Use `on: threshold`, or an aggregate such as `all: "collect_list(x)"`.'
            raise BadOption("an early result would take the events out of the final one", fix)
        if window is None:
            return
        if window.slides or window.accumulates:
            fix = "Use a tumbling or hopping window; cumulating windows are early results of their own."
            raise BadOption("early results go with tumbling and hopping windows", fix)
        if window.merges:
            fix = "Use `on: update`, which takes back the windows that grow, or a tumbling or hopping window."
            raise BadOption("a session has no window before it is over", fix)
        if self.early.every_ms is not None and self.early.every_ms >= window.open_ms:
            raise BadOption("the window is over before the first early result", "Use a shorter `every`.")

    def longest_hold_ms(self, window: Window | None) -> int:
        assert window is not None, "`on: window_close` needs a window"
        return window.open_ms

    def state_changes(self, after: WindowClose) -> Iterator[StateChange]:
        """Yield `early` if there is none any more: after an early result, nothing is held back."""
        if self.early is not None and after.early is None:
            why = "windows whose value was an early result would have no final one"
            yield "early", "early results", None, why

    def decides_plain(self, stage: Stage, value: pa.StructType) -> bool:
        """Return whether its windows are tumbling, and its aggregates can be folded on columns."""
        if (
            self.early is not None
            or stage.window is None
            or not stage.window.lie_side_by_side
            or stage.where is not None
        ):
            return False
        # no pipeline file can request this combination, but tests of the kernel can
        if stage.bound and stage.bound.when_full == "emit_early":
            return False
        return stage.reduce.runs_on_columns(value)

    def special(self, stage: Stage, keys: Keys) -> Iterable[Mask]:
        """Return masks of the rows whose keys are left to `loop`.

        These have timestamps before 1970, are in partitions whose time goes back, have state of an edited
        stage, sums that may overflow, null values, or records that were applied before,
        or are late and not dropped.
        """
        assert stage.window is not None, "`on: window_close` needs a window"
        rows = [
            keys.before_epoch(),
            ~keys.times.ascend,
            closing.edited(stage.window, keys),
            stage.reduce.may_overflow(keys),
            keys.tombstones(),
        ]
        if stage.on_late != "drop":
            window = stage.window
            closed = window.bounds(keys.timestamp)[1] + window.grace_ms
            rows.append(~keys.is_state & (closed <= np.where(keys.is_state, 0, keys.now)))
        if stage.deduplicate == "offset" and keys.is_state.any():
            offset = ints(keys.column("offset"))
            # each window has its own fence: `loop` decides records below the key's newest
            newest = np.maximum.reduceat(np.where(keys.is_state, offset, -1), keys.first)
            rows.append(~keys.is_state & (offset <= newest[keys.number]))
        return rows

    def decide(self, stage: Stage, schema: pa.Schema, keys: Keys, counts: Counts) -> Iterator[pa.RecordBatch]:
        """Emit windows that are over, and let the others wait. Raises BufferFull."""
        yield from closing.decide(stage, schema, keys, counts)
