"""The tables, in the one form that there is so far."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = None


def _stream() -> list[sa.Column[object]]:
    return [
        sa.Column("pipeline", sa.String(200), primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True),
    ]


def _seq() -> sa.Column[object]:
    return sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False)


def _manifest(name: str, is_key: bool = False) -> list[sa.Column[object]]:
    return [
        sa.Column(name, sa.String(100), primary_key=is_key, nullable=False),
        sa.Column("manifest_bytes", sa.BigInteger, nullable=False),
        sa.Column("manifest_digest", sa.String(64), nullable=False),
        sa.Column("file_rows", sa.BigInteger, nullable=False),
        sa.Column("file_bytes", sa.BigInteger, nullable=False),
    ]


def upgrade() -> None:
    op.create_table(
        "tidegate_attempts",
        *_stream(),
        _seq(),
        *_manifest("name", is_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("counts", sa.JSON, nullable=False),
        sa.Column("validated", sa.Boolean),
        sa.Column("computed_at", sa.Float, nullable=False),
        sa.Column("times", sa.JSON, nullable=False),
    )
    op.create_table(
        "tidegate_commits",
        *_stream(),
        _seq(),
        *_manifest("attempt"),
        sa.Column("committed_at", sa.Float, nullable=False),
    )
    op.create_table(
        "tidegate_failures",
        *_stream(),
        _seq(),
        sa.Column("step", sa.String(20), nullable=False),
        sa.Column("error", sa.String(100), nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("fix", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tidegate_heads",
        *_stream(),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.String(300)),
        sa.Column("lease_until", sa.Float),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("offsets", sa.JSON, nullable=False),
        sa.Column("topic_ids", sa.JSON, nullable=False),
        sa.Column("epochs", sa.JSON, nullable=False),
        sa.Column("clocks", sa.JSON, nullable=False),
    )
    op.create_table(
        "tidegate_metrics",
        *_stream(),
        _seq(),
        sa.Column("stage", sa.String(200), primary_key=True),
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("value", sa.Float, nullable=False),
    )
    op.create_table(
        "tidegate_pipelines",
        *_stream(),
        sa.Column("hash", sa.String(64), primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("compiled", sa.Text, nullable=False),
    )
    op.create_table(
        "tidegate_plans",
        *_stream(),
        _seq(),
        sa.Column("run_id", sa.String(300), nullable=False),
        sa.Column("clock_ms", sa.BigInteger, nullable=False),
        sa.Column("believed_until_ms", sa.BigInteger, nullable=False),
        sa.Column("ranges", sa.JSON, nullable=False),
        sa.Column("topic_ids", sa.JSON, nullable=False),
        sa.Column("spec_hash", sa.String(64), nullable=False),
        sa.Column("planned_at", sa.Float, nullable=False),
        sa.Column("drain", sa.Boolean, nullable=False),
        sa.Column("lookups", sa.JSON, nullable=False),
        sa.Column("clocks", sa.JSON, nullable=False),
        sa.Column("timestamps", sa.JSON, nullable=False),
    )
    op.create_table(
        "tidegate_publications",
        *_stream(),
        _seq(),
        sa.Column("sink", sa.String(300), primary_key=True),
        sa.Column("records", sa.BigInteger, nullable=False),
        sa.Column("published_at", sa.Float, nullable=False),
    )
    op.create_table(
        "tidegate_runs",
        *_stream(),
        sa.Column("run_id", sa.String(300), primary_key=True),
        sa.Column("seq", sa.BigInteger),
        sa.Column("note", sa.Text, nullable=False),
    )
    op.create_table(
        "tidegate_sink_heads",
        *_stream(),
        sa.Column("sink", sa.String(300), primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tidegate_sinks",
        *_stream(),
        sa.Column("sink", sa.String(300), primary_key=True),
        sa.Column("identity", sa.String(300), nullable=False),
    )
    op.create_table(
        "tidegate_snapshots",
        *_stream(),
        _seq(),
        *_manifest("name"),
        sa.Column("made_at", sa.Float, nullable=False),
        sa.Column("given_up_at", sa.Float),
    )
