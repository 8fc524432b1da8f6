"""The chart of what batches have emitted and suppressed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

from tidegate.console.formatting import instant, number
from tidegate.inspect import HistoryEntry

WIDTH, HEIGHT = 960, 180
LEFT, RIGHT, TOP, BOTTOM = 64, 8, 8, 24
_GAP = 0.2
_WIDEST = 24.0


@dataclass(frozen=True)
class Bar:
    """The bar of a batch: its emissions, and on top of them the suppressed values, in units of the
    drawing.
    """

    x: float
    width: float
    emitted_y: float
    emitted_height: float
    suppressed_y: float
    suppressed_height: float
    title: str


@dataclass(frozen=True)
class Chart:
    """The chart of batches from left to right, oldest first. `ticks` are (y, label); `first` and `last` are
    times.
    """

    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]
    first: str
    last: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    bottom: int = HEIGHT - BOTTOM


def chart_of(newest_first: Sequence[HistoryEntry]) -> Chart | None:
    """Return the chart of emitted and suppressed values; None if no batch has counts.

    Args:
        newest_first: Batches of a stream; those without counts are left out.
    """
    entries = [entry for entry in reversed(newest_first) if entry.report is not None and entry.report.counts]
    values = [_emitted_and_suppressed(entry) for entry in entries]
    highest = max((emitted + suppressed for emitted, suppressed in values), default=0)
    if not highest:
        return None
    top = _round_up(highest)
    per_record = (HEIGHT - TOP - BOTTOM) / top
    slot = (WIDTH - LEFT - RIGHT) / len(entries)
    bars = tuple(
        _bar(entry, LEFT + slot * at, slot, per_record, *value)
        for at, (entry, value) in enumerate(zip(entries, values, strict=True))
    )
    ticks = tuple((HEIGHT - BOTTOM - top * part * per_record, number(top * part)) for part in (0, 0.5, 1))
    return Chart(bars, ticks, _when(entries[0]), _when(entries[-1]) if len(entries) > 1 else "")


def _bar(
    entry: HistoryEntry, x: float, slot: float, per_record: float, emitted: float, suppressed: float
) -> Bar:
    # A few batches would otherwise be bars as wide as the page.
    width = min(slot * (1 - _GAP), _WIDEST)
    base = HEIGHT - BOTTOM
    title = f"batch {entry.seq}, {_when(entry)}: {number(emitted)} emitted, {number(suppressed)} suppressed"
    return Bar(
        x=x + (slot - width) / 2,
        width=width,
        emitted_y=base - emitted * per_record,
        emitted_height=emitted * per_record,
        suppressed_y=base - (emitted + suppressed) * per_record,
        suppressed_height=suppressed * per_record,
        title=title,
    )


def _emitted_and_suppressed(entry: HistoryEntry) -> tuple[float, float]:
    assert entry.report is not None
    return entry.report.counts.get("emitted", 0), entry.report.suppressed


def _when(entry: HistoryEntry) -> str:
    return instant(entry.committed_at_ms) if entry.committed_at_ms is not None else "not committed"


def _round_up(value: float) -> float:
    """Return the next round number whose half is a whole number."""
    power = 10.0 ** floor(log10(max(value, 2)))
    return max(2.0, next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value))
