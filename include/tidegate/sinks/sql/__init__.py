"""Write emissions as rows of a table in PostgreSQL, SQLite or another database, exactly once."""

from tidegate.sinks.sql.database import Database, dialect_of
from tidegate.sinks.sql.layout import COLUMNS, Layout, Target
from tidegate.sinks.sql.progress import Shard, SqlProgress
from tidegate.sinks.sql.publisher import SqlPublisher
from tidegate.sinks.sql.schema import check_emissions

__all__ = [
    "COLUMNS",
    "Database",
    "Layout",
    "Shard",
    "SqlProgress",
    "SqlPublisher",
    "Target",
    "check_emissions",
    "dialect_of",
]
