"""validate."""

from __future__ import annotations

from pathlib import Path

from tidegate.cli.show import out, show
from tidegate.errors import PipelineInvalid, Problem
from tidegate.settings import Settings
from tidegate.spec import load_pipeline, load_pipelines


def validate(files: tuple[Path, ...], as_json: bool) -> None:
    """Check pipeline files; without FILES, all of the pipelines folder."""
    problems: list[Problem] = []
    if files:
        for file in files:
            try:
                load_pipeline(file)
            except PipelineInvalid as error:
                problems += error.problems
        checked = len(files)
    else:
        folder = Settings.from_environment().pipelines
        good, broken = load_pipelines(folder)
        problems = [problem for error in broken for problem in error.problems]
        checked = len(good) + len(broken)
    if as_json:
        show([vars(problem) for problem in problems], True)
    elif not problems:
        out.print(f"{checked} pipeline file{'s' if checked != 1 else ''} checked, no mistakes.")
    if problems:
        raise PipelineInvalid([] if as_json else problems)
