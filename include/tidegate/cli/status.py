"""status. It asks the ledger, and Kafka for the lag; of tidegate it needs no more than that."""

from __future__ import annotations

from typing import Any

from tidegate.cli.show import show
from tidegate.errors import BrokerUnavailable, SettingsInvalid, TopicMissing
from tidegate.ledger import Head, Ledger, Plan, Stream
from tidegate.ledger.report import BatchReport, batch_report, lag
from tidegate.settings import Settings
from tidegate.spec.document import source_connection
from tidegate.spec.folder import HOW_TO_BEGIN, pipeline_files


def status(as_json: bool) -> None:
    """Show every pipeline's head: last batch, offsets, lag, what is planned, who is at work."""
    settings = Settings.from_environment()
    ledger = Ledger.open_for_reading(settings.ledger)
    rows = [_status_row(settings, ledger, stream) for stream in ledger.streams()]
    show(rows, as_json, empty=_nothing_planned(settings))


def _nothing_planned(settings: Settings) -> str:
    """Why there is nothing to show, and how to begin."""
    names = [file.stem for file in pipeline_files(settings.pipelines)]
    if not names:
        return f"There are no pipelines in {settings.pipelines}. {HOW_TO_BEGIN}"
    return f"No batch was planned yet. Begin with `tidegate plan {names[0]}`, which writes nothing."


def _status_row(settings: Settings, ledger: Ledger, stream: Stream) -> dict[str, Any]:
    head = ledger.head(stream)
    report = batch_report(ledger, stream, head.seq)
    waiting = ledger.open_plan(stream)
    return {
        "pipeline": stream.pipeline,
        "generation": stream.generation,
        "batch": head.seq,
        "records": int(report.counts.get("read", 0)) if report else 0,
        "emitted": int(report.counts.get("emitted", 0)) if report else 0,
        "published": _published(ledger, stream, report),
        "lag": _lag(settings, head, report.plan if report else None),
        "planned": f"batch {waiting.seq}" if waiting else None,
        "at work": ledger.lease_holder(stream),
    }


def _published(ledger: Ledger, stream: Stream, report: BatchReport | None) -> str:
    if ledger.charge(stream.pipeline).withholds(stream.generation):
        return "withheld"
    return ", ".join(report.published) if report else ""


def _lag(settings: Settings, head: Head, plan: Plan | None) -> int | str:
    """Offsets that are not read yet; where Kafka does not tell, the error's name."""
    try:
        config = settings.kafka(source_connection(plan.spec_compiled, str(head.stream)) if plan else None)
        from tidegate.broker.log import KafkaLog  # late: the client is half of what there is to import

        with KafkaLog(config) as log:
            views = [log.view(topic) for topic in head.topic_ids]
    except (BrokerUnavailable, SettingsInvalid, TopicMissing) as error:
        return type(error).__name__
    return lag(head, {(view.topic, p): end for view in views for p, end in view.stable_ends.items()})
