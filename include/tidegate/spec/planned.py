"""What a plan fixes of a pipeline beside its file: the versions of the Python functions that it calls."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.spec.emit import ChangeEmit
from tidegate.spec.equal import PythonEqual
from tidegate.spec.pipeline import Pipeline
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
