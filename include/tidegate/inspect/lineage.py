"""What batches read and wrote, for catalogs of lineage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.app.root import App
from tidegate.batch.freshness import P50, P95
from tidegate.ledger import Attempt, Plan, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.ledger.report import read_offsets
from tidegate.model.pipeline import Pipeline
from tidegate.sinks.port import Dataset, OpenSink, topic_dataset
from tidegate.storage.schema import KEY_COLUMNS, VALUE


@dataclass(frozen=True)
class TopicRead:
    """A topic that batches have read.

    Args:
        columns: name -> type, as the pipeline declares them.
        ranges: partition -> [start, end) of all batches together.
    """

    dataset: Dataset
    columns: Mapping[str, str]
    ranges: Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Freshness:
    """The ages of the newest batch's emissions when they went out, in seconds.

    Args:
        p50: The median.
        p95: 95 % of the emissions were not older.
        bound: What `freshness` of the pipeline allows for `p95`.
    """

    p50: float
    p95: float
    bound: float


@dataclass(frozen=True)
class SinkWritten:
    """A sink that batches have written to.

    Args:
        columns: name -> type; without a type if nothing was emitted.
        records: The number of messages or rows that the sink has of the batches.
        freshness: None without `freshness` in the pipeline file, and if the newest batch emitted nothing.
    """

    dataset: Dataset
    columns: Mapping[str, str | None]
    records: int
    of_last_stage: bool
    freshness: Freshness | None = None


@dataclass(frozen=True)
class Lineage:
    """The lineage of consecutive batches of a stream."""

    topics: Sequence[TopicRead] = ()
    sinks: Sequence[SinkWritten] = ()


def batch_lineage(app: App, stream: Stream, seqs: Sequence[int]) -> Lineage:
    """Return the lineage of these batches, as far as they exist, the oldest first.

    Raises SettingsInvalid, PlanUnreadable, LakeDamaged, LakeUnavailable.
    """
    plans = [plan for seq in seqs if (plan := app.ledger.plan(stream, seq)) is not None]
    if not plans:
        return Lineage()
    # The file can be edited between two batches; a catalog shows the newest columns.
    pipeline = planned_pipeline(plans[-1])
    attempt = app.ledger.attempt(stream, plans[-1].seq)
    published = [app.ledger.publications(stream, plan.seq) for plan in plans]
    freshness = _freshness(app, plans[-1], pipeline)
    return Lineage(
        topics=_topics(app, plans),
        sinks=[
            SinkWritten(
                dataset=sink.dataset,
                columns=_columns(sink, plans[-1], attempt),
                records=sum(records.get(sink.name, 0) for records in published),
                of_last_stage=sink.gets_emissions and sink.stage == pipeline.stages[-1],
                freshness=freshness if sink.gets_emissions else None,
            )
            for sink in app.sinks(stream, pipeline)
        ],
    )


def _freshness(app: App, plan: Plan, pipeline: Pipeline) -> Freshness | None:
    if pipeline.freshness is None:
        return None
    metrics = app.ledger.metrics(plan.stream, plan.seq)
    if ("", P95) not in metrics:
        return None
    return Freshness(metrics["", P50], metrics["", P95], pipeline.freshness.p95_ms / 1000)


def _topics(app: App, plans: Sequence[Plan]) -> list[TopicRead]:
    sources = planned_pipeline(plans[-1]).sources
    servers = app.settings.kafka(sources.connection).servers
    columns = {
        name: {column.name: column.type for column in source.columns} for name, source in sources.items()
    }
    ranges = read_offsets(part for plan in plans for part in plan.ranges)
    # Also topics that the newest plan no longer has, if an earlier batch has read them.
    topics = dict.fromkeys([*sources.topics, *ranges])
    return [
        TopicRead(topic_dataset(servers, topic), columns[sources.name_of(topic)], ranges.get(topic, {}))
        for topic in topics
    ]


def _columns(sink: OpenSink[Any], plan: Plan, attempt: Attempt | None) -> Mapping[str, str | None]:
    """Return the key's columns, if the sink sends them, and the emitted ones; none for the topic of dead
    letters.
    """
    if not sink.gets_emissions:
        return {}
    # The files have the types that Spark gave; the pipeline file alone does not tell all of them.
    outbox = sink.outbox(plan, attempt) if attempt is not None else None
    if outbox is None or not outbox.files:
        return dict.fromkeys(sink.stage.emitted)
    structs = [KEY_COLUMNS, VALUE] if sink.declared.with_key else [VALUE]
    return {field.name: str(field.type) for struct in outbox.schema(structs) for field in struct.type}
