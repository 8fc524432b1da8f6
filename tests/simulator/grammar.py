"""The grammar of the simulated world: a text is parsed, compiled, read and compared once for all seeds."""

from __future__ import annotations

from functools import cache

from tidegate.spec import Pipeline, compile_pipeline, incompatible_changes, parse_pipeline
from tidegate.spec import read_compiled as read
from tidegate.spec.compatibility import Change

parsed = cache(parse_pipeline)
read_compiled = cache(read)


@cache
def _compiled(text: str) -> str:
    return compile_pipeline(parsed(text, "simulated.yaml"))


def compiled(pipeline: Pipeline) -> str:
    """As `spec.compile_pipeline`."""
    return _compiled(pipeline.text)


@cache
def _changed(before: str, after: str) -> list[Change]:
    return incompatible_changes(parsed(before, "simulated.yaml"), parsed(after, "simulated.yaml"))


def changed(before: Pipeline, after: Pipeline) -> list[Change]:
    """As `spec.incompatible_changes`."""
    return _changed(before.text, after.text)
