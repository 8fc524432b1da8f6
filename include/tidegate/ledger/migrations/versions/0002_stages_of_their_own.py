"""Times per stage, drained batches, pinned lookups. Counts become per stage as well; old ones stay flat."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("tidegate_attempts", sa.Column("times", sa.JSON))
    op.add_column("tidegate_plans", sa.Column("drain", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column(
        "tidegate_plans", sa.Column("lookups", sa.JSON, nullable=False, server_default=sa.text("'{}'"))
    )
