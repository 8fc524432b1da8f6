"""Which generation of a pipeline is in charge; where a generation began, and since when it is dropped."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("tidegate_heads", sa.Column("dropped_at", sa.Float))
    op.add_column("tidegate_heads", sa.Column("origin_generation", sa.Integer))
    op.add_column("tidegate_heads", sa.Column("origin_seq", sa.BigInteger))
    op.create_table(
        "tidegate_promotions",
        sa.Column("pipeline", sa.String(200), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("first_seq", sa.BigInteger, nullable=False),
        sa.Column("replaced_seq", sa.BigInteger, nullable=False),
        sa.Column("is_net", sa.Boolean, nullable=False),
        sa.Column("run_id", sa.String(300), nullable=False),
        sa.Column("decided_at", sa.Float, nullable=False),
    )
