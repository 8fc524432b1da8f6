"""Measure the table of figures: whole batches beside peers, and batches on an existing state.

`python -m benchmarks.table --help`
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from benchmarks.entries import ENTRIES, Entry
from benchmarks.events import Load
from benchmarks.figures import machine, show_json, teller
from benchmarks.results import save_rows
from benchmarks.turns import Row, row_object, show_row
from tidegate.errors import TidegateError


@click.command()
@click.argument("rows", nargs=-1, type=click.Choice(list(ENTRIES)), metavar="[ROW]...")
@click.option("--events", type=click.IntRange(1), help="Events of a batch, instead of the row's own.")
@click.option(
    "--keys", type=click.IntRange(1), help="Products that they are about, instead of the row's own."
)
@click.option("--turns", default=3, show_default=True, help="Turns of each program.")
@click.option("--master", default="local[*]", show_default=True, help="Spark's.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file for `benchmarks.results`, in which each row that is done takes the place of its last one.",
)
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
