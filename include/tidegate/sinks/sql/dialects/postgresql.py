"""PostgreSQL. Many rows come by COPY."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from sqlalchemy import JSON, URL, Connection, Table, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from tidegate.postgres import connect_options
from tidegate.sinks.sql.dialects.base import Row, SqlDialect, Writer, inserting, replacing, sqlstate
from tidegate.sinks.sql.dialects.staging import StagedWriter

# SQLSTATE classes of errors about a row: data, integrity, a view's check; and single ones: a value is too
# long for an index, a trigger has raised an error
_OF_A_ROW = ("22", "23", "44", "54000", "P0001")
STAGED_ROWS = 1_000
"""From so many rows on they are staged: for fewer, a temporary table costs more than it saves."""


class Postgresql(SqlDialect):
    title = "PostgreSQL"
    driver = "psycopg"
    longest_name = 63
    # an index entry, with the window's numbers and headers, must fit into a third of a page of 8 KiB
    longest_key = 2_600
    has_zero_character = False
    json_name = "JSONB"
    has_arrays = True
    can_try_rows = True
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
        return _Copy(connection, table) if connection.exec_driver_sql(allowed).scalar() else None


class _Copy(StagedWriter):
    """Loads rows by COPY."""

    schema = "pg_temp"

    def load(self, staged: Table, rows: Sequence[Row]) -> None:
        from psycopg.sql import SQL, Identifier  # only with PostgreSQL is it installed

        names = SQL(", ").join(Identifier(column.name) for column in staged.columns)
        table = Identifier(*filter(None, (self._table.schema, self._table.name)))
        # `LIKE` would also copy NOT NULL of columns that only the sink's table fills
        create = (
            "CREATE TEMPORARY TABLE {staged} ON COMMIT DROP AS SELECT {columns} FROM {table} WITH NO DATA"
        )
        parts = {"staged": _identifier(staged), "table": table, "columns": names}
        with _driver_cursor(self._connection) as cursor:
            cursor.execute(SQL(create).format(**parts))
            with cursor.copy(SQL("COPY {staged} ({columns}) FROM STDIN").format(**parts)) as copy:
                for row in rows:
                    copy.write_row(tuple(row.values()))

    def drop(self, staged: Table) -> None:
        from psycopg.sql import SQL

        with _driver_cursor(self._connection) as cursor:
            cursor.execute(SQL("DROP TABLE {}").format(_identifier(staged)))


def _identifier(staged: Table) -> Any:
    from psycopg.sql import Identifier

    return Identifier(str(staged.schema), staged.name)


@contextmanager
def _driver_cursor(connection: Connection) -> Iterator[Any]:
    """Give psycopg's own cursor, since SQLAlchemy has no COPY. Its errors become those of SQLAlchemy."""
    from psycopg import Error

    driver: Any = connection.connection.driver_connection
    try:
        with driver.cursor() as cursor:
            yield cursor
    except Error as error:
        raise DBAPIError.instance(
            None, None, error, Error, hide_parameters=True, connection_invalidated=driver.closed
        ) from error


DIALECT = Postgresql()
