"""doctor: what is wrong, and the command that resolves it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from tidegate import inspect, protocol
from tidegate.app import App, leased, stream_of
from tidegate.cli.reading import open_stream
from tidegate.cli.show import out, show, steps_shown
from tidegate.errors import Halted, SetupFailed, TidegateError, TopicMissing
from tidegate.lake import Store
from tidegate.lake.probe import puts_if_absent
from tidegate.ledger import Head, LeasedLedger, OffsetRange, Plan, Stream
from tidegate.local.java import find_java
from tidegate.settings import Settings
from tidegate.spec import Pipeline, load_pipelines, with_digests

Finding = dict[str, Any]
WRONG = "WRONG"
"""In a finding's `ok`, beside `ok`, and `wait`: not wrong, and not done either."""


def doctor(
    pipeline: str | None,
    accept_gap: bool,
    drop_plan: bool,
    reconcile: bool,
    said: tuple[str, ...],
    deep: bool,
    generation: int | None,
    as_json: bool,
) -> None:
    """Check the settings, the stores and every pipeline (or PIPELINE); say what resolves what is wrong."""
    if pipeline and accept_gap:
        _accept_gap(pipeline, generation)
    if pipeline and drop_plan:
        _drop_plan(pipeline, generation)
    if pipeline and reconcile:
        _reconcile(pipeline, dict(map(_progress, said)), generation)
    findings = list(_examine(pipeline))
    if deep:
        findings += _examine_files(pipeline, quiet=as_json)
    show(findings, as_json)
    if any(finding["ok"] == WRONG for finding in findings):
        sys.exit(2)


def _examine(only: str | None) -> Iterator[Finding]:
    yield _check("java", lambda: str(find_java()))
    settings = Settings.from_environment()
    yield _check("lake", lambda: _writable(settings.lake))
    ledger = _check("ledger", lambda: _ledger(settings))
    yield ledger
    if ledger["ok"] != "ok":
        return
    app = App.from_environment()
    yield from _progress_topic(app)
    good, broken = load_pipelines(settings.pipelines)
    for error in broken:
        for problem in error.problems:
            yield {"check": problem.file, "ok": WRONG, "found": str(problem)}
    for name, each in good.items():
        if only in (None, name):
            yield from _examine_pipeline(app, name, each)
    pipeline = good[only].pipeline if only in good else only
    for stream in protocol.streams_without_file(app):
        if pipeline in (None, stream.pipeline):
            yield from _examine_orphan(app, stream)
    for stream, file in protocol.streams_of_broken_files(app):
        if only in (None, stream.pipeline, Path(file).stem) or pipeline == stream.pipeline:
            yield from _examine_broken(app, stream, file)


def _examine_files(only: str | None, quiet: bool) -> Iterator[Finding]:
    """Each stream's files, or those of one pipeline."""
    app = App.from_environment()
    for stream in app.ledger.streams():
        if only in (None, stream.pipeline):
            yield from _examine_lake(app, stream, quiet)


def _examine_lake(app: App, stream: Stream, quiet: bool) -> Iterator[Finding]:
    name = f"files of {stream.pipeline}, generation {stream.generation}"
    try:
        with steps_shown(quiet=quiet) as progress:
            progress(f"reading the files of {stream}")
            number, damaged = inspect.damaged_files(app, stream)
    except TidegateError as error:
        yield {"check": name, "ok": WRONG, "found": _told(error)}
        return
    for each in damaged:
        yield {"check": name, "ok": WRONG, "found": _told(each)}
    if not damaged:
        yield {"check": name, "ok": "ok", "found": f"{number} files are as they were written"}


def _examine_orphan(app: App, stream: Stream) -> Iterator[Finding]:
    """A generation that is only in the ledger: it has no DAG, and no other command tells of it."""
    name = f"{stream.pipeline}, generation {stream.generation}"
    head = app.ledger.head(stream).seq
    found = f"batch {head} is the last, and no pipeline file has it any more"
    yield {"check": f"pipeline {name}", "ok": "ok", "found": found}
    try:
        for batch in protocol.orphaned_batches(app, stream):
            yield {"check": f"batches of {name}", "ok": WRONG if batch.halts else "wait", "found": batch.told}
    except TidegateError as error:
        yield {"check": f"batches of {name}", "ok": WRONG, "found": _told(error)}


