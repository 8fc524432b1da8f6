"""The clock that was applied to each partition."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    for table in ("tidegate_heads", "tidegate_plans"):
        op.add_column(table, sa.Column("clocks", sa.JSON, nullable=False, server_default=sa.text("'{}'")))
