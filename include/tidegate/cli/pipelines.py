"""The commands `validate` and `schema`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tidegate.cli.references import missing_references, unset_connections
from tidegate.cli.show import err, out, show
from tidegate.errors import PipelineInvalid, Problem, SettingsInvalid
from tidegate.settings import Settings
from tidegate.spec import (
    DEFAULTS_FILE,
    Pipeline,
    load_defaults,
    load_pipeline,
    load_pipelines,
    stream_in_broken_file,
)
from tidegate.spec.folder import HOW_TO_BEGIN


def validate(files: tuple[Path, ...], as_json: bool) -> None:
    """Check pipeline files, and that everything they refer to exists.

    Args:
        files: The files; empty for all files of the pipelines folder, and its defaults.

    Raises PipelineInvalid if there are mistakes, SettingsInvalid if the folder has no pipelines.
    """
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
            note = f"{file}: {variable} is not set here; `tidegate doctor` looks for it where batches run."
            err.print(note, style="yellow", markup=False, highlight=False)
    if problems:
        raise PipelineInvalid([] if as_json else problems)


def schema(kind: str) -> None:
    """Print the JSON Schema of a kind of file."""
    from tidegate.spec.json_schema import file_schema  # late: it imports what only this needs

    print(json.dumps(file_schema(kind), indent=2, ensure_ascii=False))


def _load_files(files: Iterable[Path]) -> tuple[dict[Path, Pipeline], list[Problem]]:
    """Return the pipelines of files without mistakes, and the mistakes of the others and of defaults."""
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
    generations: dict[str, list[Pipeline]] = defaultdict(list)
    for error in errors:
        stream = stream_in_broken_file(error.problems[0].file)
        if stream is not None:
            generations[stream[0]] = []
    for pipeline in pipelines:
        generations[pipeline.pipeline].append(pipeline)
    return dict(generations)