def _examine_broken(app: App, stream: Stream, file: str) -> Iterator[Finding]:
    """A generation that is left to its own file, which has a mistake."""
    name = f"{stream.pipeline}, generation {stream.generation}"
    head = app.ledger.head(stream).seq
    found = f"batch {head} is the last, and its file {file} has a mistake: it goes on when that is corrected"
    yield {"check": f"pipeline {name}", "ok": "wait", "found": found}
    try:
        yield from _unfinished(app, stream, name)
    except TidegateError as error:
        yield {"check": f"batches of {name}", "ok": WRONG, "found": _told(error)}


def _progress_topic(app: App) -> Iterator[Finding]:
    """What is not good about the topic of progress records; nothing if all is, or no broker is set."""
    if app.settings.kafka is None:
        return
    try:
        with app.log() as log:
            shortcomings = log.progress_topic_shortcomings()
    except TidegateError as error:
        yield {"check": "progress topic", "ok": WRONG, "found": _told(error)}
        return
    for shortcoming in shortcomings:
        yield {"check": "progress topic", "ok": "wait", "found": shortcoming}


def _examine_pipeline(app: App, name: str, pipeline: Pipeline) -> Iterator[Finding]:
    stream = stream_of(pipeline)
    try:
        yield {"check": f"pipeline {name}", "ok": "ok", "found": _pipeline(app, pipeline)}
    except TopicMissing as error:
        never_planned = app.ledger.head(stream).seq == 0 and app.ledger.open_plan(stream) is None
        yield {
            "check": f"pipeline {name}",
            "ok": "wait" if never_planned else WRONG,
            "found": f"not started: {error}" if never_planned else _told(error),
        }
        return
    except TidegateError as error:
        yield {"check": f"pipeline {name}", "ok": WRONG, "found": _told(error)}
        yield from _unfinished(app, stream, name, but=type(error).__name__)
        return
    yield from _unfinished(app, stream, name)
    if app.ledger.head(stream).seq:
        yield _check(f"sinks of {name}", partial(_sinks, app, stream))
    for told in protocol.stalled_transactions(app, pipeline):
        yield {"check": f"source of {name}", "ok": "wait", "found": told}
    for told in inspect.sink_warnings(app, pipeline):
        yield {"check": f"sinks of {name}", "ok": "wait", "found": told}


def _unfinished(app: App, stream: Stream, name: str, but: str = "") -> Iterator[Finding]:
    """What keeps a batch from going through, `but` an error that is told already."""
    for each in protocol.unfinished_batches(app, stream):
        if not each.error or each.error != but:
            yield {"check": f"batches of {name}", "ok": WRONG if each.halts else "wait", "found": each.told}


def _check(name: str, examine: Callable[[], str]) -> Finding:
    try:
        return {"check": name, "ok": "ok", "found": examine()}
    except TidegateError as error:
        return {"check": name, "ok": WRONG, "found": _told(error)}


def _told(error: TidegateError) -> str:
    return f"{type(error).__name__}: {error}"


def _writable(lake: str) -> str:
    if "://" in lake:
        if not puts_if_absent(Store(lake)):
            raise SetupFailed(
                f"The lake {lake} overwrites a file that is to be written only if it is absent",
                "Use an object store with conditional writes: tables for others need them.",
            )
        return f"{lake}, writable, and refuses to overwrite where that is asked for"
    try:
        Path(lake).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=lake):
            return f"{lake}, writable by {os.environ.get('USER', 'this user')}"
    except OSError as error:
        raise SetupFailed(
            f"The lake {lake} cannot be written: {error.strerror}",
            "Correct its rights, or set TIDEGATE_LAKE.",
        ) from error


def _ledger(settings: Settings) -> str:
    streams = App.from_environment().ledger.streams()
    where = "SQLite" if settings.ledger.startswith("sqlite") else "PostgreSQL"
    return f"{where}, {len(streams)} pipelines"


