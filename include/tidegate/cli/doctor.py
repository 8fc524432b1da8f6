"""doctor: what is wrong, and the command that resolves it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from tidegate import protocol
from tidegate.app import App, leased
from tidegate.cli.reading import stream_named
from tidegate.cli.references import missing_suites
from tidegate.cli.show import out, show, steps_shown
from tidegate.errors import Halted, Permanent, SetupFailed, Transient
from tidegate.extras import check_spark_packages
from tidegate.inspect.examine import (
    Finding,
    FindingState,
    check,
    examine_broken,
    examine_files,
    examine_orphan,
    examine_pipeline,
    examine_progress_topics,
)
from tidegate.lake import Store
from tidegate.lake.probe import puts_if_absent
from tidegate.ledger import LeasedLedger, OffsetRange, Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.local.java import find_java
from tidegate.protocol.ranges import first_start
from tidegate.settings import Settings
from tidegate.spec import load_pipelines


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
    show([_row(finding) for finding in findings], as_json)
    states = {finding.state for finding in findings}
    if FindingState.WRONG in states:
        sys.exit(Permanent.exit_code)
    if FindingState.RETRY in states:
        sys.exit(Transient.exit_code)


def _row(finding: Finding) -> dict[str, Any]:
    return {"check": finding.check, "ok": finding.state.value, "found": finding.text}


def _examine(only: str | None) -> Iterator[Finding]:
    yield check("java", lambda: str(find_java()))
    yield check("spark", check_spark_packages)
    settings = Settings.from_environment()
    yield check("lake", lambda: _writable(settings.lake))
    ledger = check("ledger", lambda: _ledger(settings))
    yield ledger
    if ledger.state is not FindingState.OK:
        return
    app = App.for_reading()
    good, broken = load_pipelines(settings.pipelines)
    yield from examine_progress_topics(app, good.values())
    for error in broken:
        for problem in error.problems:
            yield Finding(problem.file, FindingState.WRONG, str(problem))
    for name, loaded in good.items():
        if only in (None, name):
            yield from examine_pipeline(app, name, loaded)
            for _, missing, fix in missing_suites(loaded, settings.expectations):
                yield Finding(f"pipeline {name}", FindingState.WRONG, f"{missing}. {fix}")
    pipeline = good[only].pipeline if only in good else only
    for stream in protocol.streams_without_file(app):
        if pipeline in (None, stream.pipeline):
            yield from examine_orphan(app, stream)
    for stream, file in protocol.streams_of_broken_files(app):
        if only in (None, stream.pipeline, Path(file).stem) or pipeline == stream.pipeline:
            yield from examine_broken(app, stream, file)


def _examine_files(only: str | None, quiet: bool) -> Iterator[Finding]:
    """Each stream's files, or those of one pipeline."""
    app = App.for_reading()
    for stream in app.ledger.streams():
        if only in (None, stream.pipeline):
            with steps_shown(quiet=quiet) as progress:
                progress(f"reading the files of {stream}")
                yield from examine_files(app, stream)


def _writable(lake: str) -> str:
    if "://" in lake:
        if not puts_if_absent(Store(lake)):
            raise SetupFailed(
                f"The lake {lake} overwrites a file that is to be written only if it is absent",
                "Use an object store with conditional writes: tables for others need them.",
            )
        return f"{lake}, writable, and refuses to overwrite where that is asked for"
    folder = next(path for path in (Path(lake), *Path(lake).absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            return f"{lake}, writable by {os.environ.get('USER', 'this user')}"
    except OSError as error:
        raise SetupFailed(
            f"The lake {lake} cannot be written: {error.strerror}",
            "Correct its rights, or set TIDEGATE_LAKE.",
        ) from error


def _ledger(settings: Settings) -> str:
    streams = App.for_reading().ledger.streams()
    where = "SQLite" if settings.ledger.startswith("sqlite") else "PostgreSQL"
    return f"{where}, {len(streams)} pipelines"


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
        with app.log(_source_connection(plan or held.plan(held.stream, head.seq))) as log:
            views = [log.view(topic) for topic in sorted({topic for topic, _ in known})]
        gaps = [
            OffsetRange(view.topic, partition, first, start)
            for view in views
            for partition, start in view.starts.items()
            if (first := known.get((view.topic, partition), first_start(head, view, partition, {}))) < start
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


def _source_connection(plan: Plan | None) -> str | None:
    return planned_pipeline(plan).source.connection if plan is not None else None


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
    app = App.from_environment()
    stream = stream_named(app, name, generation)
    if generation is not None and stream not in app.ledger.streams():
        raise click.UsageError(f"The ledger has no generation {generation} of a pipeline {name}.")
    with leased(app, stream, f"doctor__{uuid4().hex[:8]}") as held:
        yield app, held
        held.release()
