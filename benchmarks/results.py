"""The page of results, from rows that `table.py` has saved.

`python -m benchmarks.results --help`
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.growth import plots
from benchmarks.rendering import Saved, render

_FOLDER = Path(__file__).parent
RUNS = _FOLDER / "runs.json"


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
