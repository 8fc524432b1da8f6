"""A file system in memory, for files that many processes write and flush."""

from __future__ import annotations

import shutil
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 8 << 30


def folder_in_memory() -> Path | None:
    """Return a folder whose files are in memory; None if there is none with enough space.

    Brokers, databases and ledgers wait for the disk at each commit, which takes a third of the time of many
    tests. No test takes the power away, so a file system in memory shows the same.
    """
    is_large = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _ENOUGH_BYTES
    return _MEMORY if is_large else None
