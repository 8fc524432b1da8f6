"""The page of charts: a stream's lag, age, records, seconds and state over time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from tidegate.console.formatting import duration, instant, number, rate, seconds, size
from tidegate.console.host import host_of
from tidegate.console.parameters import Generation, entry_of, stream_of_entry
from tidegate.console.plot import Axis, Line, Moment, Plot, Write, plot
from tidegate.console.render import render
from tidegate.inspect import HistoryEntry
from tidegate.inspect.series import ChartRange, Point, Series, series
from tidegate.ledger.report import STEPS

router = APIRouter()
_OVERVIEW_WIDTH = 1_120
Figure = tuple[str, Callable[[Point], float | None]]
"""The name of a figure, and how a point gives it."""


@router.get("/charts")
def charts_page(
    request: Request,
    dag_id: str,
    generation: Generation = None,
    span: Annotated[str, Query(alias="range", pattern="^(hour|day|week|month)$")] = "day",
) -> Response:
    """Charts of the last hour, day, week or month, and a table of their figures."""
    app = host_of(request).open_app()
    stream = stream_of_entry(entry_of(app, dag_id), generation)
    shown = series(app, stream, ChartRange[span.upper()], round(time.time() * 1000))
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
    batches = (
        f"batch {point.first}" if point.first == point.last else f"batches {point.first} to {point.last}"
    )
    return f"{batches}, {instant(point.at_ms)}"


def _age(place: int) -> Callable[[Point], float | None]:
    return lambda point: None if point.ages is None else point.ages[place]


def _freshness(place: int) -> Callable[[Point], float | None]:
    return lambda point: point.freshness[place]


def _seconds(step: str) -> Callable[[Point], float | None]:
    return lambda point: point.seconds.get(step)
