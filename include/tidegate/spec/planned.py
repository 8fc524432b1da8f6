"""The parts of a pipeline that a plan fixes beside its file: the versions of the Python functions that it
calls, and the texts of its suites. A retry then uses the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidegate.errors import SettingsInvalid
from tidegate.spec.mistakes import did_you_mean
from tidegate.spec.pipeline import Pipeline
from tidegate.spec.quality import AnyCheck, QualityCheck
from tidegate.spec.stage import Stage


def python_functions(pipeline: Pipeline) -> dict[str, str | None]:
    """Return function -> digest of its module's source; the digest is None before the pipeline is planned.

    Example: `{"shop.compare:same": None}`
    """
    return {name: digest for stage in pipeline.stages for name, digest in stage.emit.functions.items()}


def with_digests(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline with the present digests of its functions.

    Raises UserFunctionFailed if a function cannot be imported.
    """
    if not python_functions(pipeline):
        return pipeline
    return pipeline.model_copy(update={"stages": tuple(map(_with_digest, pipeline.stages))})


def _with_digest(stage: Stage) -> Stage:
    return stage.model_copy(update={"emit": stage.emit.with_digests()})


def with_suites(pipeline: Pipeline, text_of: Callable[[str], str | None]) -> Pipeline:
    """Return the pipeline with the texts of its suites.

    Args:
        pipeline: The pipeline.
        text_of: Returns the text of a suite's file by its name; None leaves the check unchanged.

    Raises SettingsInvalid if single rows must pass a suite (`on_failure: quarantine`), and its file is not a
    suite.
    """
    if not pipeline.checks:
        return pipeline
    quality: list[AnyCheck] = []
    for entry in pipeline.quality:  # a checkpoint stays unchanged if its files were not read
        quality += [_with_suite(check, text_of(check.suite)) for check in entry.checks] or [entry]
    return pipeline.model_copy(update={"quality": tuple(quality)})


def _with_suite(check: QualityCheck, text: str | None) -> QualityCheck:
    try:
        return check if text is None else check.planned(text)
    except ValueError as error:
        what = f"The quality suite {check.suite} is not one of Great Expectations: {error}"
        raise SettingsInvalid(what, "Correct the file.") from error


def suite_text(folder: Path, name: str) -> str:
    """Return the text of a suite's file. Raises SettingsInvalid if it does not exist or cannot be read.

    Args:
        folder: The folder of expectations.
        name: The name of the suite, without `.json`.
    """
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
