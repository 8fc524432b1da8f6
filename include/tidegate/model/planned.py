"""The files and functions beside a pipeline file: suites, checkpoints, and the functions that it calls.

A plan fixes them, so that a retry uses the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from tidegate.errors import SettingsInvalid
from tidegate.model.mistakes import did_you_mean, faults_of, listed
from tidegate.model.pipeline import Pipeline
from tidegate.model.quality import AnyCheck, QualityCheck, QualityCheckpoint, repeated_suite
from tidegate.model.scope import Scope, StageScope
from tidegate.model.stage import Stage


def python_functions(pipeline: Pipeline) -> dict[str, str | None]:
    """Return function -> digest of its module's source; the digest is None before the pipeline is planned.

    Example: `{"shop.compare:same": None}`
    """
    return {
        name: digest
        for stage in pipeline.stages
        for functions in (stage.emit.functions, stage.reduce.functions)
        for name, digest in functions.items()
    }


def with_digests(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline with the present digests of its functions.

    Raises UserFunctionFailed if a function cannot be imported.
    """
    if not python_functions(pipeline):
        return pipeline
    return pipeline.model_copy(update={"stages": tuple(map(_with_digest, pipeline.stages))})


def _with_digest(stage: Stage) -> Stage:
    return stage.model_copy(update={"emit": stage.emit.with_digests(), "reduce": stage.reduce.with_digests()})


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


CHECKPOINTS, DEFINITIONS = "checkpoints", "validation_definitions"
"""The folders of both kinds of files, beside the folder of the suites."""

# COMPLETE would need all failing rows, and the ledger keeps at most 20 of them.
_FORMATS = ("SUMMARY", "BASIC")
_DOCS_ACTION = "update_data_docs"
_ROW_KINDS: tuple[str, ...] = get_args(QualityCheck.model_fields["rows"].annotation)


def with_checkpoints(pipeline: Pipeline, folder: Path) -> Pipeline:
    """Return the pipeline with each checkpoint replaced by its checks, as its files are now.

    Args:
        pipeline: A pipeline, whose `quality` may name checkpoints.
        folder: The folder of the suites.

    Raises SettingsInvalid if a file is missing, or has an option that tidegate does not support.

    Example: `with_checkpoints(load_pipeline(path), settings.expectations).checks`
    """
    if not pipeline.quality:
        return pipeline
    reader = partial(checkpoint_checks, pipeline, folder)
    checks = tuple(check for entry in pipeline.quality for check in entry.read(reader))
    # The grammar has checked the file alone; a suite of a checkpoint may be in it, too.
    require_distinct_checks(checks)
    return pipeline.model_copy(update={"quality": checks})


def require_distinct_checks(checks: Iterable[QualityCheck]) -> None:
    """Raise SettingsInvalid if a suite is evaluated twice on the same rows.

    Args:
        checks: All checks of a pipeline, with those of its checkpoints.
    """
    if (suite := repeated_suite(checks)) is not None:
        raise SettingsInvalid(
            f"The suite {suite} is evaluated twice on the same rows, because a checkpoint has it, too",
            "Keep one of the two in `quality`.",
        )


def checkpoint_checks(
    pipeline: Pipeline, folder: Path, checkpoint: QualityCheckpoint
) -> tuple[QualityCheck, ...]:
    """Return the checks of a checkpoint, in the order of its validation definitions.

    Raises SettingsInvalid if a file is missing, or has an option that tidegate does not support.
    """
    file = _File(folder.parent / CHECKPOINTS, checkpoint.checkpoint, "checkpoint")
    file.require_fields(file.content, ("name", "validation_definitions", "actions", "result_format"))
    _check_actions(file)
    _check_result_format(file)
    definitions = file.content.get("validation_definitions")
    if not isinstance(definitions, list) or not definitions:
        raise file.refused("it has no `validation_definitions`", "Add one to the checkpoint.")
    names = [file.name_in(definition, "validation_definitions") for definition in definitions]
    return tuple(_check(pipeline, folder, checkpoint, name) for name in names)


