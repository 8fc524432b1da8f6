"""Find what pipeline files refer to and what does not exist: suites, checkpoints, lookups, modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from tidegate.errors import Problem, SettingsInvalid, UserFunctionFailed
from tidegate.model.kernel_stages import state_columns
from tidegate.model.lookup import Lookup
from tidegate.model.mistakes import did_you_mean, listed
from tidegate.model.pipeline import Pipeline
from tidegate.model.planned import (
    checkpoint_checks,
    python_functions,
    require_distinct_checks,
    suite_text,
    with_digests,
)
from tidegate.model.quality import QualityCheck
from tidegate.model.row_expectations import suite_rows
from tidegate.model.tables import Expected, missing_column
from tidegate.quality.facts import BUILTIN_TYPES
from tidegate.quality.suite import parse_suite
from tidegate.settings import Settings
from tidegate.yaml.tree import Route, Tree, read

Missing = tuple[Route, str, str]
"""(place in the file, what is missing, the remedy)"""


def missing_references(
    pipeline: Pipeline, file: Path, pipelines: Mapping[str, list[Pipeline]], settings: Settings
) -> list[Problem]:
    """Return a problem for each reference in a file to something that does not exist.

    Lookup tables in an object store, and connections of Airflow, are only checked by `doctor`.

    Args:
        pipelines: Pipeline -> its generations in all files; an empty list if its file has mistakes.
    """
    missing = [
        *missing_suites(pipeline, settings.expectations),
        *_missing_lookups(pipeline, pipelines),
        *_missing_functions(pipeline),
    ]
    if not missing:
        return []
    tree: Tree = read(pipeline.text, str(file))
    return [tree.problem(*reference) for reference in missing]


def unset_connections(pipeline: Pipeline, settings: Settings) -> list[str]:
    """Return the variables of databases, registries and named Kafka clusters that are not set here.

    Under Airflow, its connections set them.
    """
    connections = [
        connection for connection in pipeline.connections if connection.kind != "kafka" or connection.name
    ]
    return sorted(connection.variable for connection in connections if not settings.has(connection))


def missing_suites(pipeline: Pipeline, folder: Path) -> Iterator[Missing]:
    """Yield the checkpoints and suites of a pipeline that do not exist in their folders, or are not valid."""
    is_list = isinstance(read(pipeline.text, "").data.get("quality"), list) if pipeline.quality else False
    all_checks: list[QualityCheck] = []
    is_readable = True
    for number, written in enumerate(pipeline.quality):
        at: Route = ("quality", number) if is_list else ("quality",)
        at = (*at, "suite" if written.checks else "checkpoint")
        try:
            checks = written.read(partial(checkpoint_checks, pipeline, folder))
        except SettingsInvalid as error:
            yield at, error.what, error.fix
            is_readable = False
            continue
        all_checks += checks
        for check in checks:
            yield from ((at, *problem) for problem in _missing_suite(check, folder))
            yield from ((at, *problem) for problem in _without_rows(check, folder))
    if is_readable:
        yield from _repeated_suite(all_checks)


def _repeated_suite(checks: Sequence[QualityCheck]) -> Iterator[Missing]:
    try:
        require_distinct_checks(checks)
    except SettingsInvalid as error:
        yield ("quality",), error.what, error.fix


def _missing_suite(check: QualityCheck, folder: Path) -> Iterator[tuple[str, str]]:
    place = f"The suite {folder / check.suite}.json"
    try:
        parse_suite(
            suite_text(folder, check.suite), place, additional_types=None if check.modules else BUILTIN_TYPES
        )
    except SettingsInvalid as error:
        yield error.what, error.fix


def _without_rows(check: QualityCheck, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield a problem if a suite with `on_failure: quarantine` has no expectation on single rows."""
    if check.on_failure != "quarantine":
        return
    with suppress(SettingsInvalid, ValueError):  # `_missing_suite` reports it
        suite = suite_rows(suite_text(folder, check.suite))
        if not suite.rows:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in suite.unsupported) or "it is empty"
            fix = f"Write `on_failure: stop`, or an expectation about single rows ({reasons})."
            yield "no expectation of the suite is about single rows, so none goes into quarantine", fix


def _missing_lookups(pipeline: Pipeline, pipelines: Mapping[str, list[Pipeline]]) -> Iterator[Missing]:
    lookups: list[tuple[Route, Lookup | Expected]] = [
        *((("lookup", number), lookup) for number, lookup in enumerate(pipeline.lookup)),
        *(
            (("stages", number, "expected"), stage.expected)
            for number, stage in enumerate(pipeline.stages)
            if stage.expected is not None
        ),
    ]
    for at, lookup in lookups:
        place = (*at, "table")
        if lookup.state is not None:
            yield from ((place, *problem) for problem in _missing_state(lookup, pipelines))
        elif lookup.table.startswith("/") and not Path(lookup.table, "_delta_log").is_dir():
            yield place, f"there is no Delta table at {lookup.table}", "Write it first, or correct its path."


def _missing_state(
    lookup: Lookup | Expected, pipelines: Mapping[str, list[Pipeline]]
) -> Iterator[tuple[str, str]]:
    assert lookup.state is not None, "only asked for states"
    name, stage = lookup.state
    if name not in pipelines:
        otherwise = f"The pipelines are {listed(sorted(pipelines))}."
        yield f"no file has the pipeline `{name}`", did_you_mean(name, pipelines, otherwise)
        return
    stages = list(dict.fromkeys(item.name for pipeline in pipelines[name] for item in pipeline.stages))
    if pipelines[name] and stage not in stages:
        otherwise = f"Its stages are {listed(stages)}."
        yield f"the pipeline `{name}` has no stage `{stage}`", did_you_mean(stage, stages, otherwise)
        return
    missing = [
        missing_column(lookup, state_columns(pipeline, item))
        for pipeline in pipelines[name]
        for item in pipeline.stages
        if item.name == stage
    ]
    if missing and all(missing):
        yield from filter(None, missing[-1:])


def _missing_functions(pipeline: Pipeline) -> Iterator[Missing]:
    for number, stage in enumerate(pipeline.stages):
        alone = pipeline.model_copy(update={"stages": (stage,)})
        if python_functions(alone):
            try:
                with_digests(alone)
            except UserFunctionFailed as error:
                yield ("stages", number, "emit", "equal", "python"), error.what, error.fix
