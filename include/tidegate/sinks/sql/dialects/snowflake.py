"""Snowflake. It enforces no keys, so publishers take a lock before they look for a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    FromClause,
    LargeBinary,
    String,
    Table,
    Text,
    and_,
    cast,
    column,
    delete,
    exists,
    func,
    insert,
    inspect,
    null,
    select,
    table,
    text,
    update,
    values,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeDecorator, TypeEngine

from tidegate.errors import SinkRefused
from tidegate.sinks.sql.dialects.base import Json, NamedType, Row, SqlDialect, Unusable, Writer, parameters
from tidegate.sinks.sql.dialects.merge import Merge
from tidegate.sinks.sql.dialects.staging import changed_rows

# Another process has created the same table or column since this one looked.
_EXISTS_ALREADY = (2002, 1430)
_MOST_ROWS = 1_000
_MOST_BYTES = 400_000
"""The most bytes of values in a statement: Snowflake takes 1 MB, and the driver escapes some characters."""
_SESSION: dict[str, Any] = {
    # A column without a time zone in a table of your own gets UTC, and not the time of the account.
    "TIMEZONE": "UTC",
    # Dates and times are sent as ISO 8601, which an account can have another format for.
    "DATE_INPUT_FORMAT": "AUTO",
    "TIMESTAMP_INPUT_FORMAT": "AUTO",
    # An account can let quoted names be the same in any case.
    "QUOTED_IDENTIFIERS_IGNORE_CASE": False,
}

_lock = table("tidegate_lock", column("changes"))
"""One row, which publishers update before they read or write a progress row.

