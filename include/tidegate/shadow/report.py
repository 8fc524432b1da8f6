"""Compare the output of a job that runs today with what a pipeline would send: `tidegate shadow`.

Nothing is written but a temporary folder, which is removed at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from tidegate.app.root import App, OpenSession
from tidegate.clock import current_ms
from tidegate.errors import SettingsInvalid
from tidegate.kernel.json_text import encoder
from tidegate.model.pipeline import Pipeline
from tidegate.shadow.comparison import ComparedEmission, ComparedJobs, Horizon, Rules, compared_jobs
from tidegate.shadow.computed import Bounds, ShadowBatch, own_emissions, shadowed
from tidegate.shadow.emission import DIFFERENCES, SentEmission, ShadowClass
from tidegate.shadow.topic import OtherTopic, SentRecords, SentTopic, sent_records
from tidegate.storage.schema import KEY_COLUMNS, VALUE

if TYPE_CHECKING:
    from tidegate.kernel.reduce import Values
    from tidegate.spark.explain import TraceEvent

_EXPLAINED = (ShadowClass.MISSING, ShadowClass.DIFFERENT, ShadowClass.EXTRA, ShadowClass.LATE)
"""The classes of which an example is explained."""
_MOST_EVENTS = 3


@dataclass(frozen=True)
class Request:
    """The request of a user.

    Args:
        stage: the stage whose emissions are compared; None: the last one.
        within_ms: a value that the other job has so much later is late; None: timestamps do not count.
        intermediate: whether the other job may leave out intermediate results.
        examples: the number of examples of each class.
        explains: whether tidegate's decision is explained for the first example of each class.
    """

    other: OtherTopic
    bounds: Bounds = field(default_factory=Bounds)
    stage: str | None = None
    within_ms: int | None = None
    intermediate: bool = False
    examples: int = 5
    explains: bool = True


@dataclass(frozen=True)
class ShadowReport:
    """The result of the comparison.

    Args:
        comparison: the numbers and the examples of each class.
        ours: the number of emissions that tidegate would send.
        theirs: the number of records that the other job sent.
        notes: how the jobs were compared, and what limits the result, in sentences.
        unreadable: examples of records that cannot be read: position and reason.
        explained: class -> what tidegate decided in the place of its first example.
    """

    pipeline: str
    stage: str
    topic: str
    comparison: ComparedJobs
    ours: int
    theirs: int
    notes: Sequence[str]
    unreadable: Mapping[str, str]
    explained: Mapping[ShadowClass, Sequence[TraceEvent]] = field(default_factory=dict)

    @property
    def differs(self) -> bool:
        """Whether an emission that can be compared is not equal."""
        return self.comparison.differs

    @property
    def compared(self) -> int:
        """The number of emissions, or pairs of them, that could be compared."""
        counts = self.comparison.counts
        return counts[ShadowClass.EQUAL] + sum(counts[verdict] for verdict in DIFFERENCES)


def shadow(
    app: App, pipeline: Pipeline, request: Request, open_session: OpenSession, progress: Callable[[str], None]
) -> ShadowReport:
    """Compare what a pipeline would send with what another job sent.

    Args:
        progress: gets each step as a short text.

    Raises SettingsInvalid if an option does not fit, or there are too many records; what a dry run raises,
    and what the step *compute* raises.
    """
    pipeline, stage = shadowed(pipeline, request.stage)
    source = pipeline.sources_of(stage)[0]
    # Jobs read and write one cluster, unless the user names another one.
    other = replace(request.other, source={"connection": source.connection, **request.other.source})
    # The end of the output comes first: tidegate then reads at least what the other job has read.
    topic = SentTopic.opened(app, other)
    request.bounds.require_few(topic.offsets, f"The topic {request.other.topic}")
    with TemporaryDirectory(prefix="tidegate-shadow-") as folder:
        batch = ShadowBatch(app, pipeline, stage, request.bounds, current_ms(), folder)
        progress(f"computing {batch.plan.span:,} offsets")
        rows = batch.compute(open_session)
        progress(f"reading {topic.offsets:,} offsets of {request.other.topic}")
        types = _types(rows, request.other)
        topics = list(dict.fromkeys(range_.topic for range_ in batch.plan.ranges))
        sent, reading = sent_records(app, topic, types, stage, topics)
        ours = own_emissions(rows, stage, request.other.windowed_keys)
        horizon = _horizon(batch, request.bounds, ours, sent)
        intermediate = request.intermediate or sent.compacted
        rules = rules_of(reading, types[0], request.within_ms, intermediate)
        comparison = ComparedJobs(request.examples)
        comparison.add(compared_jobs(ours, sent.emissions, rules, horizon))
        comparison.counts[ShadowClass.UNREADABLE] += len(sent.unreadable)
        return ShadowReport(
            pipeline.pipeline,
            stage.name,
            request.other.topic,
            comparison,
            len(ours),
            len(sent.emissions) + len(sent.unreadable),
            list(_notes(batch, request, sent, horizon)),
            _places(sent, request.examples),
            dict(_explained(batch, comparison, open_session, progress)) if request.explains else {},
        )


def _types(rows: pa.Table, other: OtherTopic) -> tuple[pa.StructType, pa.StructType]:
    """Return the columns of values and of keys. Raises SettingsInvalid if nothing tells them."""
    if rows.num_rows:
        return rows.schema.field(VALUE).type, rows.schema.field(KEY_COLUMNS).type
    raise SettingsInvalid(
        f"The pipeline emits nothing up to there, so there is nothing to compare {other.topic} with",
        "See `tidegate plan`, and --from, --until and --stage.",
    )


def _horizon(batch: ShadowBatch, bounds: Bounds, ours: Sequence[SentEmission], sent: SentRecords) -> Horizon:
    """Return what both jobs have read: by source positions if all records have one, else by timestamps."""
    ranges = {part.place: (part.start, part.end) for part in batch.plan.ranges}
    reached: dict[tuple[str, int], int] = {}
    for emission in sent.emissions if sent.all_placed else ():
        assert emission.source is not None, "all have one"
        topic, partition, offset = emission.source
        reached[topic, partition] = max(offset, reached.get((topic, partition), -1))
    begins = [min(emission.timestamp for emission in sent.emissions)] if sent.begins_late else []
    if bounds.from_ms is not None:
        begins.append(bounds.from_ms)
    elif any(start for start, _ in ranges.values()):
        begins += [min(emission.timestamp for emission in ours)]
    return Horizon(
        reached if sent.all_placed else None,
        ranges,
        max(begins, default=None),
        max((emission.timestamp for emission in sent.emissions), default=None),
        None if batch.is_whole else max(max(emission.at, emission.timestamp) for emission in ours),
    )


def rules_of(reading: Pipeline, value: pa.StructType, within_ms: int | None, intermediate: bool) -> Rules:
    """Return the rules of the comparison: those of the stage with `on: change` of `OtherTopic.pipeline`."""
    emit, values = reading.stages[0].emit, cast("Values", _Columns(value))
    text = encoder(value, ordered=True)
    mark = emit.marker(values) if emit.marks else lambda output, _: text(output)
    return Rules(
        lambda emission: None if emission.value is None else mark(emission.value, 0),
        None if emit.marks else emit.compare(values),
        within_ms,
        intermediate,
    )


class _Columns:
    """Outputs that are mappings, as an equivalence reads them."""

    def __init__(self, value: pa.StructType) -> None:
        self._value = value

    def field(self, name: str) -> Callable[[Any], Any]:
        return lambda output: output[name]

    def type_of(self, name: str) -> pa.DataType:
        return self._value.field(name).type


def _places(sent: SentRecords, most: int) -> dict[str, str]:
    return {"/".join(map(str, at)): reason for at, reason in list(sent.unreadable.items())[:most]}


def _notes(batch: ShadowBatch, request: Request, sent: SentRecords, horizon: Horizon) -> Iterator[str]:
    for part in batch.plan.ranges:
        yield f"tidegate read {part.topic}[{part.partition}] from offset {part.start} to {part.end}."
    if horizon.reached is not None:
        yield "The jobs are compared up to the source offsets that the records of the other job name."
        for part in batch.plan.ranges:
            if part.span and part.place not in horizon.reached:
                yield (
                    f"The other job names no record of {part.topic}[{part.partition}]: nothing that comes "
                    "from there is compared."
                )
    else:
        yield (
            "The records of the other job name no source offsets: the jobs are compared by key and "
            "timestamp, up to the largest timestamp that both have sent."
        )
    if sent.compacted:
        yield (
            f"{request.other.topic} is compacted: Kafka removes records for newer ones of their key, so "
            "intermediate results can be missing."
        )
    elif request.intermediate:
        yield "Intermediate results of the other job can be missing: --intermediate."
    if sent.begins_late:
        yield f"Kafka has removed the first records of {request.other.topic}: emissions before are left out."
    if any(part.start for part in batch.plan.ranges):
        yield "tidegate begins with an empty state: what the other job has of earlier records is not there."


def _explained(
    batch: ShadowBatch, comparison: ComparedJobs, open_session: OpenSession, progress: Callable[[str], None]
) -> Iterator[tuple[ShadowClass, Sequence[TraceEvent]]]:
    """Yield what tidegate decided in the place of the first example of each class."""
    events: dict[str, Sequence[TraceEvent]] = {}
    for verdict in _EXPLAINED:
        for example in comparison.examples[verdict][:1]:
            key = example.emission.key
            if key not in events:
                progress(f"explaining {key}")
                events[key] = batch.explain(key, open_session)
            yield verdict, _around(events[key], example)


def _around(events: Sequence[TraceEvent], example: ComparedEmission) -> Sequence[TraceEvent]:
    """Return the events of the record that caused an emission, or the last ones up to its timestamp."""
    if example.ours is not None and example.ours.source is not None:
        return [event for event in events if event.source == example.ours.source]
    at = example.emission.timestamp
    return [event for event in events if event.timestamp is None or event.timestamp <= at][-_MOST_EVENTS:]
