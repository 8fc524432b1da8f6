"""Transactions of others that keep a source from being read any further: who holds which one open."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tidegate.app.root import App
from tidegate.broker.log import KafkaLog, TopicView
from tidegate.broker.transactions import OpenTransaction
from tidegate.spec import Pipeline

STALLED_MS = 300_000
"""Open for longer than this is worth a warning. Producers give up after 1 to 15 minutes, as they are set."""


def stalled_transactions(app: App, pipeline: Pipeline) -> list[str]:
    """A sentence for each partition of the source that ends at a transaction which is open for long.

    One that no coordinator knows counts as such. Raises TopicMissing, BrokerUnavailable.
    """
    with app.log(pipeline.source.connection) as log:
        return stalled_in(log, [log.view(topic) for topic in pipeline.source.topics])


def stalled_in(log: KafkaLog, views: Sequence[TopicView]) -> list[str]:
    """Return the messages for topics whose views are given. It asks Kafka only if a transaction is open."""
    now_ms = time.time_ns() // 1_000_000
    return [
        _described(txn, now_ms)
        for view in views
        for txn in log.open_transactions(view)
        if txn.started_ms is None or now_ms - txn.started_ms > STALLED_MS
    ]


def _described(txn: OpenTransaction, now_ms: int) -> str:
    where = f"{{}} --topic {txn.topic} --partition {txn.partition}"
    what = f"{txn.topic}[{txn.partition}] can be read only up to offset {txn.offset}"
    if txn.producer_id is None:
        look = where.format("describe-producers")
        return f"{what}, where a transaction is open. To find its producer: kafka-transactions.sh {look}"
    abort = f"kafka-transactions.sh {where.format('abort')} --start-offset {txn.offset}"
    if txn.started_ms is None:
        return f"{what}: producer {txn.producer_id} left a transaction that nobody can end. End it: {abort}"
    minutes = (now_ms - txn.started_ms) / 60_000
    return (
        f"{what}: the producer {txn.transactional_id} (id {txn.producer_id}) has had a transaction open "
        f"for {minutes:.0f} minutes. Let it commit or abort; if it no longer runs: {abort}"
    )
