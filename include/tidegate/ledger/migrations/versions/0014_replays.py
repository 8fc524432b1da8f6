"""What was decided of records in quarantine: replayed by which batch, or discarded, by whom and why."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("tidegate_plans", sa.Column("replay", sa.JSON()))
    op.create_table(
        "tidegate_resolutions",
        sa.Column("pipeline", sa.String(200), primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("manifest_bytes", sa.BigInteger, nullable=False),
        sa.Column("manifest_digest", sa.String(64), nullable=False),
        sa.Column("file_rows", sa.BigInteger, nullable=False),
        sa.Column("file_bytes", sa.BigInteger, nullable=False),
        sa.Column("first_batch", sa.BigInteger, nullable=False),
        sa.Column("last_batch", sa.BigInteger, nullable=False),
        sa.Column("decided_by", sa.String(300), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("decided_at", sa.Float, nullable=False),
    )
