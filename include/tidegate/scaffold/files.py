"""The texts of all files of a new pipeline."""

from __future__ import annotations

import json
from pathlib import Path

from tidegate.scaffold.case import case_text
from tidegate.scaffold.draft import Draft
from tidegate.scaffold.pipeline import pipeline_text
from tidegate.spec import parse_pipeline


def pipeline_texts(draft: Draft, pipelines: Path, expectations: Path) -> dict[Path, str]:
    """Return the text of each file: the pipeline, a case that it passes, and its suite if the draft has one.

    Nothing is written: the caller decides what happens to files that exist.

    Args:
        draft: The choices of the user.
        pipelines: The folder of the pipeline files; the case goes into `cases/NAME` below it.
        expectations: The folder of the quality suites.

    Raises SettingsInvalid or PipelineInvalid if the draft is not a valid pipeline.
    """
    file = pipelines / f"{draft.name}.yaml"
    text = pipeline_text(draft)
    parse_pipeline(text, str(file))
    texts = {file: text, pipelines / "cases" / draft.name / "first.yaml": case_text(draft)}
    if draft.has_suite:
        texts[expectations / f"{draft.name}.json"] = _suite_text(draft)
    return texts


def _suite_text(draft: Draft) -> str:
    """Return a suite of Great Expectations: each emission has a key, its columns, and a timestamp."""
    columns = ("key", "timestamp", *draft.key)
    expectations = [
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": column}, "meta": {}}
        for column in columns
    ]
    return json.dumps({"name": draft.name, "expectations": expectations, "meta": {}}, indent=2) + "\n"
