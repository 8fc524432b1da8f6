"""The command `init`: a new pipeline, with a case file that it passes and a quality suite."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import Any

from tidegate.cli.show import out
from tidegate.errors import SettingsInvalid
from tidegate.scaffold import SCHEMA_FILE, Draft, pipeline_texts
from tidegate.settings import Settings
from tidegate.spec.json_schema import file_schema


def init(**chosen: Any) -> None:
    """Write the files of a new pipeline, and the grammar for editors.

    Args:
        chosen: The fields of a `Draft`.

    Raises SettingsInvalid if one of the files already exists, PipelineInvalid if the choices do not fit
    together.
    """
    draft, settings = Draft(**chosen), Settings.from_environment()
    texts = pipeline_texts(draft, settings.pipelines, settings.expectations)
    existing = [str(file) for file in texts if file.exists()]
    if existing:
        raise SettingsInvalid(
            f"{', '.join(existing)} already exists", "Choose another name, or remove the files."
        )
    schema = json.dumps(file_schema("pipeline"), indent=2, ensure_ascii=False) + "\n"
    for file, text in {**texts, settings.pipelines / SCHEMA_FILE: schema}.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    _print_result(list(texts), draft.name)


def _print_result(files: list[Path], name: str) -> None:
    for file in files:
        out.print(f"Written: {_short(file)}", markup=False, highlight=False, soft_wrap=True)
    pipeline, case, *_ = files
    lines = (
        "Next:",
        f"  tidegate validate {_short(pipeline)}",
        f"  tidegate test {_short(case.parent)}",
        f"  tidegate run {name}    # one batch, with TIDEGATE_KAFKA set",
        f"In Airflow, with TIDEGATE_PIPELINES={quote(str(pipeline.parent))}, a DAG file of two lines:",
        "  from tidegate_airflow import pipeline_dags",
        "  globals().update(pipeline_dags())",
    )
    for line in lines:
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _short(file: Path) -> str:
    """Return the path as a user would type it in this folder."""
    here = Path.cwd()
    return quote(str(file.relative_to(here) if file.is_relative_to(here) else file))
