"""The dry run of a batch: describe what the next batch would read, and write nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from tidegate.app.root import App, stream_of
from tidegate.batch.plan import draft
from tidegate.batch.topics import new_topics
from tidegate.batch.trigger import Trigger
from tidegate.ledger import OffsetRange, Plan
from tidegate.model.pipeline import Pipeline
from tidegate.numerals import counted


def describe_next_batch(app: App, pipeline: Pipeline, trigger: Trigger) -> Iterator[str]:
    """Yield what a run would plan now, or the open plan that goes first. Raises what `draft` raises."""
    stream = stream_of(pipeline)
    waiting = app.ledger.open_plan(stream)
    if waiting is not None:
        yield f"batch {waiting.seq} of {stream} is planned already, by {waiting.run_id}, and goes first:"
        yield from _lines(waiting)
    else:
        head = app.ledger.head(stream)
        plan = draft(app, pipeline, head, trigger)
        yield f"batch {plan.seq} of {stream} would be:"
        yield from _lines(plan)
        if topics := new_topics(pipeline.sources, head, plan.ranges):
            yield f"  new topics, read from their beginning: {', '.join(topics)}"


def _lines(plan: Plan) -> Iterator[str]:
    clock = datetime.fromtimestamp(plan.clock_ms / 1000, timezone.utc).isoformat()
    drained = ", emits what is buffered" if plan.drain else ""
    yield f"  clock {clock}, {counted(plan.span, 'offset')}{drained}"
    yield from (f"  {_range(range_)}" for range_ in plan.ranges)
    yield from (f"  lookup {table}: {pin}" for table, pin in plan.lookups.items())


def _range(offsets: OffsetRange) -> str:
    place = f"{offsets.topic}[{offsets.partition}]"
    if not offsets.span:
        return f"{place}: nothing from {offsets.start} on" + (", some is left" if offsets.is_cut else "")
    left = ", not to the interval's end: its clock waits there" if offsets.is_cut else ""
    return f"{place}: {offsets.start} to {offsets.end - 1}{left}"
