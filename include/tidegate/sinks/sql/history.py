"""Say in a table with `mode: history` how long each version of a key was valid.

A row is a version: it is valid from its own timestamp until that of the key's next version. A deletion is a
version, too, which is never current. So everything follows from the rows alone, and a version that arrives
late takes its place, in whatever batches the versions came.
"""

from __future__ import annotations

from sqlalchemy import Connection, Select, TableClause, and_, column, func, not_, or_, select, table, update

from tidegate.sinks.sql.layout import DELETED, EMITTED, IS_CURRENT, VALID_FROM, VALID_TO, Target
from tidegate.storage.schema import KEY, ORDINAL


def update_validity(connection: Connection, target: Target, batch: tuple[str, int] | None = None) -> None:
    """Set `valid_to` and `is_current` of the keys that a batch has a version of.

    Args:
        connection: A connection within the transaction that has written the versions.
        target: A table with `mode: history`.
        batch: The stream and the batch, as the rows have them; None: set those of all keys.
    """
    names = [*target.key, *target.entry, EMITTED, VALID_FROM, VALID_TO, IS_CURRENT, DELETED]
    rows = table(target.name, *map(column, dict.fromkeys(names)), schema=target.schema)
    ends = _ends(target, rows, batch).subquery("ends")
    is_row = and_(*(rows.c[name] == ends.c[name] for name in target.key))
    validity = {
        VALID_FROM: rows.c[EMITTED],
        VALID_TO: ends.c.ends,
        IS_CURRENT: and_(ends.c.ends.is_(None), not_(rows.c[DELETED])),
    }
    # Most versions of a key stay as they are: a database would write a row anew even so.
    differs = or_(*(rows.c[name].is_distinct_from(value) for name, value in validity.items()))
    connection.execute(update(rows).where(is_row, differs).values(validity))


def _ends(target: Target, rows: TableClause, batch: tuple[str, int] | None) -> Select[tuple[object, ...]]:
    """Return, for each row, when its key's next version begins; null for the newest."""
    versions = rows.alias("versions")
    # Of one instant, a later generation has the later version: `p/9` comes before `p/10`.
    generation = [func.length(versions.c["stream"]), versions.c["stream"]]
    next_begins = func.lead(versions.c[EMITTED]).over(
        partition_by=[versions.c[name] for name in target.entry],
        order_by=[versions.c[EMITTED], *generation, versions.c["batch"], versions.c[ORDINAL]],
    )
    query = select(*(versions.c[name] for name in target.key), next_begins.label("ends"))
    if batch is None:
        return query
    written = rows.alias("written")
    stream, seq = batch
    of_batch = and_(written.c["stream"] == stream, written.c["batch"] == seq)
    return query.where(versions.c[KEY].in_(select(written.c[KEY]).where(of_batch)))
