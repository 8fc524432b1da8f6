"""`tidegate validate`: check pipeline files, and what they refer to."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidegate.cli.options import as_json
from tidegate.cli.output import out, show, warn
from tidegate.errors import PipelineInvalid, Problem, SettingsInvalid

if TYPE_CHECKING:
    from tidegate.model.pipeline import Pipeline


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@as_json
def validate(paths: tuple[Path, ...], as_json: bool) -> None:
    """Check pipeline files, or all in folders; without a PATH, those of the pipelines folder.

    A PATH can also be the name of a pipeline in that folder.
    """
    from tidegate.cli.references import missing_references, unset_connections
    from tidegate.settings import Settings
    from tidegate.yaml.folder import HOW_TO_BEGIN
    from tidegate.yaml.load import load_pipelines

    settings, load = Settings.from_environment(), cache(load_pipelines)
    pipelines: dict[Path, Pipeline] = {}
    problems: list[Problem] = []
    checked = 0
    for path in paths or (settings.pipelines,):
        if paths and not path.is_dir():
            valid, mistakes = _checked_file(path, settings.pipelines)
            files = 1
        else:
            valid, mistakes, files = _checked_folder(path, *load(path))
        pipelines |= valid
        problems += mistakes
        checked += files
        if not files:
            raise SettingsInvalid(f"There are no pipelines in {path}", HOW_TO_BEGIN)
    folder, errors = load(settings.pipelines)
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


def _checked_folder(
    folder: Path, pipelines: dict[str, Pipeline], errors: list[PipelineInvalid]
) -> tuple[dict[Path, Pipeline], list[Problem], int]:
    """Return the pipelines of a folder without mistakes, the mistakes of its files, and their number."""
    from tidegate.yaml.folder import DEFAULTS_FILE

    defaults = folder / DEFAULTS_FILE
    problems = [problem for error in errors for problem in error.problems]
    if defaults.is_file():
        problems += _checked_file(defaults, folder)[1]
    return (
        {folder / f"{name}.yaml": pipeline for name, pipeline in pipelines.items()},
        problems,
        len(pipelines) + len(errors) + defaults.is_file(),
    )


def _checked_file(path: Path, folder: Path) -> tuple[dict[Path, Pipeline], list[Problem]]:
    """Return the pipeline of a file, or of a name in the folder, if it has no mistakes, and its mistakes."""
    from tidegate.yaml.folder import DEFAULTS_FILE
    from tidegate.yaml.load import load_defaults, load_pipeline, pipeline_path

    try:
        file = path if path.exists() else pipeline_path(str(path), folder)
        if file.name != DEFAULTS_FILE:
            return {file: load_pipeline(file)}, []
        load_defaults(file.parent)
    except PipelineInvalid as error:
        return {}, list(error.problems)
    return {}, []


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
