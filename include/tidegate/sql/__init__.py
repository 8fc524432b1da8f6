"""The SQL edge: emissions as rows of a table in PostgreSQL, SQLite or another database, exactly once."""

from tidegate.sql.database import Database, dialect_of
from tidegate.sql.layout import OUTBOX, Layout, Target, check_names
from tidegate.sql.publisher import Shard, SqlPublisher
from tidegate.sql.schema import check_emissions

__all__ = [
    "OUTBOX",
    "Database",
    "Layout",
    "Shard",
    "SqlPublisher",
    "Target",
    "check_emissions",
    "check_names",
    "dialect_of",
]
