"""`on: quiet`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from tidegate.kernel.options import BadOption, Duration, Sample, option
from tidegate.kernel.stage import Stage
from tidegate.kernel.strategies.buffering import BufferingNewest
from tidegate.kernel.strategy import CLOCK, Clock, Time
from tidegate.kernel.tables import ABSENT
from tidegate.kernel.windows import Window


@dataclass(frozen=True)
class Quiet(BufferingNewest):
    """Emit the value once per silence: when a key has had no record for so long (`after`).

    Each record starts the time anew, by its timestamp, as the gap of a session does. A record that is older
    than another one does not shorten the silence; a record beyond its end begins another one.
    """

    after_ms: Duration = option(
        "The value is emitted when its key has had no record for so long.", "after: 10m", written="after"
    )
    clock: Clock = option(CLOCK, "clock: stream", default="run")
    on: ClassVar[str] = "quiet"
    when: ClassVar[str] = "When a key has been silent for a time."
    reasons: ClassVar[Mapping[str, str]] = {
        "quiet": "the key has had no record for so long",
        ABSENT: "the key is expected, and has never had a record",
    }
    timer_reason: ClassVar[str] = "quiet"
    restarts: ClassVar[bool] = True
    sample: ClassVar[Sample] = Sample(
        """\
    {select}
    reduce: latest
    # The stage emits the last value of a key that has had no record for 10 minutes.
    emit: {on: quiet, after: 10m}
""",
        "the last value is emitted after 10 minutes of silence",
        lambda first, last: [{"value": last, "timestamp": 2000}],
        tick_ms=602_000,
    )

    def due_since(self, since: Time) -> Time:
        """Return `after_ms` past the newest record that waits.

        Example: with `after_ms` 30 it is 35 for 5.
        """
        return since + self.after_ms

    def decides_plain(self, stage: Stage, value: pa.StructType) -> bool:
        """Return whether the value is the newest record's own, or a list of events."""
        return (stage.reduce.newest_only or stage.reduce.lists_events) and self.is_decided_by_key(stage)

    def require_fit(self, window: Window | None, is_windowed: bool | None, collects: bool | None) -> None:
        """Check that the stage has no window. Raises BadOption."""
        if is_windowed:
            fix = (
                "Leave `window` out; for one result per run of records write `on: window_close` with "
                "`window: {session: 10m}`."
            )
            raise BadOption("`on: quiet` waits for the silence of a key, and not of a window", fix)

    def longest_hold_ms(self, window: Window | None) -> int:
        """Return `after_ms`: so old is the newest record when the value is emitted."""
        return self.after_ms
