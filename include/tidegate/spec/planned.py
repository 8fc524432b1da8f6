"""What a plan fixes of a pipeline beside its file: the versions of the Python functions that it calls, and
the suites that its batches have to pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tidegate.errors import SettingsInvalid
from tidegate.spec.emit import ChangeEmit
from tidegate.spec.equal import PythonEqual
from tidegate.spec.mistakes import did_you_mean
from tidegate.spec.pipeline import Pipeline
from tidegate.spec.quality import AnyCheck, QualityCheck
from tidegate.spec.stage import Stage


def python_functions(pipeline: Pipeline) -> dict[str, str | None]:
    """Function -> digest of its module's source; None as long as the pipeline is not planned."""
    return {equal.python: equal.digest for equal in _python_equals(pipeline)}


def with_digests(pipeline: Pipeline) -> Pipeline:
    """The pipeline with the functions as they are now. Raises UserFunctionFailed when one is not there."""
    if not python_functions(pipeline):
        return pipeline
    return pipeline.model_copy(update={"stages": tuple(map(_with_digest, pipeline.stages))})


def _with_digest(stage: Stage) -> Stage:
    emit = stage.emit
    if not isinstance(emit, ChangeEmit) or not isinstance(emit.equal, PythonEqual):
        return stage
    return stage.model_copy(update={"emit": emit.model_copy(update={"equal": emit.equal.planned()})})


def _python_equals(pipeline: Pipeline) -> Iterator[PythonEqual]:
    for stage in pipeline.stages:
        if isinstance(stage.emit, ChangeEmit) and isinstance(stage.emit.equal, PythonEqual):
            yield stage.emit.equal


def with_suites(pipeline: Pipeline, text_of: Callable[[str], str | None]) -> Pipeline:
    """The pipeline with its suites as they are now. `text_of`: name -> the text of its file; None: it stays
    as it is. Raises SettingsInvalid where rows are held against a suite, and it is none.
    """
    if not pipeline.checks:
        return pipeline
    quality: list[AnyCheck] = []
    for each in pipeline.quality:  # a checkpoint whose files nobody has read stays as it is
        quality += [_with_suite(check, text_of(check.suite)) for check in each.checks] or [each]
    return pipeline.model_copy(update={"quality": tuple(quality)})


def _with_suite(check: QualityCheck, text: str | None) -> QualityCheck:
    try:
        return check if text is None else check.planned(text)
    except ValueError as error:
        what = f"The quality suite {check.suite} is not one of Great Expectations: {error}"
        raise SettingsInvalid(what, "Correct the file.") from error


def suite_text(folder: Path, name: str) -> str:
    """The text of a suite's file. Raises SettingsInvalid."""
    path = folder / f"{name}.json"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        existing = sorted(file.stem for file in folder.glob("*.json"))
        fix = did_you_mean(name, existing, "Write it, or correct the `suite` of `quality`.")
        raise SettingsInvalid(f"The quality suite {path} does not exist", fix) from error
    except (OSError, UnicodeDecodeError) as error:
        fix = "Check the file and its permissions."
        raise SettingsInvalid(f"The quality suite {path} cannot be read: {error}", fix) from error
