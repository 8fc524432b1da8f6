"""`tidegate status`: show the condition and the head of every stream.

It reads the ledger, and asks Kafka for the lag. It imports the grammar, which takes time, only if a pipeline
file was edited since its last batch was planned.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.options import as_json
from tidegate.cli.output import say, show
from tidegate.clock import current_ms
from tidegate.errors import BrokerUnavailable, Halted, PlanUnreadable, SettingsInvalid, TopicMissing

if TYPE_CHECKING:
    from tidegate.ledger import Ledger, Stream
    from tidegate.ledger.report import BatchReport
    from tidegate.ledger.stream_condition import StreamCondition
    from tidegate.settings import Settings


@click.command()
@as_json
def status(as_json: bool) -> None:
    """Show every pipeline's head: last batch, offsets, lag, what is planned, who is at work."""
    from tidegate.ledger import Ledger
    from tidegate.settings import Settings

    settings = Settings.from_environment()
    ledger = Ledger.open_for_reading(settings.ledger)
    planned = ledger.streams()
    streams = [*planned, *_unplanned(settings, ledger, planned)]
    lags = {stream: _lag(settings, ledger, stream) for stream in streams}
    conditions = _conditions(settings, ledger, lags)
    rows = [_status_row(ledger, stream, conditions[stream], lags[stream]) for stream in streams]
    if as_json:
        for row, stream in zip(rows, streams, strict=True):
            row["causes"] = [cause.text for cause in conditions[stream].causes]
    show(rows, as_json, empty=_nothing_planned(settings))
    for stream in streams if not as_json else ():
        for cause in conditions[stream].causes:
            say(f"{stream} is {cause.condition.label}: {cause.text}")


def _unplanned(settings: Settings, ledger: Ledger, planned: Sequence[Stream]) -> list[Stream]:
    """Return the streams of pipeline files of which no batch was planned yet; none if that holds for all."""
    if not planned or _are_as_planned(settings, ledger, planned):
        return []
    from tidegate import inspect  # late: with what reads pipeline files
    from tidegate.app import App

    entries = inspect.catalog_entries(App(settings, ledger))
    files = [entry for entry in entries if entry.streams and not entry.is_without_file]
    new = (entry.streams[0] for entry in files if not any(map(entry.is_file_of, planned)))
    return list(dict.fromkeys(new))


def _conditions(
    settings: Settings, ledger: Ledger, lags: dict[Stream, int | str | None]
) -> dict[Stream, StreamCondition]:
    """Return the condition of each stream, without parsing the files if they have not changed."""
    offsets = {stream: value if isinstance(value, int) else None for stream, value in lags.items()}
    if lags and not _are_as_planned(settings, ledger, list(lags)):
        from tidegate import inspect  # late: with what reads pipeline files
        from tidegate.app import App

        app = App(settings, ledger)
        return inspect.stream_conditions(app, offsets)
    from tidegate.ledger.stream_condition import derive_condition, read_facts

    now_ms = current_ms()
    facts = read_facts(ledger, list(offsets))
    return {
        stream: derive_condition(replace(facts[stream], lag=value), now_ms)
        for stream, value in offsets.items()
    }


def _are_as_planned(settings: Settings, ledger: Ledger, streams: Sequence[Stream]) -> bool:
    """Return whether the folder has the texts that the newest batches were planned with, and nothing else."""
    from tidegate.yaml.folder import DEFAULTS_FILE, is_dag_name, pipeline_files

    files = pipeline_files(settings.pipelines)
    if os.path.lexists(settings.pipelines / DEFAULTS_FILE):
        return False
    if not all(is_dag_name(file.stem) for file in files):
        return False
    try:
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    except OSError:
        return False  # who parses the files reports the one that cannot be read
    planned = filter(None, map(ledger.last_planned, streams))
    # Lists, not sets: two files with one text are both refused.
    return sorted(texts) == sorted(plan.text for plan in planned)


def _nothing_planned(settings: Settings) -> str:
    """Return a text on why there is nothing to show, and how to begin."""
    from tidegate.yaml.folder import HOW_TO_BEGIN, pipeline_files

    names = [file.stem for file in pipeline_files(settings.pipelines)]
    if not names:
        return f"There are no pipelines in {settings.pipelines}. {HOW_TO_BEGIN}"
    return f"No batch was planned yet. Begin with `tidegate plan {names[0]}`, which writes nothing."


def _status_row(
    ledger: Ledger, stream: Stream, condition: StreamCondition, lag_now: int | str | None
) -> dict[str, Any]:
    head = ledger.head(stream)
    report, waiting = _newest_batch(ledger, stream, head.seq)
    return {
        "pipeline": stream.pipeline,
        "generation": stream.generation,
        "condition": condition.condition.label,
        "batch": head.seq,
        "records": report.came_in if report else 0,
        "used": report.fates["used"] if report else 0,
        "quarantined": report.fates["quarantined"] if report else 0,
        "late": report.late if report else 0,
        "other": report.other if report else 0,
        "emitted": int(report.counts.get("emitted", 0)) if report else 0,
        "published": ", ".join(report.published) if report else "",
        "lag": lag_now,
        "planned": f"batch {waiting}" if waiting else None,
        "at work": ledger.lease_holder(stream),
    }


def _newest_batch(ledger: Ledger, stream: Stream, seq: int) -> tuple[BatchReport | None, int | None]:
    """Return the report of the last committed batch, and the number of the planned one.

    If the ledger cannot read their plans, the stream's causes say so.
    """
    from tidegate.ledger.report import batch_report

    with suppress(Halted, PlanUnreadable):
        waiting = ledger.open_plan(stream)
        return batch_report(ledger, stream, seq), waiting.seq if waiting else None
    return None, None


def _lag(settings: Settings, ledger: Ledger, stream: Stream) -> int | str | None:
    """Return the number of offsets that are not read yet; the error's name if Kafka or the ledger cannot
    say, and None before the first batch, which finds the topics.
    """
    from tidegate.ledger.report import lag
    from tidegate.model.compiled import source_connection

    try:
        head = ledger.head(stream)
        if not head.topic_ids:
            return None
        plan = ledger.plan(stream, head.seq) if head.seq else None
        config = settings.kafka(source_connection(plan.spec_compiled, str(head.stream)) if plan else None)
        from tidegate.kafka.log import KafkaLog  # late: the client is half of what there is to import

        # one stream at a time: each can have another cluster
        with KafkaLog(config) as log:
            views = [log.view(topic) for topic in head.topic_ids]
    except (BrokerUnavailable, Halted, PlanUnreadable, SettingsInvalid, TopicMissing) as error:
        return type(error).__name__
    return lag(head, {(view.topic, p): end for view in views for p, end in view.stable_ends.items()})
