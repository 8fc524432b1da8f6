"""The ledger of a long-lived process, such as a web server, opened once; again if its file is replaced."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from sqlalchemy import make_url

from tidegate.ledger.ledger import Ledger


def current_ledger(url: str) -> Ledger:
    """Return the ledger at a URL for reading, with one connection pool for all callers.

    A ledger without tables is opened again at each call, so that the page shows the tables as soon as they
    exist. A SQLite file is opened again if another file has taken its place. Raises SettingsInvalid and
    LedgerUnavailable as `Ledger.open_for_reading` does.
    """
    return _opened(url, _file_identity(url))


@lru_cache(maxsize=2)
def _cached(url: str, _: tuple[int, int] | None) -> Ledger:
    # The second argument is only part of the cache's key: another file at this URL is another ledger.
    ledger = Ledger.open_for_reading(url)
    if not ledger.is_stored:
        raise _NoTablesYet(ledger)  # lru_cache does not cache a call that raises
    return ledger


def _opened(url: str, identity: tuple[int, int] | None) -> Ledger:
    try:
        return _cached(url, identity)
    except _NoTablesYet as empty:
        return empty.ledger


def _file_identity(url: str) -> tuple[int, int] | None:
    """Return device and inode of SQLite's file; None if it has no file, or on PostgreSQL."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database or not Path(parsed.database).exists():
        return None
    stat = Path(parsed.database).stat()
    return stat.st_dev, stat.st_ino


class _NoTablesYet(Exception):
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
