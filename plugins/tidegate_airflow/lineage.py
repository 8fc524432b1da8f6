"""Lineage of the tasks, for Airflow's OpenLineage provider, which calls methods of the operators.

This module is imported only if the provider is installed.

`compute`                   the topics that it reads
`validate`                  the sinks of the last stage, with what the quality suite found
`publish`, `cover`, `batch` topics and sinks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.providers.openlineage.extractors import OperatorLineage
from attrs import define, field
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    OutputDatasetFacet,
    data_quality_assertions_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

from tidegate_airflow.connections import connected, export_ledger, own_environment

if TYPE_CHECKING:
    from tidegate.inspect import Lineage, SinkWritten, TopicRead
    from tidegate.quality.verdict import Verdict

Batch = tuple[str, int, str]


@define
class KafkaOffsetsFacet(DatasetFacet):
    """The offsets that were read of a topic: `partitions` are `{"partition", "start", "end"}`; `end` is
    exclusive.
    """

    partitions: list[dict[str, int]] = field(factory=list)


@define
class FreshnessFacet(OutputDatasetFacet):
    """The seconds from an emission's timestamp to its publication: `p50`, `p95`, and the `bound` of `p95`."""

    p50: float = 0.0
    p95: float = 0.0
    bound: float = 0.0


def lineage_of(batch: Batch, first: int, last: int | None) -> Lineage:
    """Return the lineage of the `first` to the `last` batch of a run (None: its newest), as far as the ledger
    has it.

    Args:
        batch: Pipeline, generation and the ledger's id of the run, or of one of its batches.
        first: The number of the run's first batch, from 1.
        last: The number of the last one, inclusive.
    """
    from tidegate import inspect
    from tidegate.app import App
    from tidegate.batch import noted_batches, run_of_batch
    from tidegate.ledger import Stream

    pipeline, generation, run_id = batch
    stream = Stream(pipeline, generation)
    with own_environment():
        export_ledger()
        app = App.from_environment()
        # Batches of a run count from 1, so the inclusive `last` is the slice's exclusive end.
        noted = noted_batches(app.ledger, stream, run_of_batch(run_id))[first - 1 : last]
        seqs = [run.seq for run in noted if run.seq is not None]
        return inspect.batch_lineage(connected(app, stream), stream, seqs)


def reading(lineage: Lineage, verdicts: Sequence[Verdict]) -> OperatorLineage:
    """Return the lineage of a task that reads topics.

    Example: `reading(lineage, []).inputs` has a dataset for each topic.
    """
    return OperatorLineage(inputs=_topics(lineage))


def checking(lineage: Lineage, verdicts: Sequence[Verdict]) -> OperatorLineage:
    """Return the lineage of a task that validates a batch before it is published.

    Args:
        lineage: The lineage of the batch.
        verdicts: The verdicts of the task's quality suites, which become assertions of the inputs.
    """
    sinks = [sink for sink in lineage.sinks if sink.of_last_stage]
    facets = {"dataQualityAssertions": _assertions(verdicts)} if verdicts else {}
    return OperatorLineage(
        inputs=[InputDataset(*sink.dataset, facets=_schema(sink), inputFacets=facets) for sink in sinks]
    )


def publishing(lineage: Lineage, verdicts: Sequence[Verdict]) -> OperatorLineage:
    """Return the lineage of a task that publishes, and perhaps has validated before.

    Args:
        lineage: The lineage of the run's batches.
        verdicts: Empty if another task has validated.
    """
    return OperatorLineage(
        inputs=_topics(lineage), outputs=[_written(sink, verdicts) for sink in lineage.sinks]
    )


def _topics(lineage: Lineage) -> list[InputDataset]:
    return [
        InputDataset(*topic.dataset, facets={**_schema(topic), "tidegate_offsets": _offsets(topic)})
        for topic in lineage.topics
    ]


def _offsets(topic: TopicRead) -> KafkaOffsetsFacet:
    return KafkaOffsetsFacet(
        partitions=[
            {"partition": partition, "start": start, "end": end}
            for partition, (start, end) in sorted(topic.ranges.items())
        ]
    )


def _written(sink: SinkWritten, verdicts: Sequence[Verdict]) -> OutputDataset:
    facets: dict[str, Any] = _schema(sink)
    if verdicts and sink.of_last_stage:
        facets["dataQualityAssertions"] = _assertions(verdicts)
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=sink.records)
    output_facets: dict[str, Any] = {"outputStatistics": statistics}
    if sink.freshness is not None:
        output_facets["tidegate_freshness"] = FreshnessFacet(**asdict(sink.freshness))
    return OutputDataset(*sink.dataset, facets=facets, outputFacets=output_facets)


def _schema(dataset: TopicRead | SinkWritten) -> dict[str, Any]:
    fields = [
        schema_dataset.SchemaDatasetFacetFields(name=name, type=type_)
        for name, type_ in dataset.columns.items()
    ]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields=fields)}


def _assertions(verdicts: Sequence[Verdict]) -> Any:
    """Return the results of the quality suites for each batch that the task has validated."""
    assertions = [
        data_quality_assertions_dataset.Assertion(
            assertion=result.type,
            success=result.passed,
            column=result.column,
            actual=None if result.unexpected is None else f"{result.unexpected} unexpected",
        )
        for verdict in verdicts
        for result in verdict.expectations
    ]
    return data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions=assertions)
