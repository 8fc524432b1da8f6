"""What a pipeline publishes, as an asset that other DAGs run on; see docs/decisions/0036.

The asset is the pipeline's, `tidegate://<pipeline>`, whatever its sinks and its generation are. Its events
are emitted through an alias, `tidegate://<pipeline>/<generation>`: a task whose outlet is an alias emits an
event, or none. Airflow is asked up to which batch there are events, so that each batch is in one, whoever
published it: the run's task, a retry after a kill, a later run, a promotion.
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

from tidegate.spec import OWN_ASSETS, asset_uri
from tidegate_airflow.runs import ledger_run_id
from tidegate_airflow.tasks import run_step
from tidegate_airflow.triggers import read_request

if TYPE_CHECKING:
    from tidegate.ledger import OffsetRange, Stream
    from tidegate.ledger.report import BatchReport

log = logging.getLogger(__name__)
MOST_BATCHES = 100
"""So many are in an event at most; the next task goes on. Only long runs and promotions publish so many."""


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
def event_emitted(context: Mapping[str, Any], pipeline: str, generation: int) -> Iterator[None]:
    """Let a task that publishes inside emit, with its success, an event of the batches that are in none yet.

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
    run = context["dag_run"]
    run_id = ledger_run_id(run.run_id, run.run_after)
    reports = run_step(lambda: _published(stream, run_id, newest, before))
    if reports:
        emitted.add(pipeline_asset(pipeline), event_extra(stream, reports))
        seqs = [report.plan.seq for report in reports]
        log.info(
            "Asset %s is updated by %d batches, the last is %d", asset_uri(pipeline), len(seqs), seqs[-1]
        )


def has_event(context: Mapping[str, Any], pipeline: str, generation: int) -> bool:
    """Whether a task emits one."""
    return bool(context["outlet_events"][stream_alias(pipeline, generation)].asset_alias_events)


def event_extra(stream: Stream, reports: Sequence[BatchReport]) -> dict[str, Any]:
    """What an event says of its batches, the oldest first. `seq` is the newest one; `offsets` are topic ->
    partition -> [start, end) of what was read, `published` sink -> records, of each batch and of all;
    `counts` what became of a batch's records, by the names of the metrics.
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
    """As JSON has them."""
    from tidegate.ledger.report import read_offsets

    return {
        topic: {str(partition): list(span) for partition, span in spans.items()}
        for topic, spans in read_offsets(ranges).items()
    }


def _published(stream: Stream, run_id: str, newest: int | None, before: int) -> list[BatchReport]:
    """The batches that are to be in an event, the oldest first."""
    from tidegate import protocol
    from tidegate.app import App
    from tidegate.ledger.report import batch_report

    ledger = App.from_environment().ledger
    if newest is None:
        own = [run.seq for run in protocol.noted_batches(ledger, stream, run_id) if run.seq is not None]
        newest = min([before, *(seq - 1 for seq in own)])
    seqs = ledger.published_after(stream, newest, MOST_BATCHES)
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
