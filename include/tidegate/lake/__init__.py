"""The tables: their names and layout, and readers that need no JVM."""

from tidegate.lake.layout import Lake, attempt_name
from tidegate.lake.reader import newest_per_key, outbox_files, read_attempts

__all__ = ["Lake", "attempt_name", "newest_per_key", "outbox_files", "read_attempts"]
