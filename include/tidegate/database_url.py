"""Read the URL of a database that a user sets, for SQL sinks and catalogs of Iceberg."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError


def database_url(text: str, driver_of: Callable[[str], str | None]) -> URL | None:
    """Return the URL of a database, with a driver; None if the text is not a URL.

    An error about it must not repeat the text, which may hold a password.

    Args:
        driver_of: Returns the driver of a kind of database, if a URL names none; None: SQLAlchemy's own.

    Example: `postgres://me@db/shop` becomes `postgresql+psycopg://me@db/shop`.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        return None
    if url.drivername == "postgres":
        url = url.set(drivername="postgresql")
    driver = driver_of(url.get_backend_name())
    if driver is None or "+" in url.drivername:
        return url
    return url.set(drivername=f"{url.drivername}+{driver}")


def names_no_file(url: URL) -> bool:
    """Return whether the URL of a database that is a file names none: it would be in memory."""
    return url.database in (None, "", ":memory:")
