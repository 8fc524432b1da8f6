"""Add columns to an existing table, in the dialect of any database."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Column, Connection

from tidegate.sinks.sql.layout import Target


def add_columns(connection: Connection, target: Target, columns: Iterable[Column[Any]]) -> None:
    """Add empty columns. They allow null, since existing rows have no value for them."""
    operations = Operations(MigrationContext.configure(connection))
    for column in columns:
        operations.add_column(target.name, Column(column.name, column.type), schema=target.schema)