def _pipeline(app: App, pipeline: Pipeline) -> str:
    """A dry plan finds what would halt the next run."""
    inspect.check_sinks(app, pipeline)
    head = app.ledger.head(stream_of(pipeline))
    waiting = app.ledger.open_plan(head.stream)
    has_read = waiting is not None and app.ledger.attempt(head.stream, waiting.seq) is not None
    if waiting and has_read:
        protocol.check_source(app, waiting)
        protocol.require_compatible(waiting, with_digests(pipeline))
    draft = protocol.draft(
        app,
        pipeline,
        _after(head, waiting) if waiting and has_read else head,
        protocol.Trigger("doctor", clock_ms=0),
    )
    if waiting and not has_read:
        protocol.check_still_there(app, waiting)
    planned = f"; batch {waiting.seq} is planned and not committed" if waiting else ""
    return f"batch {head.seq} is the last, {draft.span} offsets wait{planned}"


def _after(head: Head, plan: Plan) -> Head:
    """Where the stream will be when a planned batch is through that has read its records already."""
    ends = {(each.topic, each.partition): each.end for each in plan.ranges}
    return replace(
        head,
        offsets={**head.offsets, **ends},
        topic_ids={**head.topic_ids, **plan.topic_ids},
        epochs=plan.epochs_after(head),
    )


def _sinks(app: App, stream: Stream) -> str:
    protocol.check_progress(app, stream)
    return "they know what was published to them"


def _accept_gap(name: str, generation: int | None = None) -> None:
    with _leased(name, generation) as (app, held):
        head = held.head(held.stream)
        plan = held.open_plan(held.stream)  # the first one reads what no head knows of yet
        if plan is not None and held.attempt(held.stream, plan.seq) is not None:
            raise Halted(
                f"Batch {plan.seq} of {held.stream} has read its records already: none of them is lost",
                f"Let it go through: run the pipeline again; then, if `tidegate doctor {name}` still finds a "
                f"gap, accept it. To give the batch up all the same: tidegate doctor {name} --drop-plan",
            )
        ranges = plan.ranges if plan else ()
        known = {(each.topic, each.partition): each.start for each in ranges if each.span}
        known.update(head.offsets)
        with app.log() as log:
            views = [log.view(topic) for topic in sorted({topic for topic, _ in known})]
        gaps = [
            OffsetRange(view.topic, partition, known[view.topic, partition], start)
            for view in views
            for partition, start in view.starts.items()
            if known.get((view.topic, partition), start) < start
        ]
        dropped = None
        if gaps:
            dropped = held.drop_plan()  # it was to read what is lost
            held.accept_gap(gaps)
        for gap in gaps:
            out.print(f"Accepted as lost: {gap.topic}[{gap.partition}] offsets {gap.start} to {gap.end - 1}.")
        if not gaps:
            out.print("There is no gap.")
        if dropped:
            out.print(f"Batch {dropped}, which was to read them, is forgotten; the next run plans it anew.")


def _drop_plan(name: str, generation: int | None = None) -> None:
    with _leased(name, generation) as (_, held):
        seq = held.drop_plan()
        out.print(f"Batch {seq} is forgotten; the next run plans it anew." if seq else "No batch is planned.")


def _progress(text: str) -> tuple[str, int]:
    """`kafka:topic=7`."""
    sink, _, seq = text.rpartition("=")
    if not sink or not seq.isdigit():
        raise click.UsageError(f"--progress {text} is not SINK=BATCH, as in kafka:availability=7.")
    return sink, int(seq)


def _reconcile(name: str, said: Mapping[str, int], generation: int | None) -> None:
    with _leased(name, generation) as (app, held):
        for told in protocol.reconcile(app, held, said):
            out.print(told, markup=False)


@contextmanager
def _leased(name: str, generation: int | None) -> Iterator[tuple[App, LeasedLedger]]:
    """The lease of a pipeline's stream, for a person, given back at once."""
    app, stream = open_stream(name, generation)
    if generation is not None and stream not in app.ledger.streams():
        raise click.UsageError(f"The ledger has no generation {generation} of a pipeline {name}.")
    with leased(app.ledger, stream, f"doctor__{uuid4().hex[:8]}") as held:
        yield app, held
        held.release()
