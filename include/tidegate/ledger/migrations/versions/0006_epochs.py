"""Leader epochs of what was read last."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column(
        "tidegate_heads", sa.Column("epochs", sa.JSON, nullable=False, server_default=sa.text("'{}'"))
    )
