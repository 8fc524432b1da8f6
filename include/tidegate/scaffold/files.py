"""All files of a new pipeline, as texts."""

from __future__ import annotations

import json
from pathlib import Path

from tidegate.scaffold.case import case_text
from tidegate.scaffold.draft import Draft
from tidegate.scaffold.pipeline import pipeline_text
from tidegate.spec import parse_pipeline


def pipeline_texts(draft: Draft, pipelines: Path, expectations: Path) -> dict[Path, str]:
    """File -> text: the pipeline, a case that it passes, and its suite where it has one. Nothing is written.

    Raises SettingsInvalid, PipelineInvalid: what was chosen is no pipeline.
    """
    file = pipelines / f"{draft.name}.yaml"
    text = pipeline_text(draft)
    parse_pipeline(text, str(file))
    texts = {file: text, pipelines / "cases" / draft.name / "first.yaml": case_text(draft)}
    if draft.has_suite:
        texts[expectations / f"{draft.name}.json"] = _suite_text(draft)
    return texts


def _suite_text(draft: Draft) -> str:
    """A suite of Great Expectations for what the pipeline sends out: each emission has a key and a time."""
    columns = ("key", "timestamp", *draft.key)
    expectations = [
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": column}, "meta": {}}
        for column in columns
    ]
    return json.dumps({"name": draft.name, "expectations": expectations, "meta": {}}, indent=2) + "\n"
