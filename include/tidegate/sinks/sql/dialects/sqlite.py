"""SQLite: a file, with one writer at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from sqlalchemy import URL, Connection, Dialect, Engine, Integer, Numeric, Table, event, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.types import TypeEngine, UserDefinedType

from tidegate.sinks.sql.dialects.base import SqlDialect, Unusable, inserting, replacing

_WRONG_STATEMENT = 1  # SQLITE_ERROR; every other code is about the file or about a row
_OF_A_ROW = (18, 19, 20)  # SQLITE_TOOBIG, SQLITE_CONSTRAINT, SQLITE_MISMATCH
_INEXACT_KEY = """
SELECT x.coll FROM pragma_index_list(:name) i, pragma_index_xinfo(i.name) x
WHERE i."unique" AND x.key AND x.name = 'key' AND x.coll <> 'BINARY'
"""
_EXACT_DIGITS = 15
"""The digits of a decimal that SQLite's numbers store exactly; decimals with more digits are stored as
texts.
"""


class Sqlite(SqlDialect):
    title = "SQLite"
    is_file = True
    ignores_case = True
    can_try_rows = True
    has_nan = False  # it stores NULL instead, without an error

    def connect_options(self, url: URL, wait_s: float) -> dict[str, Any]:
        return {"timeout": wait_s}

    def prepare(self, engine: Engine) -> None:
        """Make transactions include DDL, and allow one writer at a time from BEGIN on.

        Python's driver does neither by default.
        """

        @event.listens_for(engine, "connect")
        def _connect(connection: Any, _record: Any) -> None:
            # Otherwise the driver begins transactions by itself, and not before DDL.
            connection.isolation_level = None

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            # A plain BEGIN takes the write lock late, and may then fail at once instead of waiting.
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    def is_temporary(self, error: DBAPIError) -> bool:
        return isinstance(error, OperationalError) and _code(error) != _WRONG_STATEMENT

    def refuses_row(self, error: DBAPIError) -> bool:
        return _code(error) & 0xFF in _OF_A_ROW  # the higher bits say which constraint it is

    def column_type(self, type_: pa.DataType) -> TypeEngine[Any]:
        return _Decimal(type_.precision) if pa.types.is_decimal(type_) else super().column_type(type_)

    def lacks_room(self, existing: TypeEngine[Any], type_: pa.DataType) -> bool:
        # in SQLite a type only says in which form numbers are stored
        is_number = isinstance(existing, Integer | Numeric)
        return bool(pa.types.is_decimal(type_) and type_.precision > _EXACT_DIGITS and is_number)

    def widening(self, table: str, column: str, type_: str) -> str:
        return f"Write the table anew with {column} as {type_}, which SQLite does not change; then run again."

    def check_existing(self, connection: Connection, table: Table, mode: str) -> Unusable | None:
        collation = connection.execute(text(_INEXACT_KEY), {"name": table.name}).scalar()
        if mode in ("append", "history") or collation is None:
            return None
        return Unusable(
            f"its column key has the collation {collation}, to which keys that differ can be one",
            "Make the table anew with a key of the collation BINARY",
        )

    def upsert(self, table: Table, key: Sequence[str]) -> Any:
        return replacing(sqlite.insert(table), table, key)

    def insert_missing(self, table: Table, key: Sequence[str]) -> Any:
        return inserting(sqlite.insert(table), table, key)


def _code(error: DBAPIError) -> int:
    return int(getattr(error.orig, "sqlite_errorcode", None) or 0)


class _Decimal(UserDefinedType[Any]):
    """An exact decimal: a number up to 15 digits, which SQLite stores exactly, else a text."""

    cache_ok = True

    def __init__(self, precision: int) -> None:
        self.precision = precision

    def get_col_spec(self, **_: Any) -> str:
        return "NUMERIC" if self.precision <= _EXACT_DIGITS else "TEXT"

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any]:
        # As plain digits: the driver binds no Decimal, and its usual text can have an exponent.
        return lambda value: None if value is None else format(value, "f")


DIALECT = Sqlite()
