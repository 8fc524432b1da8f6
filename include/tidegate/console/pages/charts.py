"""The page of charts: a stream's lag, age, records, seconds and state over time.

Charts are SVG, drawn on the server: no script runs in the browser, and CSS shows the figures under the
pointer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, log10
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from tidegate.clock import current_ms
from tidegate.console.formatting import duration, instant, number, rate, seconds, size
from tidegate.console.host import host_of
from tidegate.console.parameters import Viewed
from tidegate.console.render import render
from tidegate.inspect import HistoryEntry
from tidegate.inspect.series import ChartRange, Point, Series, series
from tidegate.ledger.report import STEPS
from tidegate.numerals import batches_named

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
    for at, (left, x, right) in enumerate(zip(ends, xs, ends[2:], strict=False)):
        # A few batches would otherwise be bars as wide as the page.
        width = max(min((x - left) * (1 - _GAP), (right - x) * (1 - _GAP), _WIDEST), 1)
        below = 0.0
        for line in lines:
            value = line.values[at] or 0
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


router = APIRouter()
_OVERVIEW_WIDTH = 1_120
Figure = tuple[str, Callable[[Point], float | None]]
"""The name of a figure, and how a point gives it."""


@router.get("/charts")
def charts_page(
    request: Request,
    dag_id: str,
    viewed: Viewed,
    span: Annotated[str, Query(alias="range", pattern="^(hour|day|week|month)$")] = "day",
) -> Response:
    """Charts of the last hour, day, week or month, and a table of their figures."""
    stream = viewed.stream
    shown = series(viewed.app, stream, ChartRange[span.upper()], current_ms())
    return render(
        request,
        "charts.html",
        title=f"{dag_id}: charts",
        dag_id=dag_id,
        stream=stream,
        reads_logs=host_of(request).reads_logs(request, dag_id),
        spans=[choice.label for choice in ChartRange],
        span=span,
        series=shown,
        plots=plots_of(shown),
        steps=STEPS,
    )


def plots_of(shown: Series) -> list[Plot]:
    """Return the charts of a series; a figure that no batch has is left out."""
    charts: list[tuple[str, list[Figure], Write, bool]] = [
        ("Lag, in offsets", [("lag", lambda point: point.lag)], number, False),
        ("Age of the newest record", [("p50", _age(0)), ("p95", _age(1))], duration, False),
        ("From record to published", [("p50", _freshness(0)), ("p95", _freshness(1))], duration, False),
        (
            "Records and emissions a second",
            [
                ("records", lambda point: point.records_per_second),
                ("emissions", lambda point: point.emissions_per_second),
            ],
            rate,
            False,
        ),
        (
            "Late and quarantined records",
            [("late", lambda point: point.late), ("quarantined", lambda point: point.quarantined)],
            number,
            True,
        ),
        ("Seconds by step", [(step, _seconds(step)) for step in STEPS], seconds, True),
        ("State, in rows", [("rows", lambda point: point.state_rows)], number, False),
        ("State, in bytes", [("bytes", lambda point: point.state_bytes)], size, False),
    ]
    drawn = (_plot(shown, *chart) for chart in charts)
    return [chart for chart in drawn if chart is not None]


def overview_plot(newest_first: Sequence[HistoryEntry]) -> Plot | None:
    """Return the chart of what batches have emitted and suppressed, in equal steps; None without counts."""
    reports = [
        (entry, entry.report)
        for entry in reversed(newest_first)
        if entry.report is not None and entry.report.counts
    ]
    moments = [
        Moment((at + 0.5) / len(reports), f"batch {entry.seq}, {_committed(entry)}")
        for at, (entry, _) in enumerate(reports)
    ]
    emitted = [report.counts.get("emitted", 0) for _, report in reports]
    suppressed = [float(report.suppressed) for _, report in reports]
    if not any([*emitted, *suppressed]):
        return None
    lines = [Line("emitted", "emitted", emitted), Line("suppressed", "suppressed", suppressed)]
    last = _committed(reports[-1][0]) if len(reports) > 1 else ""
    axis = Axis(_committed(reports[0][0]), last, _OVERVIEW_WIDTH)
    return plot("Emitted and suppressed values", moments, lines, axis, number, bars=True)


def _committed(entry: HistoryEntry) -> str:
    return instant(entry.committed_at_ms) if entry.committed_at_ms is not None else "not committed"


def _plot(shown: Series, title: str, figures: Sequence[Figure], write: Write, bars: bool) -> Plot | None:
    span_ms = shown.until_ms - shown.since_ms
    moments = [Moment((point.at_ms - shown.since_ms) / span_ms, label_of(point)) for point in shown.points]
    lines = [
        Line(name, f"s{place}", [figure(point) for point in shown.points])
        for place, (name, figure) in enumerate(figures, 1)
    ]
    axis = Axis(instant(shown.since_ms), instant(shown.until_ms))
    return plot(title, moments, lines, axis, write, bars)


def label_of(point: Point) -> str:
    """Return the batches of a point and their time. Example: `batches 7 to 9, 2026-01-31 02:00:00`."""
    return f"{batches_named(point.first, point.last)}, {instant(point.at_ms)}"


def _age(place: int) -> Callable[[Point], float | None]:
    return lambda point: None if point.ages is None else point.ages[place]


def _freshness(place: int) -> Callable[[Point], float | None]:
    return lambda point: point.freshness[place]


def _seconds(step: str) -> Callable[[Point], float | None]:
    return lambda point: point.seconds.get(step)
