"""The ledger of a process that lives long, such as a web server: opened once, and again if it is another."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from sqlalchemy import make_url

from tidegate.ledger.ledger import Ledger


def current_ledger(url: str) -> Ledger:
    """Return the ledger at a URL for reading, with one pool of connections for all callers.

    One that has no tables yet is opened anew each time, and so is the file of SQLite if another has taken its
    place. Raises as `Ledger.open_for_reading` does.
    """
    return _opened(url, _file_identity(url))


@lru_cache(maxsize=2)
def _cached(url: str, _: tuple[int, int] | None) -> Ledger:
    ledger = Ledger.open_for_reading(url)
    if not ledger.is_stored:
        raise _NoTablesYet(ledger)  # what is raised is not cached
    return ledger


def _opened(url: str, identity: tuple[int, int] | None) -> Ledger:
    try:
        return _cached(url, identity)
    except _NoTablesYet as empty:
        return empty.ledger


def _file_identity(url: str) -> tuple[int, int] | None:
    """Device and inode of SQLite's file; None: there is none."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database or not Path(parsed.database).exists():
        return None
    stat = Path(parsed.database).stat()
    return stat.st_dev, stat.st_ino


class _NoTablesYet(Exception):
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
