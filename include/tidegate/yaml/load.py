"""Load pipeline files: a text becomes a `Pipeline`, or all of its mistakes are reported at once.

It also loads `defaults.yaml`, and reads the stream and the schedule of a file that has mistakes: if the
mistakes are elsewhere in the file, its DAG stays in Airflow, with the schedule that it had.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from tidegate.errors import PipelineInvalid, Problem
from tidegate.model.airflow import AirflowSettings
from tidegate.model.mistakes import did_you_mean
from tidegate.model.names import matching
from tidegate.model.pipeline import Pipeline, Scheduling, Written
from tidegate.model.scope import Model, Scope
from tidegate.yaml.folder import DEFAULTS_FILE, is_dag_name, path_of, pipeline_files
from tidegate.yaml.grammar import DEFAULTS, as_problems
from tidegate.yaml.tree import Tree, read, read_text, unlocated

_PIPELINE = re.compile(r"""^pipeline:[ \t]*["']?(\w+)""", re.MULTILINE)


def pipeline_path(name: str, folder: Path) -> Path:
    """Return the file of a pipeline, as `path_of`. Raises PipelineInvalid if there is no such file."""
    path = path_of(name, folder)
    if path.is_file():
        return path
    names = [file.stem for file in pipeline_files(folder)]
    otherwise = f"{folder} has: {', '.join(names) or 'none'}. Set TIDEGATE_PIPELINES for another folder."
    fix = did_you_mean(path.stem, names, otherwise)
    raise PipelineInvalid([Problem(str(path), 1, "pipeline", "There is no such file", fix)])


def load_pipeline(path: Path) -> Pipeline:
    """Load the pipeline of a file. Raises PipelineInvalid with all problems of the file.

    Example: `load_pipeline(Path("include/pipelines/orders.yaml"))`
    """
    return parse_pipeline(read_text(path), str(path))


def parse_pipeline(text: str, file: str) -> Pipeline:
    """Parse the pipeline of a text.

    Args:
        text: YAML, or JSON if `file` ends with `.json`.
        file: The file's name, for problems, and to find schema files beside it.

    Raises PipelineInvalid with all problems of the text.
    """
    return parse_tree(read(text, file), text)


def load_pipelines(folder: Path) -> tuple[dict[str, Pipeline], list[PipelineInvalid]]:
    """Load all pipelines of a folder.

    Two files may have two generations of a pipeline, which run side by side. If several files have the same
    pipeline and generation, none of them is accepted, because only one could own the state. A file is also
    refused if a lookup does not fit the windows of the stage that it reads.

    Returns file name without `.yaml` -> pipeline, and an error for each file that is refused.
    """
    pipelines: dict[Path, Pipeline] = {}
    errors = []
    # A mistake in one file must not take away the pipelines of the others.
    for path in pipeline_files(folder):
        try:
            pipelines[path] = load_pipeline(path)
        except PipelineInvalid as error:
            errors.append(error)
    # After all files: only now each conflict between two of them shows.
    refused = dict(_refused(pipelines))
    accepted = {path.stem: pipeline for path, pipeline in pipelines.items() if path not in refused}
    return accepted, [*errors, *refused.values()]


def load_generations(folder: Path, pipeline: str) -> tuple[list[Pipeline], list[PipelineInvalid]]:
    """Load the files of all generations of a pipeline that `load_pipelines` would accept.

    Returns them, and an error for each file that is refused. The errors include files that do not show which
    pipeline they belong to.
    """
    pipelines, errors = [], []
    for path in pipeline_files(folder):
        try:
            # The name first: to parse all files of a large folder takes long.
            if _may_be_of(read_text(path), {pipeline}):
                pipelines.append(load_pipeline_of_folder(path))
        except PipelineInvalid as error:
            errors.append(error)
    return [loaded for loaded in pipelines if loaded.pipeline == pipeline], errors


def load_pipeline_of_folder(path: Path) -> Pipeline:
    """Load the pipeline of a file, if `load_pipelines` would accept it in its folder.

    It reads only the other files that matter: those of the same pipeline, of pipelines whose state is looked
    up, and of pipelines whose folder a sink would write to.

    Raises PipelineInvalid with all problems of the file.
    """
    pipeline = load_pipeline(path)
    names = {pipeline.pipeline, *(lookup.state[0] for lookup in pipeline.lookup if lookup.state)}
    names |= {sink.lake_folder for sink in pipeline.sinks if sink.lake_folder is not None}
    pipelines = {path: pipeline}
    for other in pipeline_files(path.parent):
        with suppress(PipelineInvalid):
            # The name first: to parse all files of a large folder takes long.
            if other != path and _may_be_of(read_text(other), names):
                pipelines[other] = load_pipeline(other)
    refusal = dict(_refused(pipelines)).get(path)
    if refusal is not None:
        raise refusal
    return pipeline


def _may_be_of(text: str, names: Container[str]) -> bool:
    """Return whether a text may be of one of these pipelines.

    It is true if the text does not show the name.
    """
    match = _PIPELINE.search(text)
    return match is None or match[1] in names


