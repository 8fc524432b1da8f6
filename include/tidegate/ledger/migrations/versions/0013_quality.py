"""What quality suites have found of each batch."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "tidegate_quality",
        sa.Column("pipeline", sa.String(200), primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("try_number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("check_number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("expectation", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.String(100), nullable=False),
        sa.Column("suite", sa.String(100), nullable=False),
        sa.Column("suite_digest", sa.String(64), nullable=False),
        sa.Column("target", sa.String(400), nullable=False),
        sa.Column("type", sa.String(200), nullable=False),
        sa.Column("column_names", sa.JSON, nullable=False),
        sa.Column("severity", sa.String(20), nullable=False),
        sa.Column("passed", sa.Boolean, nullable=False),
        sa.Column("observed", sa.Text, nullable=False),
        sa.Column("evaluated_rows", sa.BigInteger),
        sa.Column("unexpected_rows", sa.BigInteger),
        sa.Column("unexpected_share", sa.Float),
        sa.Column("failing", sa.JSON, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("page", sa.Text),
        sa.Column("checked_at", sa.Float, nullable=False),
    )
