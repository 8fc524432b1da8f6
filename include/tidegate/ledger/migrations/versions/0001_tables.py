"""The ledger's tables, as `tidegate.ledger.schema` declares them."""

from alembic import op

from tidegate.ledger.schema import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
