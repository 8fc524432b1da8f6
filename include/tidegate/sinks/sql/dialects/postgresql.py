"""PostgreSQL. Many rows come by COPY."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from sqlalchemy import JSON, URL, Connection, Table, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from tidegate.postgres import connect_options
from tidegate.sinks.sql.dialects.base import SqlDialect, Unusable, Writer, inserting, replacing, sqlstate
from tidegate.sinks.sql.dialects.copy import CopyWriter, ShardTables

# SQLSTATE classes of errors about a row: data, integrity, a view's check; and single ones: a value is too
# long for an index, a trigger has raised an error
_OF_A_ROW = ("22", "23", "44", "54000", "P0001")
_INEXACT_KEY = """
SELECT format_type(a.atttypid, NULL) || coalesce(' COLLATE ' || c.collname, '')
FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = CAST(:name AS regclass) AND a.attname = 'key'
AND (NOT c.collisdeterministic OR a.atttypid = 'bpchar'::regtype OR format_type(a.atttypid, NULL) ~ 'citext')
"""
"""The type of a column `key` that compares keys by another rule than byte by byte."""
_USABLE_KEYS = """
SELECT array_agg(a.attname::text) FROM pg_index i
CROSS JOIN unnest(i.indkey::int[]) WITH ORDINALITY k (number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = CAST(:name AS regclass) AND i.indisunique AND i.indimmediate AND i.indisvalid
AND i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts GROUP BY i.indexrelid
"""
"""The columns of each unique index that ON CONFLICT can use."""
STAGED_ROWS = 1_000
"""From so many rows on they are staged: for fewer, a temporary table costs more than it saves."""


class Postgresql(SqlDialect):
    title = "PostgreSQL"
    driver = "psycopg"
    longest_name = 63
    taken_names = frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"})
    # an index entry, with the window's numbers and headers, must fit into a third of a page of 8 KiB
    longest_key = 2_600
    has_zero_character = False
    json_name = "JSONB"
    has_arrays = True
    can_try_rows = True
    has_shard_tables = True
    most_values = 10_000

    def connect_options(self, url: URL, wait_s: float) -> dict[str, Any]:
        return connect_options(url)

    def begin(self, connection: Connection, wait_s: float, idle_s: float) -> None:
        # SET LOCAL ends with the transaction, so it works behind a pooler of transactions, too
        for name, seconds in (("lock_timeout", wait_s), ("idle_in_transaction_session_timeout", idle_s)):
            connection.exec_driver_sql(f"SET LOCAL {name} = {round(seconds * 1000)}")
        # A column without a time zone in a table of your own gets UTC, and not the time of the session.
        connection.exec_driver_sql("SET LOCAL TIME ZONE 'UTC'")

    def lock_for_changes(self, connection: Connection) -> None:
        # The number is tidegate's own.
        connection.execute(text("SELECT pg_advisory_xact_lock(745370)"))

    def is_other_kind(self, existing: TypeEngine[Any], type_: pa.DataType) -> bool:
        # PostgreSQL converts no text and no number to JSON. (`JSONB` is a subclass of `JSON`.)
        is_no_json = isinstance(existing, JSON) and not pa.types.is_nested(type_)
        return is_no_json or super().is_other_kind(existing, type_)

    def widening(self, table: str, column: str, type_: str) -> str:
        return (
            f"Run `ALTER TABLE {table} ALTER COLUMN {column} TYPE {type_}`; then run again, nothing is lost."
        )

    def check_existing(self, connection: Connection, table: Table, mode: str) -> Unusable | None:
        if mode in ("append", "history"):  # no row is looked up by its key
            return None
        # not by SQLAlchemy, which doubles `%` for the driver
        names = (part.replace('"', '""') for part in (table.schema, table.name) if part is not None)
        name = {"name": ".".join(f'"{part}"' for part in names)}
        type_ = connection.execute(text(_INEXACT_KEY), name).scalar()
        if type_ is not None:
            return Unusable(
                f"its column key is {type_}, to which keys that differ can be one",
                "Give it the type text with a deterministic collation",
            )
        key = sorted(column.name for column in table.primary_key)
        if key not in (sorted(names) for (names,) in connection.execute(text(_USABLE_KEYS), name)):
            return Unusable(
                "its unique index on the key is of some rows only, or is deferrable, and an upsert takes "
                "neither",
                f"Add a unique index on {', '.join(key)} that is not",
            )
        return None

    def refuses_row(self, error: DBAPIError) -> bool:
        return sqlstate(error).startswith(_OF_A_ROW)

    def begin_trial(self, connection: Connection) -> None:
        connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")

    def upsert(self, table: Table, key: Sequence[str]) -> Any:
        return replacing(postgresql.insert(table), table, key)

    def insert_missing(self, table: Table, key: Sequence[str]) -> Any:
        return inserting(postgresql.insert(table), table, key)

    def bulk_writer(self, connection: Connection, table: Table, rows: int) -> Writer | None:
        if rows < STAGED_ROWS or connection.dialect.driver != "psycopg":
            return None
        # A database can forbid temporary tables.
        allowed = "SELECT has_database_privilege(current_database(), 'TEMPORARY')"
        return CopyWriter(connection, table) if connection.exec_driver_sql(allowed).scalar() else None

    def shard_tables(self, connection: Connection, table: Table) -> ShardTables | None:
        return ShardTables(connection, table) if connection.dialect.driver == "psycopg" else None


DIALECT = Postgresql()
