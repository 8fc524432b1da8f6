"""`any`: several strategies, each of which can emit the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from tidegate.kernel.options import BadOption, Form, option
from tidegate.kernel.reduce import Values
from tidegate.kernel.state import Entry
from tidegate.kernel.strategies.change import Change
from tidegate.kernel.strategies.interval import Interval
from tidegate.kernel.strategies.time_limit import TimeLimit
from tidegate.kernel.strategy import CLOCK, Clock, Emit, Retype, Sameness
from tidegate.kernel.windows import Window

TRIGGERS: Mapping[str, type[Emit]] = {trigger.on: trigger for trigger in (Change, Interval, TimeLimit)}
"""`on` of a strategy that can be a trigger -> the strategy."""
NO_TRIGGERS: Mapping[str, tuple[str, str]] = {
    "update": ("emits every record, so that no other trigger would fire", "Write `emit: {on: update}`."),
    "threshold": (
        "empties the value, which the other triggers emit again and again",
        "`on: threshold` has several triggers of its own: `count`, `max_bytes`, `until` and `after`.",
    ),
    "window_close": (
        "emits a final value, after which nothing follows",
        "For values before it write `emit: {on: window_close, early: {every: 1m}}`.",
    ),
    "quiet": (
        "starts its time anew with each record, and the other triggers do not",
        "Write a stage `from` the same input for it, or `emit: {on: quiet, after: 10m}` alone.",
    ),
}
"""`on` of a strategy that cannot be a trigger -> why, and the fix."""
Triggers = Annotated[tuple[Emit, ...], Form("triggers")]


def _go_together(triggers: tuple[Emit, ...], options: Mapping[str, Any]) -> None:
    names = [trigger.on for trigger in triggers]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise BadOption(f"there are two triggers `{repeated}`", "Keep one of them.")
    if len(triggers) < 2:
        only = names[0] if names else "change"
        raise BadOption("there is only one trigger", f"Add another one, or write `emit: {{on: {only}, …}}`.")
    for trigger in triggers:
        if trigger.bound is not None:
            fix = "Use `when_full: spill`, or leave `buffer` out."
            raise BadOption("a bounded buffer does not have what was emitted last", fix)
        if isinstance(trigger, Change):
            _is_plain(trigger)


def _is_plain(change: Change) -> None:
    if change.marks:
        fix = "Use `state: value`."
        raise BadOption("the other triggers emit a value that `state: hash` does not have", fix)
    if change.heartbeat_ms is not None:
        fix = "Leave `heartbeat` out: `on: interval` and `on: time_limit` emit unchanged values, too."
        raise BadOption("the other triggers emit between heartbeats", fix)
    if change.spaces_emissions:
        fix = "Leave `at_most_every` out, or write `emit: {on: change, at_most_every: 30s}` alone."
        raise BadOption("the other triggers emit more often than `at_most_every` allows", fix)


@dataclass(frozen=True)
class AnyOf(Emit):
    """Emit the value when one of several triggers fires.

    A value waits from the first record since the last emission, whichever trigger made that. A change is
    emitted at once; the other triggers set the timer, whose time is the earliest of theirs.
    """

    triggers: Triggers = option(
        "The strategies, each of which can emit the value.",
        "any: [{on: change}, {on: interval, every: 5m}]",
        written="any",
        check=_go_together,
    )
    clock: Clock = option(CLOCK, "clock: stream", default="run")
    on: ClassVar[str] = "any"
    when: ClassVar[str] = "When one of several triggers fires."
    holds: ClassVar[bool] = True

    @property
    def _change(self) -> Emit:
        """The trigger that compares; one that compares nothing if there is none."""
        return next((trigger for trigger in self.triggers if not trigger.holds), Emit())

    @property
    def _timed(self) -> Sequence[Emit]:
        return [trigger for trigger in self.triggers if trigger.holds]

    def compare(self, values: Values) -> Sameness | None:
        return self._change.compare(values)

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Return the reason of `on: change`, if it is a trigger."""
        return self._change.on_record(entry, now, timestamp, same)

    def due(self, entry: Entry) -> int:
        """Return the earliest time at which a trigger's timer fires."""
        return min((trigger.due(entry) for trigger in self._timed), default=entry.close)

    def on_time(self, entry: Entry, at: int) -> str | None:
        """Return the reason of the trigger whose timer fires first, of several the first in the list."""
        if not entry.pending:
            return None
        return min(self._timed, key=lambda trigger: trigger.due(entry)).timer_reason

    # for the grammar

    def require_fit(self, window: Window | None, is_windowed: bool | None, collects: bool | None) -> None:
        for trigger in self.triggers:
            trigger.require_fit(window, is_windowed, collects)

    def over(self, emitted: tuple[str, ...]) -> Emit:
        return replace(self, triggers=tuple(trigger.over(emitted) for trigger in self.triggers))

    def retyped(self, retype: Retype) -> Emit:
        return replace(self, triggers=tuple(trigger.retyped(retype) for trigger in self.triggers))

    @property
    def compared(self) -> tuple[str, ...]:
        return self._change.compared

    @property
    def functions(self) -> Mapping[str, str | None]:
        return self._change.functions

    def with_digests(self) -> Emit:
        return replace(self, triggers=tuple(trigger.with_digests() for trigger in self.triggers))

    def longest_hold_ms(self, window: Window | None) -> int:
        """Return the time of the trigger that fires first."""
        return min((trigger.longest_hold_ms(window) for trigger in self._timed), default=0)
