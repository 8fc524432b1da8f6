"""One outbox into a table of PostgreSQL, exactly once: by one process, and by two Spark tasks.

    python -m benchmarks.sql_shards postgresql+psycopg://user:password@host/database

Each turn writes a new table, first the one way and then the other; the ratio is that of one turn. Where the
server runs on the same machine, it needs the cores that the tasks use. Tables of the benchmark are dropped.
"""

from __future__ import annotations

import time
from functools import partial

import click

from benchmarks.figures import teller
from benchmarks.place import temporary_home
from benchmarks.programs import ResultWrong
from benchmarks.publication import outbox_of, pipeline, warm_up
from benchmarks.sql_rows import show_ways
from tidegate.kafka.shard import SendShards
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.sql.database import Database
from tidegate.sinks.sql.layout import COLUMNS, Layout, Target
from tidegate.sinks.sql.progress import ProgressKey
from tidegate.sinks.sql.schema import progress
from tidegate.sinks.sql.sink import SqlPublisher
from tidegate.spark.batch import send_shards
from tidegate.spark.session import OwnSession
from tidegate.storage.schema import KEY

_SHARDS = 2


def seconds(url: str, mode: str, outbox: Outbox, send: SendShards | None) -> float:
    """Return the seconds of a publication; without `send` one process writes the outbox. The table is new.

    Raises ResultWrong.
    """
    layout = Layout(Target("tidegate_benchmark", mode, False, False), outbox.schema(COLUMNS))
    with Database(url, "URL") as database:
        publisher = SqlPublisher(
            database, ProgressKey("tidegate_benchmark", outbox.plan.stream), layout, lambda *_: None
        )
        try:
            start = time.perf_counter()
            if send is None:
                publisher.publish(1, outbox.attempt, outbox.batches(COLUMNS), 0)
            else:
                publisher.publish_in_shards(outbox, _SHARDS, send, 0)
            taken = time.perf_counter() - start
            with database.reading() as connection:
                rows = connection.exec_driver_sql("SELECT count(*) FROM tidegate_benchmark").scalar()
            expected = outbox.emitted if mode == "append" else len(outbox.table([KEY])[KEY].unique())
            if rows != expected:
                raise ResultWrong(f"the table has {rows} rows, and not {expected}")
            return taken
        finally:
            with database.transaction() as connection:
                layout.table.drop(connection, checkfirst=True)
                progress.drop(connection, checkfirst=True)


@click.command()
@click.argument("url")
@click.option("--rows", default=2_000_000, show_default=True)
@click.option("--turns", default=3, show_default=True)
def main(url: str, rows: int, turns: int) -> None:
    """Measure both ways beside each other in the database at URL, which must have no table of tidegate."""
    with temporary_home() as home, OwnSession(f"local[{_SHARDS}]", None) as own:
        spark = own.open(rows)
        outbox = outbox_of(home, rows, _SHARDS)
        warm_up(spark, _SHARDS)
        send = partial(send_shards, spark, pipeline())
        ways = {
            "one process": lambda mode: seconds(url, mode, outbox, None),
            "two tasks": lambda mode: seconds(url, mode, outbox, send),
        }
        show_ways(ways, turns, f"{rows:,} rows", teller())


if __name__ == "__main__":
    main()
