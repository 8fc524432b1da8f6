"""What a pipeline publishes, as an asset that other DAGs run on; see docs/decisions/0036.

The asset is the pipeline's, `tidegate://<pipeline>`, whatever its sinks and its generation are. Its events
are emitted through an alias, `tidegate://<pipeline>/<generation>`: a task whose outlet is an alias emits as
many events as it has, or none. Airflow is asked which batches have one, so that each has, whoever published
it: the run's task, a retry after a kill, a later run, a promotion.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.definitions.asset import AssetRef

from tidegate.spec import OWN_ASSETS, asset_uri
from tidegate_airflow.tasks import run_step
from tidegate_airflow.triggers import read_request

if TYPE_CHECKING:
    from tidegate.ledger import Stream
    from tidegate.ledger.report import BatchReport

log = logging.getLogger(__name__)
MOST_EVENTS = 100
"""A task emits so many at most; the next one goes on. Only a promotion publishes that many at once."""


def pipeline_asset(pipeline: str) -> Asset:
    """What a pipeline publishes, by any of its generations."""
    return Asset(asset_uri(pipeline))


def stream_alias(pipeline: str, generation: int) -> AssetAlias:
    """The outlet of the tasks of a generation: who publishes."""
    return AssetAlias(f"{asset_uri(pipeline)}/{generation}")


def asset_reference(name: str) -> Asset | AssetRef:
    """The asset that a schedule names. Those of others are referred to, by URI or by name: a definition of
    one's own, with another name for a URI, would put theirs out of use.
    """
    if name.startswith(OWN_ASSETS):
        return Asset(name)
    return Asset.ref(uri=_normalized(name)) if ":" in name else Asset.ref(name=name)


@contextmanager
def events_emitted(context: Mapping[str, Any], pipeline: str, generation: int) -> Iterator[None]:
    """Let a task that publishes inside emit, with its success, an event of each batch that has none.

    Those are the batches after the stream's newest event in Airflow; where there is no event, what is
    published inside, or was by an earlier try of the run.
    """
    from tidegate.app import App
    from tidegate.ledger import Stream

    stream = Stream(pipeline, generation)
    before = run_step(lambda: App.from_environment().ledger.newest_publication(stream))
    yield
    if read_request(context["params"]).dry_run:
        return
    newest = _newest_event(stream)
    emitted = context["outlet_events"][stream_alias(pipeline, generation)]
    for report in run_step(lambda: _published(stream, context["dag_run"].run_id, newest, before)):
        emitted.add(pipeline_asset(pipeline), event_extra(report))
        log.info("Asset %s: an event of batch %d", asset_uri(pipeline), report.plan.seq)


def has_events(context: Mapping[str, Any], pipeline: str, generation: int) -> bool:
    """Whether a task emits any."""
    return bool(context["outlet_events"][stream_alias(pipeline, generation)].asset_alias_events)


def event_extra(report: BatchReport) -> dict[str, Any]:
    """What an event says of its batch. `offsets` are topic -> partition -> [start, end), of what was read;
    `counts` what became of the records, by the names of the metrics; `published` sink -> records.
    """
    plan = report.plan
    offsets: dict[str, dict[str, list[int]]] = {}
    for part in plan.ranges:
        if part.span:
            offsets.setdefault(part.topic, {})[str(part.partition)] = [part.start, part.end]
    return {
        "pipeline": plan.stream.pipeline,
        "generation": plan.stream.generation,
        "seq": plan.seq,
        "run_id": plan.run_id,
        "clock": datetime.fromtimestamp(plan.clock_ms / 1000, timezone.utc).isoformat(),
        "offsets": offsets,
        "counts": {name: _number(value) for name, value in sorted(report.counts.items())},
        "published": report.published,
    }


def _published(stream: Stream, run_id: str, newest: int | None, before: int) -> list[BatchReport]:
    """The batches that are to have an event, the oldest first."""
    from tidegate import protocol
    from tidegate.app import App
    from tidegate.ledger.report import batch_report

    ledger = App.from_environment().ledger
    if newest is None:
        own = [run.seq for run in protocol.noted_batches(ledger, stream, run_id) if run.seq is not None]
        newest = min([before, *(seq - 1 for seq in own)])
    seqs = ledger.published_after(stream, newest, MOST_EVENTS)
    reports = (batch_report(ledger, stream, seq) for seq in seqs)
    return [report for report in reports if report is not None]


def _newest_event(stream: Stream) -> int | None:
    """The batch of the newest event that Airflow has of a stream; None: it has none."""
    from airflow.sdk.execution_time.context import InletEventsAccessor

    alias = stream_alias(stream.pipeline, stream.generation)
    events = InletEventsAccessor(alias_name=alias.name).ascending(False).limit(1)
    return next((event.extra["seq"] for event in events), None)


def _normalized(uri: str) -> str:
    """As Airflow keeps a URI. What it takes for none is no asset of any DAG, and stays as it is written."""
    try:
        return str(Asset(uri).uri)
    except ValueError:
        return uri


def _number(value: float) -> float:
    return int(value) if float(value).is_integer() else value
