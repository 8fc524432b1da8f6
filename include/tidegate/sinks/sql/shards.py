"""Load the shards of a large batch side by side, each into a table of its own, by Spark tasks.

The publisher then moves all rows to the sink's table, in the transaction that also moves the progress row. So
readers see the whole batch, or nothing of it. The tables of the shards are beside the sink's table. If a
publisher dies, the next large batch of the sink, `tidegate recover` or `tidegate erase` drops the tables that
it left behind.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, MetaData, Table

from tidegate.errors import SinkUnavailable
from tidegate.failpoints import failpoint
from tidegate.sinks.outbox import POSITION, Outbox
from tidegate.sinks.sql.database import Database
from tidegate.sinks.sql.dialects import dialect_named
from tidegate.sinks.sql.dialects.base import IS_DELETION
from tidegate.sinks.sql.layout import COLUMNS, Layout, Target
from tidegate.sinks.sql.progress import ProgressKey
from tidegate.sinks.sql.write import require_all
from tidegate.storage.schema import ORDINAL, VALUE

if TYPE_CHECKING:
    from tidegate.sinks.sql.dialects.copy import OnePerKey, ShardTables


@dataclass(frozen=True)
class LoadTask:
    """The work of one shard, for this process or a Spark task: call `send`.

    Args:
        table: The name of the shard's own table.
        stream: The stream, as rows have it.
        outbox: The emissions of the shard.
    """

    database: Database
    target: Target
    table: str
    stream: str
    outbox: Outbox

    def send(self) -> int:
        """Load the shard's emissions in place of what an earlier try has loaded. Return the table's rows.

        Raises SinkUnavailable, SinkRefused, LakeDamaged, LakeUnavailable.
        """
        layout = Layout(self.target, self.outbox.schema(COLUMNS))
        with self.database as database, database.transaction() as connection, failpoint("sql.load"):
            tables = _require_tables(connection, layout)
            return tables.load(self.table, self._rows(layout), _chosen(layout))

    def _rows(self, layout: Layout) -> Iterator[pa.RecordBatch]:
        batch = (self.stream, self.outbox.plan.seq)
        for emissions in self.outbox.batches((*COLUMNS, POSITION)):
            first = emissions.column(POSITION)[0].as_py()
            rows = layout.rows(self.database.dialect, emissions, batch, first)
            marked = rows.append_column(IS_DELETION, emissions.column(VALUE).is_null())
            # A deletion changes nothing where a row is never replaced.
            is_ignored = not (layout.target.adds_rows or layout.target.overwrites)
            yield marked.filter(pc.invert(marked.column(IS_DELETION))) if is_ignored else marked


def _chosen(layout: Layout) -> OnePerKey | None:
    """Return the row of each key that the sink's table gets; None if it gets all rows."""
    # late: only PostgreSQL has shards
    from tidegate.sinks.sql.dialects.copy import OnePerKey

    if layout.target.adds_rows:
        return None
    key = [layout.keys[name] for name in layout.target.key]
    return OnePerKey(key, layout.keys[ORDINAL], is_last=layout.target.overwrites)


def load_tasks(
    database: Database, layout: Layout, shard: ProgressKey, parts: Sequence[Outbox]
) -> list[LoadTask]:
    """Return a task for each part of an outbox, with names of tables that no other try uses.

    A task of an earlier try can still run: what it loads is in no table of this one.
    """
    names = f"{shard_prefix(shard)}{secrets.token_hex(4)}"
    return [
        LoadTask(database, layout.target, f"{names}_{number}", str(shard.stream), part)
        for number, part in enumerate(parts)
    ]


def shard_prefix(shard: ProgressKey) -> str:
    """Return how the names of all tables of a publisher's shards begin."""
    return f"{pipeline_prefix(shard)}{_digest(shard.name)}_"


def pipeline_prefix(shard: ProgressKey) -> str:
    """Return how the names of all tables of the pipeline's shards begin, of any sink and generation."""
    return f"tidegate_rows_{_digest(shard.stream.pipeline)}_"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:10]


def can_load(connection: Connection, layout: Layout) -> bool:
    """Return whether tasks can load shards: the database has a way, and the user may create tables."""
    return _tables_to_make(connection, layout) is not None


def drop_tables(connection: Connection, target: Target, prefix: str) -> None:
    """Drop the tables of shards whose names begin with the prefix, also those of earlier tries.

    A publisher that loads at the same time fails, and loads again. Raises SinkRefused if another user owns
    one of the tables.
    """
    tables = _tables(connection, Table(target.name, MetaData(schema=target.schema)))
    if tables is not None:
        with failpoint("sql.drop"):
            tables.drop(prefix)


def move_rows(
    connection: Connection, layout: Layout, tasks: Sequence[LoadTask], loaded: Sequence[int]
) -> None:
    """Move the rows of all shards to the sink's table.

    Args:
        connection: A connection within the publisher's transaction.
        loaded: The rows that each task has loaded.

    Raises SinkUnavailable if rows are missing, SinkRefused where the table silently takes fewer.
    """
    tables = _require_tables(connection, layout)
    key = [layout.keys[name] for name in layout.target.key]
    for task, rows in zip(tasks, loaded, strict=True):
        with failpoint("sql.move"):
            live, removed = tables.count(task.table)
            if live + removed != rows:
                raise SinkUnavailable(
                    f"The database in {task.database.variable} has lost rows of {task.table}, which a "
                    "task has loaded: it has restarted after a crash, or another publisher has begun",
                    "Run again: the rows are loaded again, and nothing is lost or sent twice.",
                )
            if layout.target.adds_rows:
                require_all(layout, tables.insert(task.table), rows)
            elif layout.target.overwrites:
                tables.delete(task.table, key)
                require_all(layout, tables.upsert(task.table, key), live)
            else:
                tables.insert_missing(task.table, key)


def _tables(connection: Connection, table: Table) -> ShardTables | None:
    return dialect_named(connection.dialect.name).shard_tables(connection, table)


def _tables_to_make(connection: Connection, layout: Layout) -> ShardTables | None:
    tables = _tables(connection, layout.table)
    return tables if tables is not None and tables.can_be_made() else None


def _require_tables(connection: Connection, layout: Layout) -> ShardTables:
    tables = _tables_to_make(connection, layout)
    if tables is None:
        raise SinkUnavailable(
            f"The right to create tables beside {layout.target.table} was withdrawn while a batch was loaded",
            "Run again: one process publishes the batch then; nothing is lost or sent twice.",
        )
    return tables
