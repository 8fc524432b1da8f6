"""MySQL and MariaDB, with tables of InnoDB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from sqlalchemy import JSON, REAL, URL, Connection, Engine, Float, Table, event, inspect, text
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from tidegate.errors import SinkUnavailable
from tidegate.sinks.sql.dialects.base import Json, SqlDialect, Unusable, has_type

# Codes of the server: read-only, shutting down, too many connections, no space, waits for a lock, deadlock,
# killed. Codes from 2000 to 2999 are the client's, about the connection.
# fmt: off
_PASSING = frozenset((
    1020, 1021, 1023, 1026, 1028, 1030, 1037, 1038, 1040, 1041, 1043, 1045, 1053, 1077, 1079, 1080,
    1114, 1129, 1135, 1152, 1153, 1158, 1159, 1160, 1161, 1180, 1181, 1184, 1203, 1205, 1206, 1213,
    1226, 1290, 1317, 1836, 1927, 1969, 3024, 3100, 3101, 4031,
))
# Codes about a row: null, a second row, no partition, too large, a number out of range, a text too long, a
# wrong value, a view's check, foreign keys, what a trigger raises, JSON, checks.
_OF_A_ROW = frozenset((
    1048, 1062, 1118, 1216, 1217, 1264, 1265, 1292, 1366, 1367, 1369, 1406, 1411, 1441, 1451, 1452,
    1526, 1586, 1644, 1690, 1748, 3140, 3141, 3819, 4025,
))
# fmt: on
# Without the strict mode, the server cuts what does not fit, and says so in a warning.
_SQL_MODE = "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
_LOCK = "tidegate_tables"
_ANSWER_S = 600
"""A server that does not answer a statement for so long is taken for dead."""


class Mysql(SqlDialect):
    title = "MySQL or MariaDB"
    driver = "pymysql"
    has_transactional_ddl = False
    ignores_case = True
    refused_in_names = "%"  # pymysql formats it in some parts of a statement, and not in others
    longest_name = 64
    json_name = "JSON"
    deepest_json = 31  # MariaDB's limit; MySQL's is 100
    has_nan = False
    has_infinity = False
    counts_upserts = False  # a replaced row counts as two
    can_try_rows = True
    most_values = 10_000
    measures_bytes = False
    longest_key = 750
    """In characters: InnoDB indexes 3,072 bytes, and a character has up to four."""

    def connect_options(self, url: URL, wait_s: float) -> dict[str, Any]:
        if url.get_driver_name() != "pymysql":
            return {}
        options = {"connect_timeout": 15, "read_timeout": _ANSWER_S, "write_timeout": _ANSWER_S}
        return {name: value for name, value in options.items() if name not in url.query}

    def prepare(self, engine: Engine) -> None:
        @event.listens_for(engine, "connect")
        def _connect(connection: Any, _record: Any) -> None:
            with connection.cursor() as cursor:
                cursor.execute(f"SET SESSION sql_mode = '{_SQL_MODE}', time_zone = '+00:00'")

    def begin(self, connection: Connection, wait_s: float, idle_s: float) -> None:
        # `wait_timeout` also ends a session that is idle within a transaction
        wait, idle = max(1, round(wait_s)), max(1, round(idle_s))
        limits = {"innodb_lock_wait_timeout": wait, "lock_wait_timeout": wait, "wait_timeout": idle}
        settings = ", ".join(f"{name} = {seconds}" for name, seconds in limits.items())
        connection.exec_driver_sql(f"SET SESSION {settings}")

    def lock_for_changes(self, connection: Connection) -> None:
        # A lock of the session, since each change of a table commits. Closing the session releases it.
        wait = connection.exec_driver_sql("SELECT @@lock_wait_timeout").scalar()
        if (
            connection.execute(text("SELECT GET_LOCK(:name, :wait)"), {"name": _LOCK, "wait": wait}).scalar()
            != 1
        ):
            raise SinkUnavailable(
                f"Another process has held the lock {_LOCK!r} of the database for {wait} s",
                "Run again when it is done; nothing is lost or sent twice.",
            )

    def is_temporary(self, error: DBAPIError) -> bool:
        code = _code(error)
        return code in _PASSING or 2000 <= code < 3000

    def refuses_row(self, error: DBAPIError) -> bool:
        return _code(error) in _OF_A_ROW

    def column_type(self, type_: pa.DataType) -> TypeEngine[Any]:
        if pa.types.is_decimal(type_):
            return mysql.DECIMAL(type_.precision, type_.scale)
        if pa.types.is_timestamp(type_):
            return mysql.DATETIME(fsp=6)  # in UTC; TIMESTAMP ends in the year 2038
        if pa.types.is_float32(type_) or pa.types.is_float64(type_):
            return mysql.DOUBLE()
        if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
            return mysql.LONGBLOB()
        if pa.types.is_primitive(type_):
            return super().column_type(type_)
        # MySQL's JSON has decimals as doubles; MariaDB's is a text.
        if pa.types.is_nested(type_) and not has_type(type_, pa.types.is_decimal):
            return Json(self.json_name)
        return mysql.LONGTEXT(charset="utf8mb4")

    def name_type(self, engine_dialect: Any, longest: int | None) -> TypeEngine[Any]:
        # The usual collations ignore case, accents and spaces at the end: keys that differ would be one.
        is_mariadb = getattr(engine_dialect, "is_mariadb", False)
        collation = "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin"
        if longest is None:
            return mysql.LONGTEXT(charset="utf8mb4", collation=collation)
        return mysql.VARCHAR(longest, charset="utf8mb4", collation=collation)

    def lacks_room(self, existing: TypeEngine[Any], type_: pa.DataType) -> bool:
        would_round = isinstance(existing, JSON) and has_type(type_, pa.types.is_decimal)
        return would_round or super().lacks_room(existing, type_)

    def arrow_type(self, type_: TypeEngine[Any]) -> pa.DataType | None:
        if isinstance(type_, Float):
            return pa.float32() if isinstance(type_, mysql.FLOAT | REAL) else pa.float64()
        return super().arrow_type(type_)

    def widening(self, table: str, column: str, type_: str) -> str:
        return f"Run `ALTER TABLE {table} MODIFY COLUMN {column} {type_}`; then run again, nothing is lost."

    def check_existing(self, connection: Connection, table: Table, mode: str) -> Unusable | None:
        engine = _stated(connection, table, "engine", "tables")
        if engine != "InnoDB":
            return Unusable(
                f"its engine is {engine}, which has no transactions", "Run ALTER TABLE … ENGINE = InnoDB"
            )
        if mode == "append":
            return None
        collation = _stated(connection, table, "collation_name", "columns", "AND column_name = 'key'")
        if collation is not None and not collation.endswith(("_nopad_bin", "_0900_bin")):
            exact = self.name_type(connection.dialect, self.longest_key).compile(connection.dialect)
            return Unusable(
                f"its column key has the collation {collation}, to which keys that differ can be one",
                f"Give it the type {exact}",
            )
        unique = [
            index["name"]
            for index in inspect(connection).get_indexes(table.name, table.schema)
            if index["unique"] and set(index["column_names"]) != {column.name for column in table.primary_key}
        ]
        if mode == "history" or not unique:
            return None
        # ON DUPLICATE KEY UPDATE would replace the row of another key there, or leave a row out.
        return Unusable(
            f"its unique index {unique[0]} lets a row replace that of another key, or be left out",
            "Drop the index, or write to another table",
        )

    def upsert(self, table: Table, key: Sequence[str]) -> Any:
        statement = mysql.insert(table)
        changed = {column.key: statement.inserted[column.key] for column in table.c if column.key not in key}
        return statement.on_duplicate_key_update(changed)

    def insert_missing(self, table: Table, key: Sequence[str]) -> Any:
        # not INSERT IGNORE, which makes warnings of all errors
        return mysql.insert(table).on_duplicate_key_update({key[0]: table.c[key[0]]})


def _stated(connection: Connection, table: Table, what: str, view: str, condition: str = "") -> str | None:
    """Return what the database says of an existing table or a column of it."""
    query = (
        f"SELECT {what} FROM information_schema.{view} "
        f"WHERE table_schema = coalesce(:schema, DATABASE()) AND table_name = :name {condition}"
    )
    stated: str | None = connection.execute(
        text(query), {"schema": table.schema, "name": table.name}
    ).scalar()
    return stated


def _code(error: DBAPIError) -> int:
    arguments = getattr(error.orig, "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], int) else 0


DIALECT = Mysql()
