"""The grammar of the simulated world, which may grow stricter while batches are at work.

From then on it takes no quoted names any more: whoever has the file writes them without, and what the ledger
has is as it was. Whatever the code makes of a pipeline is made once for all seeds and each of the two days:
so what parses a text of the ledger fails, in the first seed that has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pyarrow as pa
import sqlglot.errors

from tidegate.model import sql
from tidegate.model.compiled import compile_pipeline
from tidegate.model.compiled import read_compiled as read
from tidegate.model.kernel_stages import kernel_stage, with_types
from tidegate.model.pipeline import Pipeline
from tidegate.storage.compatibility import Change, incompatible_changes, notable_changes
from tidegate.yaml.load import parse_pipeline

QUOTE = "`"
_WRITTEN = re.compile(r"(?<!`\.)`value`")
"""The quoted name of pipeline files. tidegate quotes names by itself, too: those stay."""
_EMITTED = pa.struct([("value", pa.string())])
_parse = sql._parse
_days = ["lenient"]


@contextmanager
def of_its_day() -> Iterator[None]:
    """A world, in which the grammar is as it was at first until it `grow_stricter`."""
    _days[:] = ["lenient"]
    try:
        yield
    finally:
        _days[:] = ["lenient"]


def grow_stricter() -> None:
    """Make the grammar of this world stricter from now on."""
    _days[:] = ["strict"]


def _is_strict() -> bool:
    return _days == ["strict"]


def in_todays_words(text: str) -> str:
    """The file of a pipeline, after the grammar has grown stricter."""
    return text.replace(QUOTE, "")


def parse(text: str, *rest: Any) -> Any:
    """Parse in place of `model.sql._parse`."""
    if _is_strict() and _WRITTEN.search(text):
        raise sqlglot.errors.ParseError("The grammar has grown stricter")
    return _parse(text, *rest)


@cache
def _parsed(text: str, file: str, day: str) -> Pipeline:
    return parse_pipeline(text, file)


def parsed(text: str, file: str) -> Pipeline:
    """Parse a file in place of `yaml.load.parse_pipeline`. Raises PipelineInvalid."""
    return _parsed(text, file, *_days)


@cache
def _read(compiled: str, text: str, label: str, day: str) -> Pipeline:
    return read(compiled, text, label)


def read_compiled(compiled: str, text: str, label: str) -> Pipeline:
    """Read a compiled form in place of `model.compiled.read_compiled`."""
    return _read(compiled, text, label, *_days)


_compiled: dict[str, str] = {}
_changes: dict[tuple[str, str, str], list[Change]] = {}
_computable: set[tuple[str, str]] = set()


def compiled(pipeline: Pipeline) -> str:
    """Compile a pipeline in place of `model.compiled.compile_pipeline`."""
    if pipeline.text not in _compiled:
        _compiled[pipeline.text] = compile_pipeline(pipeline)
    return _compiled[pipeline.text]


def changed(before: Pipeline, after: Pipeline) -> list[Change]:
    """Return the changes in place of `storage.compatibility.incompatible_changes`."""
    key = (before.text, after.text, *_days)
    if key not in _changes:
        _changes[key] = incompatible_changes(before, after)
    return _changes[key]


_notable: dict[tuple[str, str], list[str]] = {}


def notable(before: Pipeline, after: Pipeline) -> list[str]:
    """Return the sentences in place of `storage.compatibility.notable_changes`."""
    key = (before.text, after.text)
    if key not in _notable:
        _notable[key] = notable_changes(before, after)
    return _notable[key]


def require_conditions(pipeline: Pipeline) -> None:
    """Type a pipeline's conditions as a computation does. Raises ConditionFailed."""
    key = (pipeline.text, *_days)
    if key not in _computable:
        for stage in pipeline.stages:
            with_types(kernel_stage(pipeline, stage), _EMITTED, {})
        _computable.add(key)
