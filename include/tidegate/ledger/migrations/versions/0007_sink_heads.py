"""The newest batch that each sink got something of: no longer looked for in all publications."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "tidegate_sink_heads",
        sa.Column("pipeline", sa.String(200), primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True),
        sa.Column("sink", sa.String(300), primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
    )
    op.execute(
        "INSERT INTO tidegate_sink_heads (pipeline, generation, sink, seq) "
        "SELECT pipeline, generation, sink, max(seq) FROM tidegate_publications "
        "WHERE records > 0 GROUP BY pipeline, generation, sink"
    )
