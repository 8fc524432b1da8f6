"""What ledger and SQL sink ask of PostgreSQL's driver alike."""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL


def connect_options(url: URL) -> dict[str, Any]:
    """Options by which a server that is gone without a word is noticed within a minute: what the URL does not
    say itself. Nothing for other drivers.
    """
    if url.drivername != "postgresql+psycopg":
        return {}
    options: dict[str, Any] = {"connect_timeout": 15, "tcp_user_timeout": 60_000}
    options |= {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
    options["application_name"] = "tidegate"
    return {name: value for name, value in options.items() if name not in url.query}
