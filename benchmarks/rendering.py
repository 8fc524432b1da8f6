"""Measured rows as a page: one table, and what no figure can say. See `results.py`.

A row is an object as `table.py` saves it: `row_object` of a `Row`, with `name`, `bound` and `machine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.figures import mib

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
        f"{mib(measured['peak_tree_bytes']):,.0f}",
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
