"""What has to be set before a step is started: the Kafka clusters and databases that it works with."""

from __future__ import annotations

from tidegate.ledger import LedgerReader, Stream
from tidegate.ledger.planned import planned_pipeline, planned_pipelines
from tidegate.spec import Connection, Pipeline


def connections(ledger: LedgerReader, stream: Stream, *more: Pipeline) -> set[Connection]:
    """Return the connections of the pipelines of a stream's last and planned batches, and of `more`.

    If batches may have been withheld, those of all pipelines that batches were planned with.
    """
    head = ledger.head(stream).seq
    plans = [ledger.plan(stream, seq) for seq in (head, head + 1)]
    pipelines = [*more, *(planned_pipeline(plan) for plan in plans if plan is not None)]
    if ledger.charge(stream.pipeline).promotions:
        pipelines += planned_pipelines(ledger, stream)
    return {connection for pipeline in pipelines for connection in pipeline.connections}
