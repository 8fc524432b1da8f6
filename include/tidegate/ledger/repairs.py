"""What remedies change in the ledger, within transactions that hold the epoch."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, and_, delete, func, insert, select, update

from tidegate.ledger import schema
from tidegate.ledger.records import GivenUp, Lease, Stream
from tidegate.ledger.rows import of

_KEPT = (schema.heads, schema.identity, schema.promotions, schema.recoveries, schema.sinks)
_OF_BATCHES = tuple(table for table in schema.metadata.tables.values() if table not in _KEPT)


def send_again(connection: Connection, stream: Stream, sink: str, seq: int, identity: str | None) -> None:
    """Let a sink lack all batches from batch `seq` on.

    The sink itself says what it has before them: the ledger asks nothing of it, until the next batch is out.
    """
    for table in (schema.publications, schema.given_up):
        later = and_(of(table, stream), table.c.sink == sink, table.c.seq >= seq)
        connection.execute(delete(table).where(later))
    heads, sink_heads, sinks = schema.heads, schema.sink_heads, schema.sinks
    connection.execute(delete(sink_heads).where(of(sink_heads, stream), sink_heads.c.sink == sink))
    earlier = func.coalesce(heads.c.send_from, seq + 1) > seq
    connection.execute(update(heads).where(of(heads, stream), earlier).values(send_from=seq))
    if identity is not None:
        this = and_(of(sinks, stream), sinks.c.sink == sink)
        connection.execute(update(sinks).where(this).values(identity=identity))


def give_up(connection: Connection, stream: Stream, given_up: GivenUp, now: float) -> None:
    """Record what a sink never gets of a batch, which counts as published to it from then on."""
    key: dict[str, Any] = {"pipeline": stream.pipeline, "generation": stream.generation}
    key |= {"seq": given_up.seq, "sink": given_up.sink}
    published = {"records": given_up.sent, "published_at": now}
    connection.execute(insert(schema.publications).values(key | published))
    connection.execute(insert(schema.given_up).values(vars(given_up) | key | {"given_up_at": now}))


def remove_stream(connection: Connection, lease: Lease, now: float) -> bool:
    """Remove a stream's rows, and end its lease. False where the lease is another's by now.

    What stays says that there was one, so that nobody uses its number again, and what it read and where it
    published: its messages must not count as those of another stream.
    """
    heads, stream = schema.heads, lease.stream
    nothing: dict[str, Any] = {"seq": 0, "offsets": {}, "epochs": {}, "clocks": {}, "send_from": None}
    nothing |= {"expired_seq": None, "expired_at": None, "holder": None, "lease_until": None}
    ended = connection.execute(
        update(heads)
        .where(of(heads, stream), heads.c.epoch == lease.epoch)
        .values(nothing | {"epoch": lease.epoch + 1, "dropped_at": now})
    )
    for table in _OF_BATCHES:
        connection.execute(delete(table).where(of(table, stream)))
    return ended.rowcount == 1


def forget_promotions(connection: Connection, pipeline: str) -> bool:
    """Remove a pipeline's promotions. False where one of its generations is not dropped."""
    heads, promotions = schema.heads, schema.promotions
    live = select(heads.c.generation).where(heads.c.pipeline == pipeline, heads.c.dropped_at.is_(None))
    connection.execute(delete(promotions).where(promotions.c.pipeline == pipeline))
    return connection.execute(live).first() is None
