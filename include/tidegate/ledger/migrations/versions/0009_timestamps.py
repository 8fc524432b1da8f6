"""Timestamps that an output topic took when a batch was planned."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column(
        "tidegate_plans", sa.Column("timestamps", sa.JSON, nullable=False, server_default=sa.text("'{}'"))
    )