def _refused(pipelines: dict[Path, Pipeline]) -> Iterator[tuple[Path, PipelineInvalid]]:
    """Yield the files that have no mistakes themselves, but conflict with other files."""
    # Without misnamed files: a stray `orders (copy).yaml` must not stop `orders.yaml`.
    named = {path: pipeline for path, pipeline in pipelines.items() if is_dag_name(path.stem)}
    owners = Counter(map(_stream, named.values()))
    for path, pipeline in pipelines.items():
        if path not in named:
            yield path, _misnamed(path)
        # All of them, not the later ones: the order of names must not decide who owns the state.
        elif owners[_stream(pipeline)] > 1:
            yield path, _shared(path, named)
        elif problems := [
            *_lookup_problems(pipeline, path, pipelines.values()),
            *_sink_problems(pipeline, path, {other.pipeline for other in pipelines.values()}),
        ]:
            yield path, PipelineInvalid(problems)


def _lookup_problems(pipeline: Pipeline, path: Path, pipelines: Iterable[Pipeline]) -> Iterator[Problem]:
    """Yield the problems of lookups that fit no generation of the pipeline whose state they read."""
    if not pipeline.lookup:
        return  # the file is read again to find the lines, which takes as long as all the rest
    tree = read(pipeline.text, str(path))
    stages = [((other.pipeline, stage.name), stage) for other in pipelines for stage in other.stages]
    for at, lookup in enumerate(pipeline.lookup):
        generations = [stage for name, stage in stages if name == lookup.state]
        mistakes = [lookup.state_mistake(stage) for stage in generations]
        refusals = [mistake for mistake in mistakes if mistake is not None]
        # One generation that fits is enough: the plan pins one of them.
        if refusals and len(refusals) == len(mistakes):
            yield tree.problem(("lookup", at, "on"), *refusals[0])


def _sink_problems(pipeline: Pipeline, path: Path, pipelines: Container[str]) -> Iterator[Problem]:
    """Yield table sinks in another pipeline's folder, whose state a vacuum would delete."""
    for at, sink in enumerate(pipeline.sinks):
        if sink.lake_folder is not None and sink.lake_folder in pipelines:
            what = f"it is in the lake's folder of the pipeline `{sink.lake_folder}`, or is that folder"
            fix = "Write a name that no pipeline has, such as `out/...`."
            yield read(pipeline.text, str(path)).problem(("sinks", at, "path"), what, fix)


def _misnamed(path: Path) -> PipelineInvalid:
    what = f"the name of the file, {path.stem!r}, cannot be the id of its DAG"
    fix = (
        "Rename it: up to 140 letters, digits, `_`, `-` and `.`; not `tidegate_maintenance`, and not with "
        "`.promote` at the end, which are ids of tidegate's other DAGs."
    )
    return PipelineInvalid([Problem(str(path), 1, "pipeline", what, fix)])


def _stream(pipeline: Pipeline) -> tuple[str, int]:
    return pipeline.pipeline, pipeline.generation


def _shared(path: Path, pipelines: dict[Path, Pipeline]) -> PipelineInvalid:
    pipeline = pipelines[path]
    same = [other for other, candidate in pipelines.items() if _stream(candidate) == _stream(pipeline)]
    files = ", ".join(str(other) for other in same if other != path)
    tree = read(pipeline.text, str(path))
    message = f"generation {pipeline.generation} of `{pipeline.pipeline}` is also in {files}"
    fix = "Rename one, give it another generation, or remove it."
    return PipelineInvalid([tree.problem(("pipeline",), message, fix)])


def parse_case_pipeline(data: dict[str, Any], file: str) -> Pipeline:
    """Parse the pipeline of a case file, in which `schedule`, `generation`, `sinks` and `quality` may be
    absent.

    Raises PipelineInvalid with all of its problems.

    Args:
        data: The pipeline as the case has it.
        file: The name of the case file, for problems.
    """
    return parse_tree(unlocated(data, file), json.dumps(data, sort_keys=True), in_case=True)


def _unforeseen(tree: Tree, error: Exception) -> Problem:
    """Return the problem of a file whose check itself has failed."""
    message = f"tidegate cannot check this file: {type(error).__name__}: {error}"
    return tree.problem((), message, "Undo the last edit of the file, and report the error to tidegate.")


def parse_tree(tree: Tree, text: str, in_case: bool = False) -> Pipeline:
    """Validate a tree as a pipeline.

    Args:
        tree: The data with its lines.
        text: The text that it was read from, which the pipeline stores.
        in_case: Whether it is part of a case file, where sinks may be absent.

    Raises PipelineInvalid with all problems.
    """
    try:
        written = Written.model_validate(
            tree.data, context=Scope(in_case=in_case, folder=Path(tree.file).parent)
        )
    except ValidationError as error:
        raise PipelineInvalid(as_problems(error, tree)) from None
    except Exception as error:
        # A bug in a validator must not remove the DAGs of all other files.
        raise PipelineInvalid([_unforeseen(tree, error)]) from error
    fields = {name: getattr(written, name) for name in Written.model_fields}
    return Pipeline.model_construct(**fields, text=text)


