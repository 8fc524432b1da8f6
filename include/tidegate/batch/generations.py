"""Orphaned streams: generations that no pipeline file has any more, so that nobody would end what they began.

A generation that has a file of its own has a DAG of its own, and is never touched, also while the file has a
mistake.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from tidegate.app.lease import leased
from tidegate.app.root import App, stream_of
from tidegate.batch.publish import publish_decided
from tidegate.errors import Halted, LeaseHeld, PlanUnreadable, TidegateError
from tidegate.ledger import Stream
from tidegate.ledger.planned import lacking_sinks
from tidegate.ledger.stream_condition import undecided_without_file
from tidegate.spec import Pipeline, load_pipelines, stream_in_broken_file

logger = logging.getLogger(__name__)


def streams_without_file(app: App) -> list[Stream]:
    """The streams of the ledger that no pipeline file has, of all pipelines."""
    return [stream for stream, file in _streams_without_pipeline(app) if file is None]


def streams_of_broken_files(app: App) -> list[tuple[Stream, str]]:
    """The streams of the ledger whose pipeline file has a mistake just now, and the file."""
    return [(stream, file) for stream, file in _streams_without_pipeline(app) if file is not None]


def _streams_without_pipeline(app: App) -> Iterator[tuple[Stream, str | None]]:
    """The streams that no usable file has, each with the broken file that names it."""
    pipelines, errors = load_pipelines(app.settings.pipelines)
    owned = set(map(stream_of, pipelines.values()))
    named = {file: stream_in_broken_file(file) for file in (error.problems[0].file for error in errors)}
    for stream in app.ledger.streams():
        if stream not in owned:
            names = ((stream.pipeline, stream.generation), (stream.pipeline, None))
            yield stream, next((file for file, name in named.items() if name in names), None)


def orphaned_streams(app: App, pipeline: Pipeline) -> list[Stream]:
    """The pipeline's other generations that have a batch which is not through, and no pipeline file.

    The files are read only where there is such a batch.
    """
    own = stream_of(pipeline)
    siblings = [
        stream for stream in app.ledger.streams() if stream.pipeline == own.pipeline and stream != own
    ]
    open_streams = [stream for stream in siblings if _has_open_batch(app, stream)]
    if not open_streams:
        return []
    without_file = streams_without_file(app)
    return [stream for stream in open_streams if stream in without_file]


def finish_orphaned_streams(app: App, pipeline: Pipeline, run_id: str) -> None:
    """Publish what the pipeline's other generations have decided, if they have no file; name what stays.

    Whatever keeps it from being published is logged, and noted for `doctor`: it holds up no new generation.
    A stream that somebody else works on is left to them.
    """
    for stream in orphaned_streams(app, pipeline):
        try:
            with leased(app, stream, run_id) as lease:
                publish_decided(app, lease)
                lease.release()
        except LeaseHeld as error:
            logger.info("Another generation has a batch that is not through. %s", error)
        except TidegateError as error:
            logger.warning("What %s has decided cannot be published: %s", stream, error)
        else:
            open_plan = app.ledger.open_plan(stream)
            if open_plan is not None:
                logger.warning("%s: %s", stream, undecided_without_file(stream, open_plan.seq).text)


def _has_open_batch(app: App, stream: Stream) -> bool:
    head = app.ledger.head(stream)
    try:
        if app.ledger.plan(stream, head.seq + 1) is not None:
            return True
        decided = app.ledger.plan(stream, head.seq) if head.seq else None
        return decided is not None and bool(lacking_sinks(app.ledger, decided))
    except (Halted, PlanUnreadable):
        return True  # its pipeline is lost; who tries to publish it says so
