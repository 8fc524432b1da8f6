"""`defaults.yaml`, beside the pipeline files: what holds for each of them that does not say it itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from tidegate.errors import PipelineInvalid
from tidegate.spec.airflow import AirflowSettings
from tidegate.spec.folder import DEFAULTS_FILE
from tidegate.spec.grammar import DEFAULTS
from tidegate.spec.mistakes import mistake
from tidegate.spec.scope import Model
from tidegate.spec.told import tell
from tidegate.spec.tree import read, read_text

_PREFIX = re.compile(r"[A-Za-z0-9_.-]{0,100}")
_WRITTEN = re.compile(r"^[ \t]*[^\s#]", re.MULTILINE)
"""A line that is neither blank nor a comment."""


def _check_prefix(prefix: str) -> str:
    if _PREFIX.fullmatch(prefix):
        return prefix
    fix = "Use at most 100 letters, digits, `_`, `-` and `.`: `shop_`."
    raise mistake(f"{prefix!r} cannot begin the id of a DAG", fix)


class Defaults(Model):
    """What holds for every pipeline of the folder that does not say it itself."""

    dag_id_prefix: Annotated[str, AfterValidator(_check_prefix)] = Field(
        default="", description="What the id of each DAG has before its file's name."
    )
    airflow: AirflowSettings = Field(
        default=AirflowSettings(),
        description="How DAGs stand in Airflow; a pipeline's own word goes first.",
    )

    def promotion_dag_id(self, pipeline: str) -> str:
        """Of the DAG that promotes generations of a pipeline once a person has approved it."""
        return f"{self.dag_id_prefix}{pipeline}.promote"


def load_defaults(folder: Path) -> Defaults:
    """Those of a folder of pipelines; none where there is no such file. Raises PipelineInvalid."""
    path = folder / DEFAULTS_FILE
    if not path.is_file():
        return Defaults()
    text = read_text(path)
    if not _WRITTEN.search(text):
        return Defaults()
    tree = read(text, str(path))
    try:
        return Defaults.model_validate(tree.data)
    except ValidationError as error:
        raise PipelineInvalid(tell(error, tree, grammar=DEFAULTS)) from error
