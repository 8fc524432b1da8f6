"""Changes of the ledger by remedies of `tidegate recover`, inside of transactions that hold the epoch."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, and_, delete, func, insert, select, update

from tidegate.ledger import schema
from tidegate.ledger.records import GivenUp, Lease, Stream
from tidegate.ledger.rows import in_stream

_STAYING = (schema.heads, schema.identity, schema.promotions, schema.recoveries, schema.sinks)
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
    key: dict[str, Any] = {"pipeline": stream.pipeline, "generation": stream.generation}
    key |= {"seq": given_up.seq, "sink": given_up.sink}
    published = {"records": given_up.sent, "published_at": now}
    connection.execute(insert(schema.publications).values(key | published))
    connection.execute(insert(schema.given_up).values(vars(given_up) | key | {"given_up_at": now}))


def remove_stream(connection: Connection, lease: Lease, now: float) -> bool:
    """Remove a stream's rows, and end its lease. Returns False if another process has taken the lease.

    Some rows stay. The head says that the generation existed, so that nobody uses its number again. The sinks
    say where it published: its messages must not count as those of another stream.
    """
    heads, stream = schema.heads, lease.stream
    emptied: dict[str, Any] = {"seq": 0, "offsets": {}, "epochs": {}, "clocks": {}, "send_from": None}
    emptied |= {"expired_seq": None, "expired_at": None, "holder": None, "lease_until": None}
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
