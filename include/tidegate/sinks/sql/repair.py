"""Changes that `tidegate recover` makes in a database: the progress row, and rows that are sent again."""

from __future__ import annotations

from sqlalchemy import Connection, column, delete, func, insert, inspect, select, table, update

from tidegate.failpoints import failpoint
from tidegate.sinks.sql.database import Database
from tidegate.sinks.sql.layout import Target
from tidegate.sinks.sql.progress import Shard
from tidegate.sinks.sql.schema import FORMAT, lock_for_changes, progress


def restart_after(database: Database, shard: Shard, target: Target, seq: int, attempt: str) -> None:
    """Set the progress row to batch `seq`, and delete rows of later batches from a table in mode `append`.

    In mode `upsert`, a row is overwritten when its key is sent again.
    """
    with failpoint("sql.restart"), database.transaction() as connection:
        lock_for_changes(connection)
        progress.create(connection, checkfirst=True)
        connection.execute(delete(progress).where(progress.c.shard == shard.name))
        if seq:
            connection.execute(insert(progress).values(_row(shard, seq, attempt)))
        if target.mode == "append" and inspect(connection).has_table(target.name, target.schema):
            rows = table(target.name, column("stream"), column("batch"), schema=target.schema)
            later = rows.c.batch > seq
            connection.execute(delete(rows).where(rows.c.stream == str(shard.stream), later))


def seal(database: Database, shard: Shard, seq: int, attempt: str) -> int:
    """Set the progress row to batch `seq`, unless it is ahead. Return how many rows of the batch the table
    has.
    """
    with failpoint("sql.seal"), database.transaction() as connection:
        lock_for_changes(connection)
        progress.create(connection, checkfirst=True)
        newest, rows = _progress(connection, shard)
        if newest is None:
            connection.execute(insert(progress).values(_row(shard, seq, attempt)))
        elif newest < seq:
            own_row = progress.c.shard == shard.name
            connection.execute(update(progress).where(own_row).values(_row(shard, seq, attempt)))
        return rows if newest == seq else 0


def _progress(connection: Connection, shard: Shard) -> tuple[int | None, int]:
    query = select(progress.c.seq, progress.c.rows).where(progress.c.shard == shard.name)
    row = connection.execute(query).first()
    return (row.seq, row.rows) if row is not None else (None, 0)


def _row(shard: Shard, seq: int, attempt: str) -> dict[str, object]:
    now = func.current_timestamp()
    row = {"shard": shard.name, "format": FORMAT, "seq": seq, "attempt": attempt or None, "rows": 0}
    return row | {"updated_at": now}
