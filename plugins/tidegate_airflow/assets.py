"""The asset of a pipeline, which starts other DAGs when a batch is published; see docs/decisions/0036.

A pipeline has one asset, `tidegate://<pipeline>`, for all of its sinks and generations. Events are emitted
through an alias, `tidegate://<pipeline>/<generation>`, because a task whose outlet is an alias may also emit
no event. Each batch is in one event, whether the run's task, a retry after a kill, a later run or a promotion
has published it: Airflow's newest event shows which batches have one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.definitions.asset import AssetRef

from tidegate.model.schedule import OWN_ASSETS, asset_uri
from tidegate_airflow.connections import run_step
from tidegate_airflow.runs import ledger_run_id
from tidegate_airflow.triggers import read_request

if TYPE_CHECKING:
    from tidegate.ledger import OffsetRange, Stream
    from tidegate.ledger.report import BatchReport

log = logging.getLogger(__name__)
MOST_BATCHES = 100
"""The largest number of batches in an event. After a long run or a promotion the next task emits the rest."""


def pipeline_asset(pipeline: str) -> Asset:
    """Return the asset of a pipeline, for all of its generations.

    Example: `pipeline_asset("orders").uri` is `tidegate://orders`.
    """
    return Asset(asset_uri(pipeline))


def stream_alias(pipeline: str, generation: int) -> AssetAlias:
    """Return the alias that is the outlet of a generation's publishing tasks.

    Example: `stream_alias("orders", 2).name` is `tidegate://orders/2`.
    """
    return AssetAlias(f"{asset_uri(pipeline)}/{generation}")


def asset_reference(name: str) -> Asset | AssetRef:
    """Return the asset that a schedule names, by URI or by name.

    Assets of other DAGs are referred to, not defined again: Airflow would disable theirs if a definition here
    had another name for the same URI.

    Example: `asset_reference("tidegate://orders")`, `asset_reference("s3://shop/stock")` or
    `asset_reference("stock")`.
    """
    if name.startswith(OWN_ASSETS):
        return Asset(name)
    return Asset.ref(uri=_normalized(name)) if ":" in name else Asset.ref(name=name)


@contextmanager
def event_emitted(context: Mapping[str, Any], pipeline: str, generation: int) -> Iterator[None]:
    """Let a task that publishes inside of the block emit an event of the batches that no event has yet.

    These are the batches after the stream's newest event in Airflow. If it has none, they are the batches
    that are published inside, or were by an earlier try of the run. The event is emitted only if the task
    succeeds.

    Args:
        context: Airflow's context of the task, whose outlet is the stream's alias.
        pipeline: The pipeline.
        generation: Its generation.

    Raises AirflowFailException and AirflowRescheduleException as `connections.run_step`.
    """
    from tidegate.app import App
    from tidegate.ledger import Stream

    stream = Stream(pipeline, generation)
    # before the task publishes: without an event in Airflow this is where the task's own batches begin
    # For reading: a dry run, and a run whose parameters are refused, must not create the ledger.
    before = run_step(lambda: App.for_reading().ledger.newest_publication(stream))
    yield
    if read_request(context["params"]).dry_run:
        return
    # asked after publishing: a task of another run may have emitted an event meanwhile
    newest = _newest_event(stream)
    emitted = context["outlet_events"][stream_alias(pipeline, generation)]
    run = context["dag_run"]
    run_id = ledger_run_id(run.run_id, run.run_after)
    reports = run_step(lambda: _published(stream, run_id, newest, before))
    # An alias emits nothing unless something is added, so consumers do not run for an empty batch.
    if reports:
        emitted.add(pipeline_asset(pipeline), event_extra(stream, reports))
        seqs = [report.plan.seq for report in reports]
        log.info(
            "Asset %s is updated by %d batches, the last is %d", asset_uri(pipeline), len(seqs), seqs[-1]
        )


def has_event(context: Mapping[str, Any], pipeline: str, generation: int) -> bool:
    """Return whether a task emits an event.

    Args:
        context: Airflow's context of a task whose outlet is the stream's alias.
    """
    return bool(context["outlet_events"][stream_alias(pipeline, generation)].asset_alias_events)


def event_extra(stream: Stream, reports: Sequence[BatchReport]) -> dict[str, Any]:
    """Return the content of an event about batches, which are ordered oldest first.

    `seq` is the newest batch. `offsets` are topic -> partition -> [start, end) of what was read, and
    `published` is sink -> records, both for each batch and for all. `counts` are a batch's metrics.

    Example: `event_extra(stream, reports)["offsets"]` is for example `{"orders": {"0": [0, 1200]}}`.
    """
    published: Counter[str] = Counter()
    for report in reports:
        published.update(report.published)
    return {
        "pipeline": stream.pipeline,
        "generation": stream.generation,
        "seq": reports[-1].plan.seq,
        "offsets": _offsets(part for report in reports for part in report.plan.ranges),
        "published": dict(published),
        "batches": [
            {
                "seq": report.plan.seq,
                "run_id": report.plan.run_id,
                "clock": datetime.fromtimestamp(report.plan.clock_ms / 1000, timezone.utc).isoformat(),
                "offsets": _offsets(report.plan.ranges),
                "counts": {name: _number(value) for name, value in sorted(report.counts.items())},
                "published": report.published,
            }
            for report in reports
        ],
    }


def _offsets(ranges: Iterable[OffsetRange]) -> dict[str, dict[str, list[int]]]:
    """Return topic -> partition -> [start, end), in JSON's types."""
    from tidegate.ledger.report import read_offsets

    return {
        topic: {str(partition): list(span) for partition, span in spans.items()}
        for topic, spans in read_offsets(ranges).items()
    }


def _published(stream: Stream, run_id: str, newest: int | None, before: int) -> list[BatchReport]:
    """Return the batches for the event, oldest first."""
    from tidegate.app import App
    from tidegate.batch import noted_batches
    from tidegate.ledger.report import batch_report

    ledger = App.for_reading().ledger
    if newest is None:
        own = [run.seq for run in noted_batches(ledger, stream, run_id) if run.seq is not None]
        # An earlier try of this run may have published before it was killed, so its batches come, too.
        newest = min([before, *(seq - 1 for seq in own)])
    # Bounded, because Airflow stores the whole event as JSON in one row.
    seqs = ledger.published_after(stream, newest, MOST_BATCHES)
    # None if the ledger no longer has the plan of an old batch: there is nothing left to report.
    reports = (batch_report(ledger, stream, seq) for seq in seqs)
    return [report for report in reports if report is not None]


def _newest_event(stream: Stream) -> int | None:
    """Return the batch of the newest event that Airflow has of a stream; None if it has none."""
    from airflow.sdk.execution_time.context import InletEventsAccessor

    alias = stream_alias(stream.pipeline, stream.generation)
    # By the API of task processes: a task has no access to Airflow's database.
    events = InletEventsAccessor(alias_name=alias.name).ascending(False).limit(1)
    return next((event.extra["seq"] for event in events), None)


def _normalized(uri: str) -> str:
    """Return a URI in Airflow's form; unchanged if Airflow refuses it, since no DAG can then have such an
    asset.
    """
    try:
        return str(Asset(uri).uri)
    except ValueError:
        return uri


def _number(value: float) -> float:
    return int(value) if float(value).is_integer() else value
