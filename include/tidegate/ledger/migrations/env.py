"""Alembic's entry: runs on the connection that `database.open_database` hands over."""

from alembic import context

from tidegate.ledger.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table="tidegate_schema",
)
context.run_migrations()
