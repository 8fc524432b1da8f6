"""`on: time_limit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tidegate.kernel.bounded import Bound
from tidegate.kernel.options import Duration, Sample, option
from tidegate.kernel.strategies.buffering import BufferingNewest
from tidegate.kernel.strategy import CLOCK, Clock, Time
from tidegate.kernel.windows import Window


@dataclass(frozen=True)
class TimeLimit(BufferingNewest):
    """Emit the newest value, so long (`after`) after the first value that waits: at most once in
    that time.

    Newer values replace it and do not restart the timer. The timer may fire after the window's end.
    """

    after_ms: Duration = option(
        "The newest value is emitted so long after the first value that waits.", "after: 30s", written="after"
    )
    buffer: Bound | None = option(
        "A bound for values that wait.", "buffer: {max_records: 1000, when_full: shut_down}", default=None
    )
    clock: Clock = option(CLOCK, "clock: stream", default="run")
    on: ClassVar[str] = "time_limit"
    when: ClassVar[str] = "At most once in a time."
    reasons: ClassVar[Mapping[str, str]] = {"time_limit": "the time limit of what was held back has passed"}
    timer_reason: ClassVar[str] = "time_limit"
    sample: ClassVar[Sample] = Sample(
        """\
    {select}
    reduce: latest
    # The stage emits the newest value, 30 seconds after the first value that waits.
    emit: {on: time_limit, after: 30s}
""",
        "the newest value is emitted after 30 seconds",
        lambda first, last: [{"value": last, "timestamp": 2000}],
        tick_ms=31_000,
    )

    def due_since(self, since: Time) -> Time:
        """Return `after_ms` past the first value held back.

        Example: with `after_ms` 30 it is 35 for 5.
        """
        return since + self.after_ms

    def longest_hold_ms(self, window: Window | None) -> int:
        return self.after_ms
