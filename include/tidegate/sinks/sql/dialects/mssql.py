"""SQL Server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Table, text
from sqlalchemy.dialects import mssql
from sqlalchemy.dialects.mssql import DATETIME2, DATETIMEOFFSET
from sqlalchemy.types import TypeEngine

from tidegate.sinks.sql.dialects.base import SqlDialect
from tidegate.sinks.sql.dialects.merge import Merge


class SqlServer(SqlDialect):
    title = "SQL Server"
    add_column = "ADD"
    ignores_case = True
    longest_name = 128
    has_nan = False
    has_infinity = False
    # an index entry has 900 bytes, with the window's numbers and two bytes for each character
    measures_bytes = False
    longest_key = 400

    def begin(self, connection: Connection, wait_s: float, idle_s: float) -> None:
        connection.exec_driver_sql(f"SET LOCK_TIMEOUT {round(wait_s * 1000)}")

    def lock_for_changes(self, connection: Connection) -> None:
        lock = "EXEC sp_getapplock @Resource = :name, @LockMode = 'Exclusive', @LockOwner = 'Transaction'"
        connection.execute(text(lock), {"name": "tidegate_tables"})

    def column_type(self, type_: pa.DataType) -> TypeEngine[Any]:
        if pa.types.is_timestamp(type_):
            has_zone = type_.tz is not None
            return DATETIMEOFFSET(6) if has_zone else DATETIME2(6)  # type: ignore[no-untyped-call]
        if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_nested(type_):
            return mssql.NVARCHAR(None)
        return super().column_type(type_)

    def name_type(self, engine_dialect: Any, longest: int | None) -> TypeEngine[Any]:
        # the usual collations ignore case
        return mssql.NVARCHAR(longest, collation="Latin1_General_100_BIN2")

    def upsert(self, table: Table, key: Sequence[str]) -> Any:
        # HOLDLOCK: between the look for a row and its insertion, no other session inserts it
        return Merge(table, key, hint=" WITH (HOLDLOCK) AS", end=";")


DIALECT = SqlServer()
