"""Rows of an outbox into a table of PostgreSQL: one by one, and through a staging table.

    python -m benchmarks.sql_rows postgresql+psycopg://user:password@host/database

Each turn is one transaction with all rows into a new table, first the one way and then the other; the ratio
is that of one turn. Tables of the benchmark are dropped at its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from unittest import mock

import click
import pyarrow as pa

from benchmarks.figures import show_table, spread_text, teller
from tidegate.sinks.sql.database import Database
from tidegate.sinks.sql.layout import Layout, Target
from tidegate.sinks.sql.write import TableWriter, write

CHUNK_ROWS = 65_536
_VALUE = pa.struct([("quantity", pa.int64()), ("price", pa.float64()), ("region", pa.string())])
_KEY_COLUMNS = pa.struct([("id", pa.int64())])


def emissions(first: int, rows: int) -> pa.RecordBatch:
    """Return a part of an outbox; always the same for the same numbers."""
    values = [
        {"quantity": row % 1000, "price": row / 7, "region": "north"} for row in range(first, first + rows)
    ]
    return pa.record_batch(
        {
            "key": pa.array([str(row) for row in range(first, first + rows)]),
            "key_columns": pa.array([{"id": row} for row in range(first, first + rows)], _KEY_COLUMNS),
            "value": pa.array(values, _VALUE),
            "timestamp": pa.repeat(1, rows),
            "source": pa.repeat("stock/0/1", rows),
            "window_start": pa.nulls(rows, pa.int64()),
            "window_end": pa.nulls(rows, pa.int64()),
        }
    )


def seconds(url: str, mode: str, staged: bool, chunks: list[pa.RecordBatch]) -> float:
    """Return the seconds that one transaction with all rows takes. The table is new."""
    layout = Layout(Target("tidegate_benchmark", mode, True, False), chunks[0].schema)
    least = 0 if staged else 2**62
    with (
        Database(url, "URL") as database,
        mock.patch("tidegate.sinks.sql.dialects.postgresql.STAGED_ROWS", least),
    ):
        with database.transaction() as connection:
            layout.table.create(connection)
        try:
            start = time.perf_counter()
            with database.transaction() as connection:
                for number, chunk in enumerate(chunks):
                    rows = layout.rows(database.dialect, chunk, ("benchmark/1", 1), number * CHUNK_ROWS)
                    write(TableWriter(connection, layout), layout, rows, pa.repeat(False, len(chunk)))
            return time.perf_counter() - start
        finally:
            with database.transaction() as connection:
                layout.table.drop(connection)


def show_ways(
    ways: Mapping[str, Callable[[str], float]], turns: int, title: str, say: Callable[[str], None]
) -> None:
    """Measure two ways in turns, for two modes of a table, and show the seconds of both.

    Args:
        ways: A name and a function, which takes the mode and returns the seconds. The ratio is that of the
            second to the first.
    """
    lines = []
    for mode in ("append", "upsert"):
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(1, turns + 1):
            for name, way in ways.items():
                say(f"{mode}, {name}, turn {turn} of {turns}")
                taken[name].append(way(mode))
        first, second = taken.values()
        ratios = [later / before for before, later in zip(first, second, strict=True)]
        columns = {f"{name}, s": spread_text(times) for name, times in taken.items()}
        lines.append({"mode": mode, **columns, "ratio": f"{median(ratios):.2f}"})
    show_table(lines, title)


@click.command()
@click.argument("url")
@click.option("--rows", default=4 * CHUNK_ROWS, show_default=True)
@click.option("--turns", default=3, show_default=True)
def main(url: str, rows: int, turns: int) -> None:
    """Measure both ways beside each other in the database at URL."""
    chunks = [emissions(first, min(CHUNK_ROWS, rows - first)) for first in range(0, rows, CHUNK_ROWS)]
    ways = {
        "one by one": lambda mode: seconds(url, mode, False, chunks),
        "staged": lambda mode: seconds(url, mode, True, chunks),
    }
    show_ways(ways, turns, f"{rows:,} rows", teller())


if __name__ == "__main__":
    main()
