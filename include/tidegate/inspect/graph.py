"""The graph of a pipeline: its topics, stages and sinks, and the pipelines around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tidegate.app.root import App
from tidegate.inspect.streams import CatalogEntry
from tidegate.ledger import Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.ledger.report import HistoryEntry, batch_history
from tidegate.model.lookup import Lookup
from tidegate.model.pipeline import Pipeline
from tidegate.model.sources import Sources
from tidegate.model.stage import Stage
from tidegate.sinks.model import SinkModel

MEASURED_BATCHES = 25
"""The newest batches whose records are counted for a rate."""


class NodeKind(Enum):
    """The kinds of nodes."""

    PIPELINE = "pipeline"
    TOPIC = "topic"
    LOOKUP = "lookup"
    STAGE = "stage"
    SINK = "sink"


@dataclass(frozen=True)
class Node:
    """A node of the graph.

    Args:
        id: unique in the graph.
        label: the name of the topic, stage, sink, table or pipeline.
        detail: what it does, such as `latest, emit on change`; "" if the kind says it.
        records: the records, or emissions, of the measured batches; None if nothing counts them.
        rate: the same a second; None if there are fewer than two batches.
        dag_id: the DAG of another pipeline; None for other nodes.
    """

    id: str
    kind: NodeKind
    label: str
    detail: str = ""
    records: int | None = None
    rate: float | None = None
    dag_id: str | None = None


@dataclass(frozen=True)
class Graph:
    """The nodes, and the ids of the nodes at both ends of each edge.

    Args:
        batches: the measured batches.
    """

    nodes: Sequence[Node]
    edges: Sequence[tuple[str, str]]
    batches: int = 0


@dataclass(frozen=True)
class _Traffic:
    """The records of the newest batches by topic, stage and sink, and the seconds between the first and the
    last of their commits.
    """

    topics: Mapping[str, int]
    stages: Mapping[str, int]
    sinks: Mapping[str, int]
    batches: int
    seconds: float | None

    def node(self, node: Node, counts: Mapping[str, int], name: str) -> Node:
        records = counts.get(name, 0) if self.batches else None
        rate = records / self.seconds if records is not None and self.seconds else None
        return Node(node.id, node.kind, node.label, node.detail, records, rate)


def pipeline_graph(app: App, stream: Stream, own: CatalogEntry, entries: Iterable[CatalogEntry]) -> Graph:
    """Return the graph of a stream as it was last planned; before the first plan, as in its file.

    Args:
        own: The entry of the stream.
        entries: The pipelines that may be named: those around it are among them.

    Raises LedgerUnavailable, PlanUnreadable.
    """
    plan = app.ledger.open_plan(stream) or app.ledger.plan(stream, app.ledger.head(stream).seq)
    pipeline = planned_pipeline(plan) if plan is not None else own.pipeline
    if pipeline is None:
        return Graph((), ())
    traffic = _traffic(batch_history(app.ledger, stream, limit=MEASURED_BATCHES + 1))
    nodes: dict[str, Node] = {}
    edges: dict[tuple[str, str], None] = {}
    for node, successors in (*_inner(pipeline, traffic), *_around(pipeline, own, entries)):
        nodes.setdefault(node.id, node)
        edges |= dict.fromkeys(successors)
    return Graph(list(nodes.values()), list(edges), traffic.batches)


def _traffic(newest_first: Sequence[HistoryEntry]) -> _Traffic:
    committed = [entry for entry in newest_first if entry.committed_at_ms is not None]
    # The oldest one only says when the time of the others begins.
    measured = committed[:-1] or committed
    ends = [entry.committed_at_ms or 0 for entry in (committed[0], committed[-1])] if committed else [0, 0]
    topics: dict[str, int] = {}
    stages: dict[str, int] = {}
    sinks: dict[str, int] = {}
    for report in (entry.report for entry in measured if entry.report is not None):
        for part in report.plan.ranges:
            topics[part.topic] = topics.get(part.topic, 0) + part.span
        for name, counts in report.stages.items():
            stages[name] = stages.get(name, 0) + int(counts.get("emitted", 0))
        for name, records in report.published.items():
            sinks[name] = sinks.get(name, 0) + records
    seconds = (ends[0] - ends[1]) / 1000
    return _Traffic(topics, stages, sinks, len(measured), seconds if seconds > 0 else None)


_Edges = list[tuple[str, str]]


def _inner(pipeline: Pipeline, traffic: _Traffic) -> Iterator[tuple[Node, _Edges]]:
    """Yield the nodes of the pipeline itself, each with the edges that end or begin there."""
    for name, source in pipeline.sources.items():
        readers = [f"stage:{stage.name}" for stage in pipeline.source_stages if name in stage.sources]
        for topic in source.topic_labels:
            node = Node(f"topic:{topic}", NodeKind.TOPIC, topic, source.format)
            yield traffic.node(node, traffic.topics, topic), [(node.id, reader) for reader in readers]
    readers = [f"stage:{stage.name}" for stage in pipeline.source_stages]
    for lookup in pipeline.lookup:
        node = _lookup_node(lookup)
        yield node, [(node.id, reader) for reader in readers]
    for stage in pipeline.stages:
        detail = f"{_reduced(stage)}, emit on {stage.emit.on}"
        node = Node(f"stage:{stage.name}", NodeKind.STAGE, stage.name, detail)
        before = pipeline.input_of(stage)
        incoming = [(f"stage:{before.name}", node.id)] if before is not None else []
        yield traffic.node(node, traffic.stages, stage.name), incoming
    for sink in pipeline.sinks:
        node = Node(f"sink:{sink.name}", NodeKind.SINK, sink.name)
        stage = pipeline.stage_of(sink)
        yield traffic.node(node, traffic.sinks, sink.name), [(f"stage:{stage.name}", node.id)]
    if (letters := pipeline.dead_letters) is not None:
        node = Node(f"sink:{letters.name}", NodeKind.SINK, letters.name, "dead letters")
        edges = [(f"topic:{topic}", node.id) for topic in pipeline.sources.topic_labels]
        yield traffic.node(node, traffic.sinks, letters.name), edges


def _reduced(stage: Stage) -> str:
    description = stage.reduce.description
    return description if isinstance(description, str) else ", ".join(description)


def _lookup_node(lookup: Lookup) -> Node:
    detail = f"on {', '.join(lookup.on)}"
    return Node(f"lookup:{lookup.table}", NodeKind.LOOKUP, lookup.table, detail)


def _around(
    pipeline: Pipeline, own: CatalogEntry, entries: Iterable[CatalogEntry]
) -> Iterator[tuple[Node, _Edges]]:
    """Yield the pipelines that this one reads from, and those that read from it."""
    for entry in entries:
        other = entry.pipeline
        if other is None or entry.name == own.name or other.pipeline == pipeline.pipeline:
            continue
        node = Node(f"pipeline:{entry.name}", NodeKind.PIPELINE, entry.name, dag_id=entry.dag_id)
        edges = [(node.id, end) for end in _read_from(pipeline, other)]
        edges += [(start, node.id) for start in _read_by(pipeline, other)]
        if edges:
            yield node, edges


def _read_from(pipeline: Pipeline, other: Pipeline) -> Iterator[str]:
    """Yield the nodes of a pipeline whose content another pipeline writes."""
    for topic in pipeline.sources.topic_labels:
        if any(_writes(sink, pipeline.sources, topic) for sink in other.outputs):
            yield f"topic:{topic}"
    for lookup in pipeline.lookup:
        if lookup.state is not None and lookup.state[0] == other.pipeline:
            yield f"lookup:{lookup.table}"


def _read_by(pipeline: Pipeline, other: Pipeline) -> Iterator[str]:
    """Yield the nodes of a pipeline that another pipeline reads."""
    for sink in pipeline.outputs:
        target = sink.messages.target if sink.messages is not None else None
        if target is not None and _writes(sink, other.sources, target) and other.sources.reads(target):
            yield f"sink:{sink.name}"
    for lookup in other.lookup:
        if lookup.state is not None and lookup.state[0] == pipeline.pipeline:
            yield f"stage:{lookup.state[1]}"


def _writes(sink: SinkModel, sources: Sources, topic: str) -> bool:
    """Return whether a sink writes a topic of the sources' cluster.

    Two connections can be one cluster: that is not known without asking Kafka, and such an edge is missing.
    """
    is_topic = sink.messages is not None and sink.messages.target == topic
    return is_topic and sources.cluster in sink.connections