_check_prefix = matching(
    re.compile(r"[A-Za-z0-9_.-]{0,100}"),
    "cannot begin the id of a DAG",
    "Use at most 100 letters, digits, `_`, `-` and `.`: `shop_`.",
)
_WRITTEN = re.compile(r"^[ \t]*[^\s#]", re.MULTILINE)
"""A line that is neither blank nor a comment."""


class Defaults(Model):
    """The settings for every pipeline of the folder that does not have them itself."""

    dag_id_prefix: Annotated[str, AfterValidator(_check_prefix)] = Field(
        default="", description="A prefix for the id of each DAG; the file's name follows."
    )
    airflow: AirflowSettings = Field(
        default=AirflowSettings(), description="Settings of DAGs; a pipeline's own settings override them."
    )

    def promotion_dag_id(self, pipeline: str) -> str:
        """Return the id of the DAG that promotes generations of a pipeline after a person's approval.

        Example: `shop_orders.promote` with `dag_id_prefix: shop_`.
        """
        return f"{self.dag_id_prefix}{pipeline}.promote"


def load_defaults(folder: Path) -> Defaults:
    """Load the defaults of a folder of pipelines; without the file there are none.

    Raises PipelineInvalid if the file has mistakes.

    Example: `load_defaults(settings.pipelines).airflow.pool`
    """
    path = folder / DEFAULTS_FILE
    # A link to nothing is a mistake: without the prefix in it, each DAG would get another id.
    if not os.path.lexists(path):
        return Defaults()
    text = read_text(path)
    # A file that has only comments is not a mistake: it has no defaults.
    if not _WRITTEN.search(text):
        return Defaults()
    tree = read(text, str(path))
    try:
        return Defaults.model_validate(tree.data)
    except ValidationError as error:
        raise PipelineInvalid(as_problems(error, tree, grammar=DEFAULTS)) from error


_FIELDS = tuple(field.alias or name for name, field in Scheduling.model_fields.items())
_LINE = re.compile(rf"^({'|'.join(_FIELDS)}):(?:[ \t](.*))?$", re.MULTILINE)
_ILLEGIBLE = object()
"""Replaces a value that is not YAML: no field accepts it, so the field counts as wrong."""


def legible_scheduling(text: str, last_good: str = "") -> Scheduling | None:
    """Return the stream and schedule of a text that has mistakes, or is not YAML at all.

    Args:
        text: The text of the file.
        last_good: An earlier text, which gives the fields that are wrong or missing in `text`.

    Fields that both texts lack have their defaults. None if neither names a pipeline.
    """
    usable, wrong = _without_mistakes(_fields_of(text))
    # A missing name counts as wrong, because without it there is no stream.
    wrong |= {"pipeline"} - usable.keys()
    if wrong and last_good:
        before, _ = _without_mistakes(_fields_of(last_good))
        usable, _ = _without_mistakes(usable | {name: before[name] for name in wrong if name in before})
    return Scheduling.model_validate(usable, context=Scope()) if "pipeline" in usable else None


def stream_in_broken_file(file: str) -> tuple[str, int | None] | None:
    """Return the pipeline and generation of a file that has mistakes, or is not YAML at all.

    The generation is None if its field is wrong. The result is None if the file names no pipeline.
    """
    try:
        usable, wrong = _without_mistakes(_fields_of(read_text(Path(file))))
    except PipelineInvalid:
        return None
    if "pipeline" not in usable:
        return None
    return usable["pipeline"], None if "generation" in wrong else usable.get("generation", 1)


def _fields_of(text: str) -> dict[str, Any]:
    """Return the fields as they are written. A text that is not YAML is searched line by line."""
    try:
        data = read(text, "text").data
    except PipelineInvalid:
        lines = dict(reversed(_LINE.findall(text)))  # if a field appears twice, the first one counts
        return {name: _value(written) for name, written in lines.items()}
    return {name: data[name] for name in _FIELDS if name in data} if isinstance(data, dict) else {}


def _value(written: str) -> Any:
    if not written.strip():
        return None
    try:
        return read(written, "line").data
    except PipelineInvalid:
        return _ILLEGIBLE


def _without_mistakes(fields: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Return the usable fields, and the names of the wrong ones.

    It validates again after removing wrong fields, because a field's check can depend on another field.
    """
    usable = dict(fields)
    # Ends: each round removes at least one field.
    while True:
        try:
            # A stand-in for a name that is wrong, so that the other fields can still be validated.
            Scheduling.model_validate({"pipeline": "unnamed"} | usable, context=Scope())
        except ValidationError as error:
            usable = {
                name: value
                for name, value in usable.items()
                if name not in {details["loc"][0] for details in error.errors(include_input=False)}
            }
        else:
            return usable, set(fields) - set(usable)
