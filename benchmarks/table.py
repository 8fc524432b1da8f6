"""The table of figures: whole batches beside Kafka Streams, and on states that are there already.

`python -m benchmarks.table --help`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import click

from benchmarks.beside_streams import measure_cold, measure_warm
from benchmarks.events import Load
from benchmarks.figures import show_json, teller
from benchmarks.stored import measure_changelogs, measure_huge_state, measure_large_state
from benchmarks.turns import Row, Say, row_object, show_row
from tidegate.errors import TidegateError


@dataclass(frozen=True)
class Entry:
    """A row's name stands for what it measures, on which load."""

    measure: Callable[[Load, int, str, Say], list[Row]]
    load: Load


ENTRIES = {
    "3m": Entry(measure_cold, Load(3_000_000, 100_000)),
    "10m": Entry(measure_cold, Load(10_000_000, 1_000_000)),
    "30m": Entry(measure_cold, Load(30_000_000, 1_000_000)),
    "warm": Entry(measure_warm, Load(3_000_000, 100_000)),
    "large-state": Entry(measure_large_state, Load(100_000, 10_000_000)),
    "huge-state": Entry(measure_huge_state, Load(10_000, 100_000_000)),
    "changelogs": Entry(measure_changelogs, Load(10_000, 100_000)),
}


@click.command()
@click.argument("rows", nargs=-1, type=click.Choice(list(ENTRIES)), metavar=f"[{'|'.join(ENTRIES)}]...")
@click.option("--events", type=click.IntRange(1), help="Events of a batch, instead of the row's own.")
@click.option(
    "--keys", type=click.IntRange(1), help="Products that they are about, instead of the row's own."
)
@click.option("--turns", default=3, show_default=True, help="Turns of each program.")
@click.option("--master", default="local[*]", show_default=True, help="Spark's.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(
    rows: tuple[str, ...], events: int | None, keys: int | None, turns: int, master: str, json_wanted: bool
) -> None:
    """Measure rows of the table, or all of them. Programs take turns; each is a process of its own."""
    say = teller()
    measured = []
    for name in rows or ENTRIES:
        entry = ENTRIES[name]
        load = replace(entry.load, events=events or entry.load.events, keys=keys or entry.load.keys)
        try:
            found = entry.measure(load, turns, master, say)
        except TidegateError as error:
            raise click.ClickException(str(error)) from error
        measured += found
        for row in [] if json_wanted else found:
            show_row(row)
    if json_wanted:
        show_json({"rows": [row_object(row) for row in measured]})


if __name__ == "__main__":
    main()
