"""Up to which batch what is in quarantine is read no more, and since when."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("tidegate_heads", sa.Column("expired_seq", sa.BigInteger))
    op.add_column("tidegate_heads", sa.Column("expired_at", sa.Float))
