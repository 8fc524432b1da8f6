"""The last failure of a batch."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "tidegate_failures",
        sa.Column("pipeline", sa.String(200), primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("step", sa.String(20), nullable=False),
        sa.Column("error", sa.String(100), nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("fix", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
    )
