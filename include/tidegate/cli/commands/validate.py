"""`tidegate validate`: check pipeline files, and what they refer to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidegate.cli.options import as_json
from tidegate.cli.output import out, show, warn
from tidegate.errors import PipelineInvalid, Problem, SettingsInvalid

if TYPE_CHECKING:
    from tidegate.model.pipeline import Pipeline


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@as_json
def validate(files: tuple[Path, ...], as_json: bool) -> None:
    """Check pipeline files; without FILES, all of the pipelines folder."""
    from tidegate.cli.references import missing_references, unset_connections
    from tidegate.settings import Settings
    from tidegate.yaml.folder import DEFAULTS_FILE, HOW_TO_BEGIN
    from tidegate.yaml.load import load_pipelines

    settings = Settings.from_environment()
    folder, errors = load_pipelines(settings.pipelines)
    if files:
        pipelines, problems = _load_files(files)
        checked = len(files)
    else:
        pipelines = {settings.pipelines / f"{name}.yaml": pipeline for name, pipeline in folder.items()}
        problems = [problem for error in errors for problem in error.problems]
        if not folder and not errors:
            raise SettingsInvalid(f"There are no pipelines in {settings.pipelines}", HOW_TO_BEGIN)
        defaults = [file for file in [settings.pipelines / DEFAULTS_FILE] if file.is_file()]
        problems += _load_files(defaults)[1]
        checked = len(folder) + len(errors) + len(defaults)
    generations = _generations([*folder.values(), *pipelines.values()], errors)
    for file, pipeline in pipelines.items():
        problems += missing_references(pipeline, file, generations, settings)
    if as_json:
        show([vars(problem) for problem in problems], True)
    elif not problems:
        out.print(f"{checked} file{'s' if checked != 1 else ''} checked, no mistakes.")
    for file, pipeline in pipelines.items():
        for variable in unset_connections(pipeline, settings):
            warn(f"{file}: {variable} is not set here; `tidegate doctor` looks for it where batches run.")
    if problems:
        raise PipelineInvalid([] if as_json else problems)


def _load_files(files: Iterable[Path]) -> tuple[dict[Path, Pipeline], list[Problem]]:
    """Return the pipelines of files without mistakes, and the mistakes of the others and of defaults."""
    from tidegate.yaml.folder import DEFAULTS_FILE
    from tidegate.yaml.load import load_defaults, load_pipeline

    pipelines: dict[Path, Pipeline] = {}
    problems: list[Problem] = []
    for file in files:
        try:
            if file.name == DEFAULTS_FILE:
                load_defaults(file.parent)
            else:
                pipelines[file] = load_pipeline(file)
        except PipelineInvalid as error:
            problems += error.problems
    return pipelines, problems


def _generations(pipelines: list[Pipeline], errors: list[PipelineInvalid]) -> dict[str, list[Pipeline]]:
    """Return pipeline -> its generations in all files; an empty list if its file has mistakes."""
    from tidegate.yaml.load import stream_in_broken_file

    generations: dict[str, list[Pipeline]] = defaultdict(list)
    for error in errors:
        stream = stream_in_broken_file(error.problems[0].file)
        if stream is not None:
            generations[stream[0]] = []
    for pipeline in pipelines:
        generations[pipeline.pipeline].append(pipeline)
    return dict(generations)
