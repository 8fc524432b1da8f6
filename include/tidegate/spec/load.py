"""Pipeline files: from text to `Pipeline`, or to every mistake at once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tidegate.errors import PipelineInvalid
from tidegate.spec.grammar import not_built
from tidegate.spec.pipeline import Pipeline, Written
from tidegate.spec.scope import Scope
from tidegate.spec.told import tell
from tidegate.spec.tree import Tree, read, read_text, unlocated


def load_pipeline(path: Path) -> Pipeline:
    """The pipeline in a file. Raises PipelineInvalid with all of its problems."""
    return parse_pipeline(read_text(path), str(path))


def parse_pipeline(text: str, file: str) -> Pipeline:
    """The pipeline in a text; `file` is what problems call it. Raises PipelineInvalid."""
    return parse_tree(read(text, file), text)


def load_pipelines(folder: Path) -> tuple[dict[str, Pipeline], list[PipelineInvalid]]:
    """File name without `.yaml` -> pipeline, of a whole folder, and the errors of those that cannot be used.

    Two generations of a pipeline may stand in two files, to run side by side. Of files with the same
    name and generation none can be used: which one would own the state?
    """
    found: dict[Path, Pipeline] = {}
    errors = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            found[path] = load_pipeline(path)
        except PipelineInvalid as error:
            errors.append(error)
    owners = Counter(map(_stream, found.values()))
    errors += [_shared(path, found) for path, each in found.items() if owners[_stream(each)] > 1]
    return {path.stem: each for path, each in found.items() if owners[_stream(each)] == 1}, errors


def _stream(pipeline: Pipeline) -> tuple[str, int]:
    return pipeline.pipeline, pipeline.generation


def _shared(path: Path, found: dict[Path, Pipeline]) -> PipelineInvalid:
    mine = found[path]
    others = [str(other) for other, its in found.items() if _stream(its) == _stream(mine) and other != path]
    tree = read(mine.text, str(path))
    message = f"generation {mine.generation} of `{mine.pipeline}` is also in {', '.join(others)}"
    fix = "Rename one, give it another generation, or remove it."
    return PipelineInvalid([tree.problem(("pipeline",), message, fix)])


def parse_case_pipeline(data: dict[str, Any], file: str) -> Pipeline:
    """The pipeline of a case file: `schedule`, `generation`, `sinks` and `quality` may be absent."""
    return parse_tree(unlocated(data, file), json.dumps(data, sort_keys=True), in_case=True)


def parse_tree(tree: Tree, text: str, in_case: bool = False) -> Pipeline:
    """The pipeline that a tree holds. `text` is what it was read from. Raises PipelineInvalid."""
    unready = list(not_built(tree.data))
    problems = [tree.problem(*each) for each in unready]
    try:
        written = Written.model_validate(tree.data, context=Scope(in_case=in_case))
    except ValidationError as error:
        problems += tell(error, tree, besides=[route for route, _, _ in unready])
    if problems:
        raise PipelineInvalid(sorted(problems, key=lambda problem: (problem.line, problem.field)))
    fields = {name: getattr(written, name) for name in Written.model_fields}
    return Pipeline.model_construct(**fields, text=text)
