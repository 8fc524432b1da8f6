"""Measure the table of figures: whole batches beside peers, and batches on an existing state.

`python -m benchmarks.table --help`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchmarks.beside_peers import measure_cold, measure_kept, measure_warm
from benchmarks.events import Load
from benchmarks.figures import machine, show_json, teller
from benchmarks.on_cluster import measure_cluster
from benchmarks.peers import (
    BARE_JOB,
    BATCHES,
    DUCKDB,
    RATE_LIMIT,
    STRUCTURED_STREAMING,
    STRUCTURED_STREAMING_BY_MERGE,
    SUMS,
    WINDOWS,
)
from benchmarks.results import save_option, save_rows
from benchmarks.stored import measure_changelogs, measure_huge_state, measure_large_state
from benchmarks.turns import Row, Say, row_object, show_row
from tidegate.errors import TidegateError

Measure = Callable[[Load, int, str, Say], list[Row]]


@dataclass(frozen=True)
class Entry:
    """A row's name stands for what it measures, on which load. `bound`: the largest ratio of the medians that
    is accepted, of an entry with one row.
    """

    measure: Measure
    load: Load
    bound: float | None = None


_BACKLOG = Load(3_000_000, 100_000)
_SMALL = Load(10_000, 10_000)
_FIVE_MILLION = Load(5_000_000, 100_000)
# a busy product, one in a hundred, has 20 events a second and reaches the count; the others reach the minute
_VISITS = Load(5_000_000, 50_000, value_bytes=1_000, busy=0.01, span_ms=250_000)
# six hours of seven are closed; one event in ten is late, by up to twice the grace
_HOURS = Load(5_000_000, 100_000, span_ms=7 * 3_600_000, late_ms=20 * 60_000)
# more products than may wait in the two partitions' buffers
_POSITIONS = Load(5_000_000, 2_500)

ENTRIES = {
    "1m": Entry(measure_cold, Load(1_000_000, 100_000), bound=1.0),
    "3m": Entry(measure_cold, _BACKLOG, bound=0.85),
    "10m": Entry(measure_cold, Load(10_000_000, 1_000_000), bound=0.6),
    "30m": Entry(measure_cold, Load(30_000_000, 1_000_000), bound=0.45),
    "warm": Entry(measure_warm, _BACKLOG, bound=0.45),
    "duckdb": Entry(partial(measure_cold, rival=DUCKDB), _BACKLOG),
    "8-partitions": Entry(measure_cold, Load(3_000_000, 100_000, partitions=8)),
    "32-partitions": Entry(measure_cold, Load(3_000_000, 100_000, partitions=32), bound=1.0),
    "hot-key": Entry(measure_cold, Load(3_000_000, 100_000, busy=0.0), bound=1.0),
    "wide": Entry(measure_cold, Load(3_000_000, 100_000, value_bytes=1_000), bound=1.0),
    "threshold": Entry(partial(measure_cold, job=BATCHES), _VISITS, bound=0.4),
    "window": Entry(partial(measure_cold, job=WINDOWS), _HOURS, bound=0.4),
    "update": Entry(partial(measure_cold, job=SUMS), _FIVE_MILLION, bound=0.5),
    "rate-limit": Entry(partial(measure_cold, job=RATE_LIMIT), _POSITIONS, bound=0.7),
    # the bound is for the better of the two, hence for both
    "spark": Entry(partial(measure_cold, rival=STRUCTURED_STREAMING), _BACKLOG, bound=0.6),
    "spark-merge": Entry(partial(measure_cold, rival=STRUCTURED_STREAMING_BY_MERGE), _BACKLOG, bound=0.6),
    "small": Entry(measure_cold, _SMALL, bound=1.5),
    "small-warm": Entry(measure_kept, _SMALL, bound=0.8),
    "small-spark": Entry(partial(measure_cold, rival=STRUCTURED_STREAMING), _SMALL),
    "small-spark-merge": Entry(partial(measure_cold, rival=STRUCTURED_STREAMING_BY_MERGE), _SMALL),
    "small-bare": Entry(partial(measure_cold, rival=BARE_JOB), _SMALL, bound=1.5),
    "cluster": Entry(measure_cluster, Load(10_000_000, 1_000_000)),
    "large-state": Entry(measure_large_state, Load(100_000, 10_000_000)),
    "state-1m": Entry(measure_huge_state, Load(10_000, 1_000_000)),
    "state-10m": Entry(measure_huge_state, Load(10_000, 10_000_000)),
    "huge-state": Entry(measure_huge_state, Load(10_000, 100_000_000), bound=1.5),
    "changelogs": Entry(measure_changelogs, Load(10_000, 100_000), bound=1.3),
}


@click.command()
@click.argument("rows", nargs=-1, type=click.Choice(list(ENTRIES)), metavar="[ROW]...")
@click.option("--events", type=click.IntRange(1), help="Events of a batch, instead of the row's own.")
@click.option(
    "--keys", type=click.IntRange(1), help="Products that they are about, instead of the row's own."
)
@click.option("--turns", default=3, show_default=True, help="Turns of each program.")
@click.option("--master", default="local[*]", show_default=True, help="Spark's.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
@save_option
def main(
    rows: tuple[str, ...],
    events: int | None,
    keys: int | None,
    turns: int,
    master: str,
    json_wanted: bool,
    save: Path | None,
) -> None:
    """Measure rows of the table, or all of them. Programs take turns; each is a process of its own.

    The rows are listed in benchmarks/README.md.
    """
    say = teller()
    objects = []
    for name in rows or ENTRIES:
        entry = ENTRIES[name]
        load = replace(entry.load, events=events or entry.load.events, keys=keys or entry.load.keys)
        try:
            measured = entry.measure(load, turns, master, say)
        except TidegateError as error:
            raise click.ClickException(str(error)) from error
        saved = [_saved(name, entry, load, row) for row in measured]
        objects += saved
        if save is not None:
            save_rows(save, saved)
        for row in [] if json_wanted else measured:
            show_row(row)
    if json_wanted:
        show_json({"rows": objects})


def _saved(name: str, entry: Entry, load: Load, row: Row) -> dict[str, Any]:
    """A row as `rendering` takes it. A bound holds for the entry's own load."""
    return {
        "name": name,
        "bound": entry.bound if load == entry.load else None,
        "machine": machine(),
        **row_object(row),
    }


if __name__ == "__main__":
    main()
