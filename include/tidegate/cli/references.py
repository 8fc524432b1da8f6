"""What pipeline files name, and is not there: suites, checkpoints, what lookups read, modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from tidegate.errors import Problem, SettingsInvalid, UserFunctionFailed
from tidegate.quality.builtin.types import BUILTIN_TYPES
from tidegate.quality.suite import parse_suite
from tidegate.settings import Settings
from tidegate.spec import (
    Lookup,
    Pipeline,
    QualityCheck,
    python_functions,
    suite_text,
    with_digests,
)
from tidegate.spec.checkpoints import checkpoint_checks, require_distinct_checks
from tidegate.spec.mistakes import did_you_mean, listed
from tidegate.spec.row_expectations import suite_rows
from tidegate.spec.tree import Route, Tree, read

Found = tuple[Route, str, str]
"""Where in the file, what is missing, and the remedy."""


def missing_references(
    pipeline: Pipeline, file: Path, known: Mapping[str, list[Pipeline]], settings: Settings
) -> list[Problem]:
    """What a file names that is not there. `known`: pipeline -> its generations, of all files; none where its
    file has mistakes.

    A lookup's table in an object store, and what Airflow's connections hold, only `doctor` looks for.
    """
    found = [
        *missing_suites(pipeline, settings.expectations),
        *_missing_lookups(pipeline, known),
        *_missing_functions(pipeline),
    ]
    if not found:
        return []
    tree: Tree = read(pipeline.text, str(file))
    return [tree.problem(*each) for each in found]


def unset_connections(pipeline: Pipeline, settings: Settings) -> list[str]:
    """The variables of SQL sinks' databases, registries and named Kafka clusters that are not set here; under
    Airflow its connections set them.
    """
    named = [each for each in pipeline.connections if each.kind != "kafka" or each.name]
    return sorted(connection.variable for connection in named if not settings.has(connection))


def missing_suites(pipeline: Pipeline, folder: Path) -> Iterator[Found]:
    """Its checkpoints and quality suites that are not in their folders, or are none."""
    is_list = isinstance(read(pipeline.text, "").data.get("quality"), list) if pipeline.quality else False
    known: list[QualityCheck] = []
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
        known += checks
        for check in checks:
            yield from ((at, *each) for each in _missing_suite(check, folder))
            yield from ((at, *each) for each in _without_rows(check, folder))
    if is_readable:
        yield from _repeated_suite(known)


def _repeated_suite(checks: Sequence[QualityCheck]) -> Iterator[Found]:
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
    """Of `on_failure: quarantine` a suite in which nothing is about single rows."""
    if check.on_failure != "quarantine":
        return
    with suppress(SettingsInvalid, ValueError):  # told above
        found = suite_rows(suite_text(folder, check.suite))
        if not found.rows:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in found.unsupported) or "it is empty"
            fix = f"Write `on_failure: stop`, or an expectation about single rows ({reasons})."
            yield "no expectation of the suite is about single rows, so none goes into quarantine", fix


def _missing_lookups(pipeline: Pipeline, known: Mapping[str, list[Pipeline]]) -> Iterator[Found]:
    for number, lookup in enumerate(pipeline.lookup):
        at: Route = ("lookup", number, "table")
        if lookup.state is not None:
            yield from ((at, *each) for each in _missing_state(lookup, known))
        elif lookup.table.startswith("/") and not Path(lookup.table, "_delta_log").is_dir():
            yield at, f"there is no Delta table at {lookup.table}", "Write it first, or correct its path."


def _missing_state(lookup: Lookup, known: Mapping[str, list[Pipeline]]) -> Iterator[tuple[str, str]]:
    assert lookup.state is not None, "only asked for states"
    name, stage = lookup.state
    if name not in known:
        otherwise = f"The pipelines are {listed(sorted(known))}."
        yield f"no file has the pipeline `{name}`", did_you_mean(name, known, otherwise)
        return
    stages = list(dict.fromkeys(each.name for pipeline in known[name] for each in pipeline.stages))
    if known[name] and stage not in stages:
        otherwise = f"Its stages are {listed(stages)}."
        yield f"the pipeline `{name}` has no stage `{stage}`", did_you_mean(stage, stages, otherwise)


def _missing_functions(pipeline: Pipeline) -> Iterator[Found]:
    for number, stage in enumerate(pipeline.stages):
        alone = pipeline.model_copy(update={"stages": (stage,)})
        if python_functions(alone):
            try:
                with_digests(alone)
            except UserFunctionFailed as error:
                yield ("stages", number, "emit", "equal", "python"), error.what, error.fix
