"""After a SQL sink's database has lost something: what its tables hold stays, the rest is sent again."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.ledger import LeasedLedger
from tidegate.spec import SqlSink
from tidegate.steps.app import App, planned_pipeline
from tidegate.steps.outbox import Outbox
from tidegate.steps.sinks import send, sql_database, sql_publisher


def reconcile(app: App, held: LeasedLedger) -> Iterator[str]:
    """Set each SQL sink's progress to the newest batch that its table has, and send the later ones again.

    Yields a sentence for each sink. Raises Halted when a needed outbox is gone, and what `send` raises.
    """
    head = held.head(held.stream)
    plan = held.plan(held.stream, head.seq)
    sinks = [sink for sink in planned_pipeline(plan).sinks if isinstance(sink, SqlSink)] if plan else []
    if not sinks:
        yield f"{held.stream} has published nothing to a SQL sink."
    for sink in sinks:
        yield _reconcile(app, held, sink, head.seq)


def _reconcile(app: App, held: LeasedLedger, sink: SqlSink, head: int) -> str:
    last = held.last_published(held.stream, sink.name)
    published = _outbox(app, held, sink.name, last)
    if published is None:
        return f"{sink.name}: nothing was published yet."
    with sql_database(app, sink) as database:
        found = sql_publisher(database, *published).rebuild_progress()
    again, known = [], found
    for seq in range(found + 1, head + 1):
        missing = _outbox(app, held, sink.name, seq)
        if missing is not None:
            send(app, held, *missing, known)
            held.add_publication(seq, sink.name, missing[1].emitted)
            again.append(seq)
            known = seq
    sent = f"sent again: {', '.join(map(str, again))}" if again else "nothing was missing"
    return f"{sink.name}: its table has batches up to {found}; {sent}."


def _outbox(app: App, held: LeasedLedger, sink: str, seq: int) -> tuple[SqlSink, Outbox] | None:
    """What a batch had for the sink, and the sink as it was then; None if that was nothing."""
    plan, attempt = held.plan(held.stream, seq), held.attempt(held.stream, seq)
    if plan is None or attempt is None:
        return None
    pipeline = planned_pipeline(plan)
    for each in pipeline.sinks:
        if isinstance(each, SqlSink) and each.name == sink:
            outbox = app.outbox(plan, pipeline.stage_of(each), attempt)
            return (each, outbox) if outbox.emitted else None
    return None
