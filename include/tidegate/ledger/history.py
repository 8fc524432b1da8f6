"""What of a stream's past may leave the ledger: see docs/decisions, "Two rows of a batch stay for ever"."""

from __future__ import annotations

from sqlalchemy import Connection, Select, and_, delete, func, select

from tidegate.ledger import schema
from tidegate.ledger.records import Stream
from tidegate.ledger.rows import charge_in, of, promotions_of

_ANY = 2**62
"""Later than any batch."""
_WITH_THE_PLAN = (
    *(schema.attempts, schema.failures, schema.metrics, schema.publications, schema.quality),
    schema.plans,
)


def remove_batches(connection: Connection, stream: Stream, before: int, most: int) -> int:
    """Remove plan, attempts, failures, metrics, publications and what suites have found of at most `most`
    batches, the oldest first.

    Only of batches before `before`, and before the newest state that was given up: nobody can read or compute
    from what they were; and none that may still have to go out. Of all batches, commit and run are kept.
    Returns how many batches were removed.
    """
    end = min(before, _newest_given_up(connection, stream), _first_to_go_out(connection, stream))
    seqs = list(connection.execute(_removable(stream, end).limit(most)).scalars())
    for table in _WITH_THE_PLAN if seqs else ():
        connection.execute(delete(table).where(of(table, stream), table.c.seq.in_(seqs)))
    superseded = and_(of(schema.snapshots, stream), schema.snapshots.c.seq < end)
    connection.execute(delete(schema.snapshots).where(superseded))
    return len(seqs)


def count_removable(connection: Connection, stream: Stream, before: int) -> int:
    """How many batches `remove_batches` would remove in the end."""
    end = min(before, _newest_given_up(connection, stream), _first_to_go_out(connection, stream))
    batches = _removable(stream, end).subquery()
    return connection.execute(select(func.count()).select_from(batches)).scalar_one()


def newest_publication(connection: Connection, stream: Stream) -> int:
    """The newest batch that a sink has; 0 if none."""
    table = schema.publications
    query = select(func.max(table.c.seq)).where(of(table, stream))
    return connection.execute(query).scalar() or 0


def _first_to_go_out(connection: Connection, stream: Stream) -> int:
    """The first batch that is not known to be out, and may have to go out: now, or after a promotion."""
    sent_again = select(schema.heads.c.send_from).where(of(schema.heads, stream))
    return min(_first_of_charge(connection, stream), connection.execute(sent_again).scalar() or _ANY)


def _first_of_charge(connection: Connection, stream: Stream) -> int:
    """The same of a stream of which nothing is sent again."""
    charge = charge_in(connection.execute(promotions_of(stream.pipeline)))
    if charge.withholds(stream.generation):
        return charge.released(stream.generation) + 1
    if charge.promotions:
        return max(newest_publication(connection, stream), charge.promotions[-1].first_seq)
    return _ANY


def _newest_given_up(connection: Connection, stream: Stream) -> int:
    table = schema.snapshots
    query = select(func.max(table.c.seq)).where(of(table, stream), table.c.given_up_at.is_not(None))
    return connection.execute(query).scalar() or 0


def _removable(stream: Stream, end: int) -> Select[tuple[int]]:
    """The batches before `end` that still have a plan, without those that are needed as a whole.

    Needed are the last that a sink, or a part of one, got something of: where its progress is lost, that is
    looked for in the sink. And the last that was planned with each version of the pipeline: the versions tell
    which tables there are, and how their columns came to be.
    """
    plans, sinks = schema.plans, schema.sink_heads
    of_sinks = select(sinks.c.seq).where(of(sinks, stream))
    of_versions = select(func.max(plans.c.seq)).where(of(plans, stream)).group_by(plans.c.spec_hash)
    old = and_(of(plans, stream), plans.c.seq < end)
    needed = and_(plans.c.seq.not_in(of_sinks), plans.c.seq.not_in(of_versions))
    return select(plans.c.seq).where(old, needed).order_by(plans.c.seq)
