"""How cost grows: which rows are points of which plot. Rows that were not measured are not drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.rendering import Saved
from benchmarks.svg import Point, Series, line_plot

FIRST, LAST = 0, -1
"""Places of a row's programs: the measured one, and the one beside it."""


@dataclass(frozen=True)
class Growth:
    """A plot of seconds.

    `lines`: name -> (x, the row's name, place of the program in it), from left to right.
    """

    title: str
    x_title: str
    lines: Mapping[str, Sequence[tuple[float, str, int]]]


def _both(*points: tuple[float, str]) -> dict[str, list[tuple[float, str, int]]]:
    """tidegate and Kafka Streams, in the same rows."""
    places = {"tidegate run": FIRST, "Kafka Streams": LAST}
    return {name: [(x, row, place) for x, row in points] for name, place in places.items()}


GROWTHS = {
    "events": Growth(
        "A backlog, by its events (from 10 M on with 1 M keys)",
        "events",
        _both((1e6, "1m"), (3e6, "3m"), (10e6, "10m"), (30e6, "30m")),
    ),
    "keys": Growth(
        "10,000 events, by the keys of the state that is there already",
        "keys in the state",
        {
            "tidegate run": [
                (1e5, "state-1m", LAST),
                (1e6, "state-1m", FIRST),
                (1e7, "state-10m", FIRST),
                (1e8, "huge-state", FIRST),
            ]
        },
    ),
    "partitions": Growth(
        "3 M events, by the partitions of the topic",
        "partitions",
        _both((2, "3m"), (8, "8-partitions"), (32, "32-partitions")),
    ),
    "skew": Growth(
        "3 M events, by the share of the busiest key, in percent",
        "percent of the events",
        _both((0.001, "3m"), (50, "hot-key")),
    ),
    "width": Growth(
        "3 M events, by the bytes of a value",
        "bytes",
        _both((60, "3m"), (1_000, "wide")),
    ),
}


def plots(rows: Sequence[Saved]) -> dict[str, str]:
    """Name -> SVG, of the plots of which at least two points were measured."""
    by_name = {row["name"]: row for row in reversed(rows)}  # of rows with the same name the first
    drawn = {name: _series(growth, by_name) for name, growth in GROWTHS.items()}
    return {
        name: line_plot(GROWTHS[name].title, GROWTHS[name].x_title, "seconds", series)
        for name, series in drawn.items()
        if series
    }


def _series(growth: Growth, rows: Mapping[str, Saved]) -> list[Series]:
    lines = (
        Series(name, tuple(_point(x, rows[row], place) for x, row, place in points if row in rows))
        for name, points in growth.lines.items()
    )
    return [line for line in lines if len(line.points) > 1]


def _point(x: float, row: Saved, place: int) -> Point:
    seconds = row["results"][row["programs"][place]]["seconds"]
    return Point(x, seconds["min"], seconds["median"], seconds["max"])
