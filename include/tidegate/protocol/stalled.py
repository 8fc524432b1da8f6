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
    """The same for topics that were looked at already. Asks nothing more where no transaction is open."""
    now_ms = time.time_ns() // 1_000_000
    return [
        _told(each, now_ms)
        for view in views
        for each in log.open_transactions(view)
        if each.started_ms is None or now_ms - each.started_ms > STALLED_MS
    ]


def _told(each: OpenTransaction, now_ms: int) -> str:
    where = f"{{}} --topic {each.topic} --partition {each.partition}"
    what = f"{each.topic}[{each.partition}] can be read only up to offset {each.offset}"
    if each.producer_id is None:
        look = where.format("describe-producers")
        return f"{what}, where a transaction is open. To find its producer: kafka-transactions.sh {look}"
    abort = f"kafka-transactions.sh {where.format('abort')} --start-offset {each.offset}"
    if each.started_ms is None:
        return f"{what}: producer {each.producer_id} left a transaction that nobody can end. End it: {abort}"
    minutes = (now_ms - each.started_ms) / 60_000
    return (
        f"{what}: the producer {each.transactional_id} (id {each.producer_id}) has had a transaction open "
        f"for {minutes:.0f} minutes. Let it commit or abort; if it is gone: {abort}"
    )
