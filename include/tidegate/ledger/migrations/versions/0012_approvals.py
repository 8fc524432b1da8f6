"""Who has approved a promotion."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("tidegate_promotions", sa.Column("approved_by", sa.String(300)))