class _File:
    """A file that Great Expectations' API has written: a JSON object, whose ids are ignored."""

    def __init__(self, folder: Path, name: str, kind: str) -> None:
        self._title = f"The {kind} {folder / name}.json"
        # The name comes from a file and becomes a path: it must not lead out of the folder.
        if "/" in name or "\\" in name or name.startswith("."):
            raise self.refused(f"{name!r} is no name of a file", "Give it another name.")
        path = folder / f"{name}.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            existing = sorted(file.stem for file in folder.glob("*.json"))
            fix = did_you_mean(name, existing, f"Write it by Great Expectations' API into {folder.parent}.")
            raise SettingsInvalid(f"{self._title} does not exist", fix) from error
        except (OSError, ValueError) as error:
            raise self.refused(f"it cannot be read: {error}", "Correct the file.") from error
        if not isinstance(content, dict):
            raise self.refused("it is no JSON object", "Correct the file.")
        self.content: Mapping[str, Any] = content

    def refused(self, why: str, fix: str) -> SettingsInvalid:
        return SettingsInvalid(f"{self._title} cannot be used: {why}", fix)

    def require_fields(self, part: Mapping[str, Any], allowed: Iterable[str]) -> None:
        """Raise SettingsInvalid if a part has other fields than the allowed ones and `id`."""
        # Refused, not ignored: an option without effect would look as if it worked.
        for field in part:
            if field not in (*allowed, "id"):
                fix = did_you_mean(field, allowed, f"Known are {listed(allowed)}.")
                raise self.refused(f"tidegate does not know its field `{field}`", fix)

    def name_in(self, part: Any, field: str) -> str:
        """Return the name in a reference to another file. Raises SettingsInvalid if there is none."""
        if not isinstance(part, dict) or not isinstance(part.get("name"), str):
            raise self.refused(f"`{field}` has no `name`", "Save it again by Great Expectations' API.")
        self.require_fields(part, ("name",))
        return str(part["name"])


def _check_actions(file: _File) -> None:
    for action in file.content.get("actions") or ():
        kind = action.get("type") if isinstance(action, dict) else None
        if kind != _DOCS_ACTION:
            raise file.refused(
                f"tidegate does not run its action `{kind}`",
                "Remove it, and name one of Airflow's notifiers in the pipeline file: "
                '`airflow: {on_quality: {notifier: "shop.alerts:Notifier", with: …}}`.',
            )
        if action.get("site_names"):
            raise file.refused(
                f"its action `{kind}` names sites",
                "Leave `site_names` out: every check has its page where TIDEGATE_DATA_DOCS says.",
            )


def _check_result_format(file: _File) -> None:
    written = file.content.get("result_format", _FORMATS[0])
    options = written if isinstance(written, dict) else {"result_format": written}
    name = options.get("result_format", _FORMATS[0])
    extra = [option for option in options if option != "result_format"]
    if name not in _FORMATS or extra:
        what = f"its `result_format` is {name}" + (f" with {listed(extra)}" if extra else "")
        fix = (
            f"Write {listed(_FORMATS)}: tidegate keeps the counts and at most 20 failing rows, by their key."
        )
        raise file.refused(what, fix)


def _check(pipeline: Pipeline, folder: Path, checkpoint: QualityCheckpoint, name: str) -> QualityCheck:
    file = _File(folder.parent / DEFINITIONS, name, "validation definition")
    file.require_fields(file.content, ("name", "data", "suite"))
    data = file.content.get("data")
    if not isinstance(data, dict):
        raise file.refused("it has no `data`", "Save it again by Great Expectations' API.")
    file.require_fields(data, ("datasource", "asset", "batch_definition"))
    source, asset, rows = (
        file.name_in(data.get(part), part) for part in ("datasource", "asset", "batch_definition")
    )
    if source != pipeline.pipeline:
        raise file.refused(
            f"its data source is `{source}`, which is not this pipeline",
            f"Let it be of the data source `{pipeline.pipeline}`.",
        )
    if rows not in _ROW_KINDS:
        raise file.refused(f"its batch definition `{rows}` is not known", f"Use one of {listed(_ROW_KINDS)}.")
    fields = {
        "suite": file.name_in(file.content.get("suite"), "suite"),
        **_target(file, pipeline, asset),
        "of": rows,
        "on_failure": checkpoint.on_failure,
        "modules": checkpoint.modules,
    }
    return _valid(file, pipeline, fields)


def _target(file: _File, pipeline: Pipeline, asset: str) -> dict[str, str]:
    """Return the field of QualityCheck for an asset: `{"stage": NAME}` or `{"sink": NAME}`."""
    stages, sinks = [stage.name for stage in pipeline.stages], [sink.name for sink in pipeline.sinks]
    if asset in stages and asset in sinks:
        raise file.refused(
            f"its asset `{asset}` is a stage, and a sink as well",
            "Name the suite in the pipeline file, with its `stage` or `sink`.",
        )
    if asset not in (*stages, *sinks):
        otherwise = f"Its stages are {listed(stages)}, its sinks {listed(sinks)}."
        fix = did_you_mean(asset, (*stages, *sinks), otherwise)
        raise file.refused(f"its asset `{asset}` is no stage or sink of `{pipeline.pipeline}`", fix)
    return {"stage": asset} if asset in stages else {"sink": asset}


def _valid(file: _File, pipeline: Pipeline, fields: Mapping[str, Any]) -> QualityCheck:
    stages = [StageScope(name=stage.name) for stage in pipeline.stages]
    # The check is validated as if it were written in the pipeline file, with the same messages.
    scope = Scope(stages=stages, sinks=[sink.name for sink in pipeline.sinks])
    try:
        return QualityCheck.model_validate(fields, context=scope)
    except ValidationError as error:
        (fault, *_) = [fault for details in error.errors() for fault in faults_of(details.get("ctx"))]
        raise file.refused(fault.message, fault.fix) from error
