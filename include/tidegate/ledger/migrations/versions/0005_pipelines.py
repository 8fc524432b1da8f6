"""The pipelines that batches were planned with: each version once, and not with each batch."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "tidegate_pipelines",
        sa.Column("pipeline", sa.String(200), primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True),
        sa.Column("hash", sa.String(64), primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("compiled", sa.Text, nullable=False),
    )
    # what was planned before has no compiled form: it is kept, and cannot be worked on
    op.execute(
        "INSERT INTO tidegate_pipelines (pipeline, generation, hash, text, compiled) "
        "SELECT DISTINCT pipeline, generation, spec_hash, spec_text, '' FROM tidegate_plans"
    )
    op.drop_column("tidegate_plans", "spec_text")
