"""The newest batch that each sink got something of: no longer looked for in all publications."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_PER_PRODUCER = 100_000
_MOST_PRODUCERS = 4


def upgrade() -> None:
    op.create_table(
        "tidegate_sink_heads",
        sa.Column("pipeline", sa.String(200), primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True),
        sa.Column("sink", sa.String(300), primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
    )
    for part in range(_MOST_PRODUCERS):
        name = f"sink || '#{part}'" if part else "sink"
        op.execute(
            "INSERT INTO tidegate_sink_heads (pipeline, generation, sink, seq) "
            f"SELECT pipeline, generation, {name}, max(seq) FROM tidegate_publications "
            f"WHERE records > {part * _PER_PRODUCER} GROUP BY pipeline, generation, sink"
        )
