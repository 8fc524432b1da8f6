"""Draw charts as SVG on the server: no script runs in the browser, and CSS shows the figures under the
pointer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, log10

WIDTH, HEIGHT = 560, 190
LEFT, RIGHT, TOP, BOTTOM = 56, 8, 24, 22
_GAP = 0.2
_WIDEST = 24.0
Write = Callable[[float | None], str]
"""Writes a figure for people."""


@dataclass(frozen=True)
class Moment:
    """A place on the time axis.

    Args:
        position: From 0 at the left end of the chart to 1 at the right end.
        label: The batches and the time.
    """

    position: float
    label: str


@dataclass(frozen=True)
class Line:
    """A figure over time, with a value for each moment; None where there is none.

    Args:
        label: The name of the figure.
        css: The CSS class of its colour.
    """

    label: str
    css: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Bar:
    """A bar of a moment, in units of the drawing."""

    css: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Hit:
    """The part of the chart in which the pointer shows the figures of a moment.

    Args:
        x: The left end; `at` is the place of the moment.
        text: The figures.
    """

    x: float
    width: float
    at: float
    text: str


@dataclass(frozen=True)
class Plot:
    """A chart. `paths` are (CSS class, drawing commands); `ticks` are (y, label).

    Args:
        description: The chart in words, for a screen reader.
        first: The label of the left end of the axis; `last` that of the right end.
    """

    title: str
    description: str
    lines: tuple[Line, ...]
    paths: tuple[tuple[str, str], ...]
    bars: tuple[Bar, ...]
    hits: tuple[Hit, ...]
    ticks: tuple[tuple[float, str], ...]
    first: str
    last: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    top: int = TOP

    @property
    def is_wide(self) -> bool:
        """Whether a narrow window scrolls it, since its labels would become too small."""
        return self.width > WIDTH

    @property
    def right(self) -> int:
        """The right end of the axis."""
        return self.width - RIGHT

    @property
    def bottom(self) -> int:
        """The place of the axis."""
        return self.height - BOTTOM


@dataclass(frozen=True)
class Axis:
    """The time axis: what stands at its ends, and the width of the chart."""

    first: str
    last: str
    width: int = WIDTH

    def x(self, position: float) -> float:
        """Return the place of a position from 0 to 1."""
        return LEFT + (self.width - LEFT - RIGHT) * position


def plot(
    title: str, moments: Sequence[Moment], lines: Sequence[Line], axis: Axis, write: Write, bars: bool = False
) -> Plot | None:
    """Return a chart; None if no line has a value.

    Args:
        moments: The places of the values, from left to right.
        bars: Bars on top of each other, instead of lines.
    """
    present = [line for line in lines if any(value is not None for value in line.values)]
    if not present:
        return None
    top = _round_up(_highest(present, bars))
    y_of = _scale(top)
    figures = [_figures(present, number, write) for number in range(len(moments))]
    xs = [axis.x(moment.position) for moment in moments]
    hits = [
        Hit(left, right - left, x, f"{moment.label}: {figure}")
        for (left, right), x, moment, figure in zip(_parts(xs, axis), xs, moments, figures, strict=True)
    ]
    return Plot(
        title=title,
        description=f"{title}. {_described(present, write)} The table below has all figures.",
        lines=tuple(present),
        paths=() if bars else tuple((line.css, _path(xs, line.values, y_of)) for line in present),
        bars=tuple(_bars(present, xs, axis, y_of)) if bars else (),
        hits=tuple(hits),
        ticks=tuple(
            {write(top * part): (y_of(top * part), write(top * part)) for part in (1, 0.5, 0)}.values()
        ),
        first=axis.first,
        last=axis.last,
        width=axis.width,
    )


def _scale(top: float) -> Callable[[float], float]:
    base = HEIGHT - BOTTOM
    return lambda value: base - value * (base - TOP) / top


def _highest(lines: Sequence[Line], bars: bool) -> float:
    columns = [
        [value or 0 for value in column] for column in zip(*(line.values for line in lines), strict=True)
    ]
    return max((sum(column) if bars else max(column) for column in columns), default=0)


def _figures(lines: Sequence[Line], number: int, write: Write) -> str:
    return ", ".join(f"{line.label} {write(line.values[number])}" for line in lines)


def _described(lines: Sequence[Line], write: Write) -> str:
    """Return a sentence for each line: its last, least and greatest value."""
    sentences = []
    for line in lines:
        values = [value for value in line.values if value is not None]
        sentences.append(
            f"{line.label}: {write(values[-1])} at the end, {write(min(values))} to {write(max(values))}."
        )
    return " ".join(sentences)


def _parts(xs: Sequence[float], axis: Axis) -> list[tuple[float, float]]:
    """Return the part of the axis that is nearest to each place."""
    bounds = [axis.x(0), *((left + right) / 2 for left, right in pairwise(xs)), axis.x(1)]
    return list(pairwise(bounds))


def _path(xs: Sequence[float], values: Sequence[float | None], y_of: Callable[[float], float]) -> str:
    """Return the drawing commands of a line, with a gap where there is no value."""
    commands, draws = [], False
    for x, value in zip(xs, values, strict=True):
        if value is not None:
            # A move and a line of no length show a single value as a dot, by the round end of the line.
            commands.append(f"{'L' if draws else 'M'}{x:.1f} {y_of(value):.1f}" + ("" if draws else "h0"))
        draws = value is not None
    return "".join(commands)


def _bars(
    lines: Sequence[Line], xs: Sequence[float], axis: Axis, y_of: Callable[[float], float]
) -> list[Bar]:
    bars = []
    ends = [2 * axis.x(0) - xs[0], *xs, 2 * axis.x(1) - xs[-1]]
    for number, (left, x, right) in enumerate(zip(ends, xs, ends[2:], strict=False)):
        # A few batches would otherwise be bars as wide as the page.
        width = max(min((x - left) * (1 - _GAP), (right - x) * (1 - _GAP), _WIDEST), 1)
        below = 0.0
        for line in lines:
            value = line.values[number] or 0
            if value:
                y = y_of(below + value)
                bars.append(Bar(line.css, x - width / 2, y, width, y_of(below) - y))
            below += value
    return bars


def _round_up(value: float) -> float:
    """Return the next round number; from 2 on, its half is a whole number, too."""
    if value <= 0:
        return 2.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value)
