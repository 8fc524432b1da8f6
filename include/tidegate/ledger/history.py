"""Remove rows of old batches from the ledger. The commit and the run of a batch stay: see docs/decisions."""

from __future__ import annotations

from sqlalchemy import Connection, Select, and_, delete, func, select

from tidegate.ledger import schema
from tidegate.ledger.records import Stream
from tidegate.ledger.rows import charge_in, in_stream, promotions_of

_ANY = 2**62
"""Later than any batch."""
_WITH_THE_PLAN = (
    *(schema.attempts, schema.failures, schema.metrics, schema.publications, schema.quality),
    schema.plans,
)


def remove_batches(connection: Connection, stream: Stream, before: int, most: int) -> int:
    """Remove plan, attempts, failures, metrics, publications and quality results of old batches.

    The oldest batches go first. A batch is removable if it is before `before`, before the newest state that
    was given up (so nobody can read or compute from it), and will not be published any more. Commit and run
    of all batches stay. Returns the number of batches that were removed; 0 means that none is left to remove.

    Args:
        connection: an open transaction that can write.
        before: this batch and later ones stay in any case.
        most: the largest number of batches that this call removes.
    """
    end = min(before, _newest_given_up(connection, stream), _first_to_go_out(connection, stream))
    seqs = list(connection.execute(_removable(stream, end).limit(most)).scalars())

    for table in _WITH_THE_PLAN if seqs else ():
        connection.execute(delete(table).where(in_stream(table, stream), table.c.seq.in_(seqs)))
    superseded = and_(in_stream(schema.snapshots, stream), schema.snapshots.c.seq < end)
    connection.execute(delete(schema.snapshots).where(superseded))
    return len(seqs)


def count_removable(connection: Connection, stream: Stream, before: int) -> int:
    """Return how many batches `remove_batches` would remove if it was called until it returns 0."""
    end = min(before, _newest_given_up(connection, stream), _first_to_go_out(connection, stream))
    batches = _removable(stream, end).subquery()
    return connection.execute(select(func.count()).select_from(batches)).scalar_one()


def newest_publication(connection: Connection, stream: Stream) -> int:
    """Return the newest batch that a sink has; 0 if none."""
    table = schema.publications
    query = select(func.max(table.c.seq)).where(in_stream(table, stream))
    return connection.execute(query).scalar() or 0


def _first_to_go_out(connection: Connection, stream: Stream) -> int:
    """Return the first batch that may still have to be published: now, when it is sent again, or after a
    promotion.
    """
    sent_again = select(schema.heads.c.send_from).where(in_stream(schema.heads, stream))
    return min(_first_of_charge(connection, stream), connection.execute(sent_again).scalar() or _ANY)


def _first_of_charge(connection: Connection, stream: Stream) -> int:
    """Return the first batch that may still have to be published, apart from batches that are sent again."""
    charge = charge_in(connection.execute(promotions_of(stream.pipeline)))
    if charge.withholds(stream.generation):
        # A promotion would publish all that comes after: these outboxes are still needed.
        return charge.released(stream.generation) + 1
    if charge.promotions:
        return max(newest_publication(connection, stream), charge.promotions[-1].first_seq)
    return _ANY


def _newest_given_up(connection: Connection, stream: Stream) -> int:
    table = schema.snapshots
    query = select(func.max(table.c.seq)).where(in_stream(table, stream), table.c.given_up_at.is_not(None))
    return connection.execute(query).scalar() or 0


def _removable(stream: Stream, end: int) -> Select[tuple[int]]:
    """Return the query for the batches before `end` that still have a plan and are not needed as a whole.

    Two kinds are needed. The last batch that each sink, or each part of a sink, got something of: if the
    sink's progress is lost, tidegate searches the sink for this batch. And the last batch that was planned
    with each version of the pipeline: the versions describe which tables exist, and the history of their
    columns.
    """
    plans, sinks = schema.plans, schema.sink_heads
    of_sinks = select(sinks.c.seq).where(in_stream(sinks, stream))
    of_versions = select(func.max(plans.c.seq)).where(in_stream(plans, stream)).group_by(plans.c.spec_hash)
    old = and_(in_stream(plans, stream), plans.c.seq < end)
    needed = and_(plans.c.seq.not_in(of_sinks), plans.c.seq.not_in(of_versions))
    return select(plans.c.seq).where(old, needed).order_by(plans.c.seq)
