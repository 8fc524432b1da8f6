"""The page of results, from rows that `table.py` has saved.

`python -m benchmarks.results --help`
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.figures import mib
from benchmarks.svg import Point, Series, line_plot

Saved = dict[str, Any]

_HEADER = ("row", "what", "turns", "measured", "seconds", "beside", "seconds", "ratio", "bound", "met", "MiB")
_LEGEND = """\
Seconds are those of the whole process, from start to exit, `smallest / median / largest`; in a session that
stays, from the line to the answer. The ratio is that of the medians, and in brackets the smallest and the
largest of a round; what is beside has 1. A bound is for the ratio, and only for the load that it was set for.
MiB: the most that all processes of the measured program held at a time. How it is measured:
[README.md](README.md)."""


def render(rows: Sequence[Saved], plots: Sequence[str], peers: str) -> str:
    """The page. `plots`: files beside it, with their titles as stems; `peers`: what peers cannot do."""
    parts = ["# Results", _machines(rows), _table(rows), _LEGEND]
    if plots:
        parts += ["## How cost grows", *(f"![{plot}]({plot})" for plot in plots)]
    return "\n\n".join([*parts, peers.strip()]) + "\n"


def is_met(row: Saved) -> bool | None:
    """Whether the ratio of the medians is within the row's bound; None where there is no bound."""
    bound = row["bound"]
    return None if bound is None else bool(_measured(row)["ratio_of_medians"] <= bound)


def _machines(rows: Sequence[Saved]) -> str:
    machines = sorted({str(row["machine"]) for row in rows})
    return "Written by `python -m benchmarks.results` from measured rows. " + "; ".join(machines) + "."


def _table(rows: Sequence[Saved]) -> str:
    lines = [_HEADER, tuple("---" for _ in _HEADER), *map(_cells, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Saved) -> tuple[str, ...]:
    programs, measured = row["programs"], _measured(row)
    beside = row["results"][programs[-1]]
    bound = row["bound"]
    return (
        f"`{row['name']}`",
        row["title"],
        str(len(row["turns"]) // len(programs)),
        programs[0],
        _spread(measured["seconds"]),
        programs[-1],
        _spread(beside["seconds"]),
        _ratio(measured),
        "" if bound is None else f"≤ {bound}",
        {None: "", True: "yes", False: "**no**"}[is_met(row)],
        f"{mib(measured['peak_tree_bytes']):,.0f}" if measured["peak_tree_bytes"] else "",
    )


def _measured(row: Saved) -> Saved:
    """The first program's results: what the row is about."""
    result: Saved = row["results"][row["programs"][0]]
    return result


def _spread(spread: dict[str, float]) -> str:
    return " / ".join(f"{spread[name]:,.2f}" for name in ("min", "median", "max"))


def _ratio(result: Saved) -> str:
    spread = result["ratio"]
    return f"{result['ratio_of_medians']:.2f} ({spread['min']:.2f} to {spread['max']:.2f})"


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


_FOLDER = Path(__file__).parent
RUNS = _FOLDER / "runs.json"


save_option = click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file for `benchmarks.results`, in which each row that is done takes the place of its last one.",
)
"""The option of commands that measure rows."""


def save_rows(path: Path, rows: Sequence[Saved]) -> None:
    """Put rows into a file, in place of those with their names; new names come last."""
    saved = load_rows(path) if path.exists() else []
    names = {row["name"]: None for row in [*saved, *rows]}
    replaced = {row["name"] for row in rows}
    current = [row for row in saved if row["name"] not in replaced] + list(rows)
    ordered = [row for name in names for row in current if row["name"] == name]
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps({"rows": ordered}, indent=1, ensure_ascii=False) + "\n")
    draft.replace(path)


def load_rows(path: Path) -> list[Saved]:
    """Load the rows that `save_rows` wrote."""
    rows: list[Saved] = json.loads(path.read_text())["rows"]
    return rows


def write_page(rows: Sequence[Saved], page: Path) -> None:
    """RESULTS.md, and the plots in a folder beside it."""
    folder = page.parent / "plots"
    folder.mkdir(exist_ok=True)
    drawn = plots(rows)
    for name, text in drawn.items():
        (folder / f"{name}.svg").write_text(text)
    links = [f"plots/{name}.svg" for name in drawn]
    page.write_text(render(rows, links, (_FOLDER / "peers.md").read_text()))


@click.command()
@click.argument("runs", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=RUNS)
@click.option("--page", type=click.Path(dir_okay=False, path_type=Path), default=_FOLDER / "RESULTS.md")
def main(runs: Path, page: Path) -> None:
    """Write the page of results from RUNS, which `python -m benchmarks.table --save RUNS` has written."""
    write_page(load_rows(runs), page)


if __name__ == "__main__":
    main()
