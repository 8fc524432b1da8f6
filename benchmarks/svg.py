"""Plots as SVG texts: lines over two logarithmic axes, with the spread of each point. No dependency."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 40, 96
_COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0")
_TICKS = (1, 2, 5)
_BEGIN = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
    'font-family="sans-serif" font-size="12">'
)


@dataclass(frozen=True)
class Point:
    """A median `y` with the smallest and largest, at `x`. All are above 0."""

    x: float
    low: float
    y: float
    high: float


@dataclass(frozen=True)
class Series:
    """A line, with its points from left to right."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` on pixels from `begin` to `end`, by their logarithms."""

    low: float
    high: float
    begin: float
    end: float

    def place(self, value: float) -> float:
        """The pixel of a value."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """1, 2, 5, 10, 20, … as far as they are on the axis."""
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        values = [tick * 10.0**exponent for exponent in exponents for tick in _TICKS]
        return [value for value in values if self.low <= value <= self.high]


def line_plot(title: str, x_title: str, y_title: str, series: Sequence[Series]) -> str:
    """A plot with at least one point. The x axis is marked where points are."""
    points = [point for line in series for point in line.points]
    xs = sorted({point.x for point in points})
    across = _axis(xs[0], xs[-1], _LEFT, _WIDTH - _RIGHT)
    low, high = min(point.low for point in points), max(point.high for point in points)
    up = _axis(low, high, _HEIGHT - _BOTTOM, _TOP)
    parts = [
        _BEGIN,
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_WIDTH / 2, 22, title, "middle", 'font-size="15"'),
        *_grid(across, up, xs),
        _text(_WIDTH / 2, _HEIGHT - _BOTTOM + 36, x_title, "middle"),
        _text(_LEFT, _TOP - 8, y_title, "middle"),
    ]
    for number, line in enumerate(series):
        parts += _line(line, across, up, _COLOURS[number % len(_COLOURS)], number)
    return "\n".join([*parts, "</svg>", ""])


def short(value: float) -> str:
    """A number as it stands at an axis: 0.5, 20, 100 k, 3 M."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _axis(low: float, high: float, begin: float, end: float) -> Axis:
    """Return an axis with some room at both ends, also for a single value."""
    return Axis(low / 1.25, high * 1.25, begin, end)


def _grid(across: Axis, up: Axis, xs: Sequence[float]) -> Iterator[str]:
    for x in xs:
        place = across.place(x)
        yield f'<path d="M{place:.1f} {up.begin:.1f}V{up.end:.1f}" stroke="#eee"/>'
        yield _text(place, up.begin + 16, short(x), "middle")
    for y in up.ticks():
        place = up.place(y)
        yield f'<path d="M{across.begin:.1f} {place:.1f}H{across.end:.1f}" stroke="#ddd"/>'
        yield _text(across.begin - 6, place + 4, short(y), "end")


def _line(line: Series, across: Axis, up: Axis, colour: str, number: int) -> Iterator[str]:
    places = [(across.place(point.x), up.place(point.y)) for point in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for point, (x, y) in zip(line.points, places, strict=True):
        spread = f"M{x:.1f} {up.place(point.low):.1f}V{up.place(point.high):.1f}"
        yield f'<path d="{spread}" stroke="{colour}"/>'
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
    below = _HEIGHT - _BOTTOM + 58 + 16 * (number // 2)
    left = _LEFT + (number % 2) * (_WIDTH - _LEFT) / 2
    yield f'<rect x="{left:.1f}" y="{below - 9}" width="10" height="10" fill="{colour}"/>'
    yield _text(left + 16, below, line.name, "start")


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'
