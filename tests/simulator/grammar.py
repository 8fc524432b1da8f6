"""The grammar of the simulated world: each text is parsed, compiled and read once, for all seeds."""

from __future__ import annotations

from functools import cache

from tidegate.spec import Pipeline, compile_pipeline, parse_pipeline
from tidegate.spec import read_compiled as read

parsed = cache(parse_pipeline)
read_compiled = cache(read)


@cache
def _compiled(text: str) -> str:
    return compile_pipeline(parsed(text, "simulated.yaml"))


def compiled(pipeline: Pipeline) -> str:
    """As `spec.compile_pipeline`."""
    return _compiled(pipeline.text)
