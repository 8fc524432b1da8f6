"""What has to be set before a step is started: the connections of the databases that it publishes to."""

from __future__ import annotations

from tidegate.ledger import LedgerReader, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.spec import Pipeline


def sql_connections(ledger: LedgerReader, stream: Stream, *more: Pipeline) -> set[str | None]:
    """The SQL connections that the sinks of a stream's last and planned batches, and of `more`, go to."""
    head = ledger.head(stream).seq
    plans = [ledger.plan(stream, seq) for seq in (head, head + 1)]
    pipelines = [*more, *(planned_pipeline(plan) for plan in plans if plan is not None)]
    return {name for pipeline in pipelines for sink in pipeline.sinks for name in sink.connections}
