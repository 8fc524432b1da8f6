"""The tables: their names and layout, and readers that need no JVM."""

from tidegate.lake.layout import Lake, attempt_name
from tidegate.lake.reader import AttemptFiles, attempt_files, newest_per_key, on_disk, read_attempts

__all__ = [
    "AttemptFiles",
    "Lake",
    "attempt_files",
    "attempt_name",
    "newest_per_key",
    "on_disk",
    "read_attempts",
]
