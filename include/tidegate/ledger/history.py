"""Change what the ledger says of earlier batches: remove rows of old batches, and apply the remedies of
`tidegate recover`.

The commit and the run of a removed batch stay: see docs/decisions. A remedy runs inside of a transaction that
holds the epoch.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, and_, delete, func, insert, select, update

from tidegate.ledger import schema
from tidegate.ledger.erasure import require_no_erasure
from tidegate.ledger.facts import EXPIRING, GivenUp
from tidegate.ledger.records import Lease, Stream
from tidegate.ledger.rows import charge_in, greatest, in_stream, promotions_of, stream_key

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
    end = first_needed(connection, stream, before)
    seqs = list(connection.execute(_removable(stream, end).limit(most)).scalars())

    for table in _WITH_THE_PLAN if seqs else ():
        connection.execute(delete(table).where(in_stream(table, stream), table.c.seq.in_(seqs)))
    superseded = and_(in_stream(schema.snapshots, stream), schema.snapshots.c.seq < end)
    connection.execute(delete(schema.snapshots).where(superseded))
    return len(seqs)


def count_removable(connection: Connection, stream: Stream, before: int) -> int:
    """Return how many batches `remove_batches` would remove if it was called until it returns 0."""
    end = first_needed(connection, stream, before)
    batches = _removable(stream, end).subquery()
    return connection.execute(select(func.count()).select_from(batches)).scalar_one()


def first_needed(connection: Connection, stream: Stream, before: int) -> int:
    """Return the first batch that may still be computed from, read as of, or published; at most `before`."""
    return min(before, _newest_given_up(connection, stream), _first_to_go_out(connection, stream))


def newest_publication(connection: Connection, stream: Stream) -> int:
    """Return the newest batch that a sink has; 0 if none."""
    return greatest(connection, schema.publications.c.seq, stream)


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
    return greatest(connection, table.c.seq, stream, table.c.given_up_at.is_not(None))


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


_STAYING = (
    schema.erasures,
    schema.heads,
    schema.identity,
    schema.promotions,
    schema.recoveries,
    schema.sinks,
)
_OF_BATCHES = tuple(table for table in schema.metadata.tables.values() if table not in _STAYING)


def send_again(connection: Connection, stream: Stream, sink: str, seq: int, identity: str | None) -> None:
    """Remove the record that a sink has a batch and later ones, so that they are published again.

    The sink's own progress says what it has before them; the ledger does not compare until the next batch is
    out.

    Args:
        connection: a transaction that holds the epoch.
        seq: the first batch that is published again.
        identity: the new identity of the sink; None: unchanged.
    """
    for table in (schema.publications, schema.given_up):
        later = and_(in_stream(table, stream), table.c.sink == sink, table.c.seq >= seq)
        connection.execute(delete(table).where(later))
    heads, sink_heads, sinks = schema.heads, schema.sink_heads, schema.sinks
    connection.execute(delete(sink_heads).where(in_stream(sink_heads, stream), sink_heads.c.sink == sink))
    # Two sinks can be sent again at once: the earlier batch of both counts.
    is_earlier = func.coalesce(heads.c.send_from, seq + 1) > seq
    connection.execute(update(heads).where(in_stream(heads, stream), is_earlier).values(send_from=seq))
    if identity is not None:
        is_sink = and_(in_stream(sinks, stream), sinks.c.sink == sink)
        connection.execute(update(sinks).where(is_sink).values(identity=identity))


def give_up(connection: Connection, stream: Stream, given_up: GivenUp, now: float) -> None:
    """Record that a sink never gets a batch; from then on the batch counts as published to it.

    Args:
        connection: a transaction that holds the epoch.
        given_up: the batch, the sink, and how much the sink has.
        now: epoch seconds.
    """
    key = stream_key(stream) | {"seq": given_up.seq, "sink": given_up.sink}
    published = {"records": given_up.sent, "published_at": now}
    connection.execute(insert(schema.publications).values(key | published))
    connection.execute(insert(schema.given_up).values(vars(given_up) | key | {"given_up_at": now}))


def remove_stream(connection: Connection, lease: Lease, now: float) -> bool:
    """Remove a stream's rows, and end its lease. Returns False if another process has taken the lease.

    Some rows stay. The head says that the generation existed, so that nobody uses its number again. The sinks
    say where it published: its messages must not count as those of another stream.

    Raises Halted if an erasure of the stream is not finished: its keys would stay in the ledger for good.
    """
    heads, stream = schema.heads, lease.stream
    unfinished = connection.execute(select(heads.c.erasure).where(in_stream(heads, stream))).scalar()
    require_no_erasure(stream, unfinished)
    emptied: dict[str, Any] = {"seq": 0, "offsets": {}, "epochs": {}, "clocks": {}, "send_from": None}
    emptied |= {"erasure": None, "holder": None, "lease_until": None}
    emptied |= {f"{kind}_expired_{part}": None for kind in EXPIRING for part in ("seq", "at")}
    ended = connection.execute(
        update(heads)
        .where(in_stream(heads, stream), heads.c.epoch == lease.epoch)
        # The raised epoch fences every process that still works on the generation.
        .values(emptied | {"epoch": lease.epoch + 1, "dropped_at": now})
    )
    for table in _OF_BATCHES:
        connection.execute(delete(table).where(in_stream(table, stream)))
    return ended.rowcount == 1


def forget_promotions(connection: Connection, pipeline: str) -> bool:
    """Remove a pipeline's promotions. Returns False if one of its generations is not dropped."""
    heads, promotions = schema.heads, schema.promotions
    live = select(heads.c.generation).where(heads.c.pipeline == pipeline, heads.c.dropped_at.is_(None))
    connection.execute(delete(promotions).where(promotions.c.pipeline == pipeline))
    return connection.execute(live).first() is None
