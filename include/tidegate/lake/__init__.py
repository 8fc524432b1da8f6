"""The tables: their names and layout, and readers that need no JVM."""

from tidegate.lake.layout import Lake, Name, attempt_name, snapshot_name
from tidegate.lake.reader import AttemptFiles, OnDisk, attempt_files, newest_per_key, on_disk, read_attempts
from tidegate.lake.removal import names_in, remove_names, vacuum

__all__ = [
    "AttemptFiles",
    "Lake",
    "Name",
    "OnDisk",
    "attempt_files",
    "attempt_name",
    "names_in",
    "newest_per_key",
    "on_disk",
    "read_attempts",
    "remove_names",
    "snapshot_name",
    "vacuum",
]
