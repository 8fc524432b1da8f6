"""Oracle Database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Table
from sqlalchemy.dialects import oracle
from sqlalchemy.types import TypeEngine

from tidegate.sinks.sql.dialects.base import SqlDialect
from tidegate.sinks.sql.dialects.merge import Merge


class Oracle(SqlDialect):
    title = "Oracle Database"
    driver = "oracledb"
    has_transactional_ddl = False
    add_column = "ADD"
    longest_name = 128
    measures_bytes = False
    longest_key = 1_000

    def begin(self, connection: Connection, wait_s: float, idle_s: float) -> None:
        # The driver sends times without their zone, and Oracle takes them to be in the session's.
        connection.exec_driver_sql("ALTER SESSION SET TIME_ZONE = '+00:00'")

    def column_type(self, type_: pa.DataType) -> TypeEngine[Any]:
        if pa.types.is_timestamp(type_):
            # A key can have a time in the local zone, but none with a zone of its own.
            return oracle.TIMESTAMP(local_timezone=type_.tz is not None)
        if pa.types.is_float32(type_):
            return oracle.BINARY_FLOAT()
        if pa.types.is_float64(type_):
            return oracle.BINARY_DOUBLE()
        if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_nested(type_):
            return oracle.CLOB()
        return super().column_type(type_)

    def name_type(self, engine_dialect: Any, longest: int | None) -> TypeEngine[Any]:
        return oracle.VARCHAR2(longest or 4_000)

    def upsert(self, table: Table, key: Sequence[str]) -> Any:
        return Merge(table, key)


DIALECT = Oracle()