Snowflake lets two transactions insert the same key. An UPDATE of an existing row holds its lock until the
transaction ends, and each statement after it sees all that was committed before that statement began.
"""


class Snowflake(SqlDialect):
    title = "Snowflake"
    plugin = "snowflake.sqlalchemy"
    package = "snowflake-sqlalchemy"
    has_transactional_ddl = False
    has_indexes = False
    refused_in_names = "%"  # SQLAlchemy's dialect doubles it, which the driver undoes only in some statements
    longest_name = 255
    has_zero_character = False  # the driver writes texts into the statement
    counts_upserts = False
    most_values = 10_000
    json_name = "VARIANT"

    def connect_options(self, url: URL, wait_s: float) -> dict[str, Any]:
        session = _SESSION | {"LOCK_TIMEOUT": max(1, round(wait_s))}
        return {"autocommit": False, "session_parameters": session}

    def lock_for_changes(self, connection: Connection) -> None:
        if not inspect(connection).has_table(_lock.name):
            # with its row in one statement, since a change of tables commits by itself
            connection.execute(text(f"CREATE TABLE {_lock.name} AS SELECT 0 AS changes"))
        self._take_lock(connection)

    def is_temporary(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "errno", None) in _EXISTS_ALREADY or super().is_temporary(error)

    def column_type(self, type_: pa.DataType) -> TypeEngine[Any]:
        if pa.types.is_timestamp(type_):
            # plain TIMESTAMP is what the account says
            return NamedType("TIMESTAMP_TZ" if type_.tz is not None else "TIMESTAMP_NTZ")
        return super().column_type(type_)

    def name_type(self, engine_dialect: Any, longest: int | None) -> TypeEngine[Any]:
        # no collation: a schema can have one that ignores case
        return _ExactText("VARCHAR COLLATE ''")

    def is_other_kind(self, existing: TypeEngine[Any], type_: pa.DataType) -> bool:
        # A VARIANT takes any value, and a text in it is no JSON.
        is_variant = existing.__visit_name__ == "VARIANT"
        return (is_variant and not pa.types.is_nested(type_)) or super().is_other_kind(existing, type_)

    def widening(self, table: str, column: str, type_: str) -> str:
        return (
            f"Let {column} of {table} have the type {type_}, in a new column if need be; then run again, "
            "nothing is lost."
        )

    def check_existing(self, connection: Connection, table: Table, mode: str) -> Unusable | None:
        query = (
            "SELECT collation_name FROM information_schema.columns WHERE upper(column_name) = 'KEY' "
            "AND upper(table_schema) = coalesce(upper(:schema), current_schema()) "
            "AND upper(table_name) = upper(:name)"
        )
        collation = connection.execute(text(query), {"schema": table.schema, "name": table.name}).scalar()
        if mode == "append" or collation in (None, "", "utf8"):
            return None
        return Unusable(
            f"its column key has the collation {collation}, to which keys that differ can be one",
            "Make the table anew with a key of the type VARCHAR COLLATE ''",
        )

    def add_key(self, name: str, table: str, columns: str) -> str:
        return f"ALTER TABLE {table} ADD CONSTRAINT {name} UNIQUE ({columns})"

    def inserted(self, connection: Connection, table: Table, row: Row) -> bool:
        self._take_lock(connection)
        key = and_(*(column == row[column.key] for column in table.primary_key))
        if connection.execute(select(table).where(key)).first() is not None:
            return False
        return super().inserted(connection, table, row)

    def updated(self, connection: Connection, statement: Any) -> int:
        self._take_lock(connection)
        return super().updated(connection, statement)

    def bulk_writer(self, connection: Connection, table: Table, rows: int) -> Writer | None:
        # also for one row: Snowflake takes no PARSE_JSON among the VALUES of an INSERT
        return _ValuesWriter(connection, table)

    def _take_lock(self, connection: Connection) -> None:
        """Wait until no other transaction holds the lock, which this one then has until it ends."""
        if connection.execute(update(_lock).values(changes=_lock.c.changes + 1)).rowcount != 1:
            raise SinkRefused(
                f"The table {_lock.name} must have one row, which publishers lock",
                f"Run: DROP TABLE {_lock.name}; then run again, and tidegate creates it anew.",
            )


class _ExactText(NamedType):
    """A text that is compared by its code points."""


class _ValuesWriter:
    """Writes many rows by one statement, as a list of texts that the statement converts.

    Texts, because the values of such a list's column get one type: numbers of different sizes would be
    rounded.
    """

    def __init__(self, connection: Connection, table: Table) -> None:
        self._connection = connection
        self._table = table

    def insert(self, rows: pa.RecordBatch) -> int:
        changed = 0
        for part in _parts(rows):
            statement = insert(self._table).from_select([*part[0]], select(self._rows(part)))
            changed += changed_rows(self._connection, statement)
        return changed

    def upsert(self, key: Sequence[str], rows: pa.RecordBatch) -> int:
        parts = _parts(rows)
        merges = (Merge(self._table, key, self._rows(part)) for part in parts)
        return sum(changed_rows(self._connection, merge) for merge in merges)

    def insert_missing(self, key: Sequence[str], rows: pa.RecordBatch) -> None:
        for part in _parts(rows):
            new = self._rows(part)
            is_known = exists().where(*self._matches(new, key))
            statement = insert(self._table).from_select([*part[0]], select(new).where(~is_known))
            self._connection.execute(statement)

    def delete(self, keys: pa.RecordBatch) -> int:
        changed = 0
        for part in _parts(keys):
            matches = self._matches(self._rows(part), [*part[0]])
            changed += changed_rows(self._connection, delete(self._table).where(*matches))
        return changed

    def _matches(self, rows: FromClause, key: Sequence[str]) -> Iterator[ColumnElement[bool]]:
        return (self._table.c[name] == rows.c[self._table.c[name].name] for name in key)

    def _rows(self, rows: Sequence[Row]) -> FromClause:
        """Return rows as a subquery, with the names and types of the table's columns."""
        texts = values(*(column(name, Text) for name in rows[0]), name="v").data(
            [tuple(null() if value is None else _text(value) for value in row.values()) for row in rows]
        )
        columns = (
            self._converted(self._table.c[name].type, texts.c[name]).label(self._table.c[name].name)
            for name in rows[0]
        )
        return select(*columns).subquery("s")

    def _converted(self, type_: TypeEngine[Any], value: Any) -> Any:
        if isinstance(type_, TypeDecorator):
            type_ = type_.load_dialect_impl(self._connection.dialect)
        if isinstance(type_, Json):
            return func.parse_json(value, text("'d'"))  # of two fields with one name the last, as elsewhere
        if isinstance(type_, LargeBinary):
            return func.to_binary(value, text("'HEX'"))
        return value if isinstance(type_, String | _ExactText) else cast(value, type_)


def _parts(batch: pa.RecordBatch) -> Iterator[Sequence[Row]]:
    """Split rows so that the values of each part fit into a statement."""
    rows = parameters(batch)
    first, total_bytes = 0, 0
    for place, row in enumerate(rows):
        size = sum(len(_text(value).encode()) for value in row.values() if value is not None)
        if place > first and (total_bytes + size > _MOST_BYTES or place - first >= _MOST_ROWS):
            yield rows[first:place]
            first, total_bytes = place, 0
        total_bytes += size
    if rows:
        yield rows[first:]


def _text(value: Any) -> str:
    """Return the text of a value that is not null: times and dates as ISO 8601, bytes as hex digits."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.isoformat() if isinstance(value, date) else str(value)


DIALECT = Snowflake()
