"""Pipeline files: from text to `Pipeline`, or to every mistake at once."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tidegate.errors import PipelineInvalid, Problem
from tidegate.spec.folder import pipeline_files
from tidegate.spec.pipeline import Pipeline, Written
from tidegate.spec.scope import Scope
from tidegate.spec.told import tell
from tidegate.spec.tree import Tree, read, read_text, unlocated

_PIPELINE = re.compile(r"""^pipeline:[ \t]*["']?(\w+)""", re.MULTILINE)


def load_pipeline(path: Path) -> Pipeline:
    """The pipeline in a file. Raises PipelineInvalid with all of its problems."""
    return parse_pipeline(read_text(path), str(path))


def parse_pipeline(text: str, file: str) -> Pipeline:
    """The pipeline in a text; `file` is what problems call it. Raises PipelineInvalid."""
    return parse_tree(read(text, file), text)


def load_pipelines(folder: Path) -> tuple[dict[str, Pipeline], list[PipelineInvalid]]:
    """File name without `.yaml` -> pipeline, of a whole folder, and the errors of those that cannot be used.

    Two generations of a pipeline may stand in two files, to run side by side. Of files with the same
    name and generation none can be used: which one would own the state? Nor can one whose lookup does not
    fit the windows of another's stage.
    """
    found: dict[Path, Pipeline] = {}
    errors = []
    for path in pipeline_files(folder):
        try:
            found[path] = load_pipeline(path)
        except PipelineInvalid as error:
            errors.append(error)
    refused = dict(_refused(found))
    accepted = {path.stem: pipeline for path, pipeline in found.items() if path not in refused}
    return accepted, [*errors, *refused.values()]


def load_pipeline_of_folder(path: Path) -> Pipeline:
    """The pipeline in a file of a folder, if `load_pipelines` accepts it there. Raises PipelineInvalid.

    Of the others it reads those only that have the pipeline's name, that of one whose state it looks up, or
    that of the folder of a sink.
    """
    pipeline = load_pipeline(path)
    names = {pipeline.pipeline, *(lookup.state[0] for lookup in pipeline.lookup if lookup.state)}
    names |= {sink.lake_folder for sink in pipeline.sinks if sink.lake_folder is not None}
    pipelines = {path: pipeline}
    for other in sorted(path.parent.glob("*.yaml")):
        with suppress(PipelineInvalid):
            if other != path and _may_be_of(read_text(other), names):
                pipelines[other] = load_pipeline(other)
    refusal = dict(_refused(pipelines)).get(path)
    if refusal is not None:
        raise refusal
    return pipeline


def _may_be_of(text: str, names: Container[str]) -> bool:
    """Whether a file's text is of one of these pipelines; where that is not plain to see, it may be."""
    match = _PIPELINE.search(text)
    return match is None or match[1] in names


def _refused(found: dict[Path, Pipeline]) -> Iterator[tuple[Path, PipelineInvalid]]:
    """Those that have no mistakes of their own, but do not go with the others."""
    owners = Counter(map(_stream, found.values()))
    for path, pipeline in found.items():
        if owners[_stream(pipeline)] > 1:
            yield path, _shared(path, found)
        elif problems := [
            *_lookup_problems(pipeline, path, found.values()),
            *_sink_problems(pipeline, path, {other.pipeline for other in found.values()}),
        ]:
            yield path, PipelineInvalid(problems)


def _lookup_problems(pipeline: Pipeline, path: Path, others: Iterable[Pipeline]) -> Iterator[Problem]:
    """Lookups that fit none of the generations that are there of the pipeline whose state they read."""
    if not pipeline.lookup:
        return  # reading the file again, for its lines, takes as long as the rest
    tree = read(pipeline.text, str(path))
    stages = [((other.pipeline, stage.name), stage) for other in others for stage in other.stages]
    for at, lookup in enumerate(pipeline.lookup):
        generations = [stage for name, stage in stages if name == lookup.state]
        mistakes = [lookup.state_mistake(stage) for stage in generations]
        refusals = [mistake for mistake in mistakes if mistake is not None]
        if refusals and len(refusals) == len(mistakes):
            yield tree.problem(("lookup", at, "on"), *refusals[0])


def _sink_problems(pipeline: Pipeline, path: Path, pipelines: Container[str]) -> Iterator[Problem]:
    """Table sinks in the lake's folder of another pipeline, whose state a vacuum of the table removes."""
    for at, sink in enumerate(pipeline.sinks):
        if sink.lake_folder is not None and sink.lake_folder in pipelines:
            what = f"it lies in the lake's folder of the pipeline `{sink.lake_folder}`, or is that folder"
            fix = "Write a name that no pipeline has, such as `out/...`."
            yield read(pipeline.text, str(path)).problem(("sinks", at, "path"), what, fix)


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


def _unforeseen(tree: Tree, error: Exception) -> Problem:
    """Return the problem of a file whose check itself has failed."""
    message = f"tidegate cannot check this file: {type(error).__name__}: {error}"
    return tree.problem((), message, "Undo the last edit of the file, and report the error to tidegate.")


def parse_tree(tree: Tree, text: str, in_case: bool = False) -> Pipeline:
    """The pipeline that a tree holds. `text` is what it was read from. Raises PipelineInvalid."""
    try:
        written = Written.model_validate(
            tree.data, context=Scope(in_case=in_case, folder=Path(tree.file).parent)
        )
    except ValidationError as error:
        raise PipelineInvalid(tell(error, tree)) from None
    except Exception as error:
        # A validator that stumbles over one file must not take the DAGs of all other files down.
        raise PipelineInvalid([_unforeseen(tree, error)]) from error
    fields = {name: getattr(written, name) for name in Written.model_fields}
    return Pipeline.model_construct(**fields, text=text)
