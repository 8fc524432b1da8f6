"""`tidegate doctor`: what is wrong, and the command that helps."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.options import as_json, pipeline_names
from tidegate.cli.output import show, steps_shown
from tidegate.errors import Permanent, PipelineInvalid, SetupFailed, Transient
from tidegate.numerals import counted

if TYPE_CHECKING:
    from tidegate.inspect.examine import Finding
    from tidegate.settings import Settings


@click.command()
@click.argument("pipeline", required=False, shell_complete=pipeline_names)
@click.option("--deep", is_flag=True, help="Read every file that the next batches need, and compare digests.")
@as_json
def doctor(pipeline: str | None, deep: bool, as_json: bool) -> None:
    """Check the settings, the stores and every pipeline (or PIPELINE); say what resolves what is wrong.

    It only reads. `tidegate recover PIPELINE` repairs a pipeline that cannot continue.
    """
    from tidegate.inspect.examine import FindingState

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
    from tidegate.app import App
    from tidegate.batch import streams_of_broken_files, streams_without_file
    from tidegate.cli.references import missing_suites
    from tidegate.extras import check_spark_packages
    from tidegate.inspect.examine import (
        Finding,
        FindingState,
        check,
        examine_broken,
        examine_orphan,
        examine_pipeline,
        examine_progress_topics,
    )
    from tidegate.settings import Settings
    from tidegate.spark.java import find_java
    from tidegate.yaml.load import load_pipelines

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
    if only is not None:
        names = {*good, *(Path(error.problems[0].file).stem for error in broken)}
        if only not in names | {stream.pipeline for stream in app.ledger.streams()}:
            try:
                good = {only: app.pipeline(only)}  # the path of a file
            except PipelineInvalid as missing:
                yield Finding(f"pipeline {only}", FindingState.WRONG, str(missing))
    yield from examine_progress_topics(app, good.values())
    for error in broken:
        for problem in error.problems:
            yield Finding(problem.file, FindingState.WRONG, str(problem))
    for name, loaded in good.items():
        if only in (None, name):
            yield from examine_pipeline(app, name, loaded)
            for _, what, fix in missing_suites(loaded, settings.expectations):
                yield Finding(f"pipeline {name}", FindingState.WRONG, f"{what}. {fix}")
    pipeline = good[only].pipeline if only in good else only
    for stream in streams_without_file(app):
        if pipeline in (None, stream.pipeline):
            yield from examine_orphan(app, stream)
    for stream, file in streams_of_broken_files(app):
        if only in (None, stream.pipeline, Path(file).stem) or pipeline == stream.pipeline:
            yield from examine_broken(app, stream, file)


def _examine_files(only: str | None, quiet: bool) -> Iterator[Finding]:
    """Examine the files of each stream, or of one pipeline."""
    from tidegate.app import App
    from tidegate.inspect.examine import examine_files

    app = App.for_reading()
    if only is not None:
        with suppress(PipelineInvalid):  # `_examine` has reported it
            only = app.pipeline(only).pipeline
    for stream in app.ledger.streams():
        if only in (None, stream.pipeline):
            with steps_shown(quiet=quiet) as progress:
                progress(f"reading the files of {stream}")
                yield from examine_files(app, stream)


def _writable(lake: str) -> str:
    from tidegate.storage import Store
    from tidegate.storage.delta import puts_if_absent

    if "://" in lake:
        if not puts_if_absent(Store(lake)):
            raise SetupFailed(
                f"The lake {lake} overwrites a file that must be written only if it is absent",
                "Use an object store with conditional writes: tables for others need them.",
            )
        return f"{lake}, writable, and refuses to overwrite where that is asked for"
    # the lake's folder may not exist before the first batch
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
    from tidegate.app import App

    streams = App.for_reading().ledger.streams()
    where = "SQLite" if settings.ledger.startswith("sqlite") else "PostgreSQL"
    return f"{where}, {counted(len(streams), 'pipeline')}"
