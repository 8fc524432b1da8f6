"""Read the version of the ledger's schema, and migrate a database to this version's schema.

A database without tables is an empty ledger. Only `migrate` changes an older schema: a newer tidegate that is
started beside an older one must not change the tables that the older one uses.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from tidegate.errors import SettingsInvalid
from tidegate.failpoints import failpoint
from tidegate.redaction import shown_url

SCRIPTS = Path(__file__).parent / "migrations"
SCHEMA_REVISION = "0001"
_LOCK = 745369  # an arbitrary number, tidegate's own among PostgreSQL's advisory locks


def schema_revision(engine: Engine) -> str | None:
    """Return the revision of the database's schema; None if it has no tables yet."""
    with engine.connect() as connection:
        return _revision(connection)


def migrate(engine: Engine) -> tuple[str | None, str]:
    """Bring the schema to `SCHEMA_REVISION`, in one transaction; returns the revision before and after.

    Raises SettingsInvalid for a schema that this version does not know.
    """
    revision = schema_revision(engine)
    if revision == SCHEMA_REVISION:
        return revision, revision
    if revision is not None:
        _require_known(engine, revision)
    # Imported late: only the first use of a database needs it.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    with engine.connect() as connection, connection.begin() as transaction:
        if engine.dialect.name == "postgresql":
            # If two processes are the first users, the second one waits here and finds the tables.
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        config.attributes["connection"] = connection
        command.upgrade(config, SCHEMA_REVISION)
        with failpoint("ledger.migrate"):
            transaction.commit()
    return revision, SCHEMA_REVISION


def require_current(engine: Engine, revision: str) -> None:
    """Raise SettingsInvalid if the schema is not that of this version; its message says what to do."""
    _require_known(engine, revision)
    if revision != SCHEMA_REVISION:
        raise SettingsInvalid(
            f"The ledger {shown_url(engine.url)} has schema {revision}; "
            f"this tidegate needs {SCHEMA_REVISION}",
            "Let the older tidegate end its work, then run `tidegate migrate`, as the database's owner, or "
            "trigger the DAG tidegate_maintenance, whose first task does the same.",
        )


def _require_known(engine: Engine, revision: str) -> None:
    """Raise SettingsInvalid for the schema of a newer tidegate: it must never count as an empty ledger."""
    # Revisions are numbers as texts of one length, so texts compare as their numbers do.
    if revision > SCHEMA_REVISION:
        raise SettingsInvalid(
            f"The ledger {shown_url(engine.url)} has schema {revision}; "
            f"this tidegate reads {SCHEMA_REVISION}",
            "Use the version of tidegate that last wrote to it, or a newer one.",
        )


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("tidegate_schema"):
        return None
    return connection.execute(text("SELECT version_num FROM tidegate_schema")).scalar()
