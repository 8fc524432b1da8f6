"""`defaults.yaml` beside the pipeline files: settings for each pipeline that does not have them itself."""

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
from tidegate.spec.told import as_problems
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
    """The settings for every pipeline of the folder that does not have them itself."""

    dag_id_prefix: Annotated[str, AfterValidator(_check_prefix)] = Field(
        default="", description="A prefix for the id of each DAG; the file's name follows."
    )
    airflow: AirflowSettings = Field(
        default=AirflowSettings(),
        description="Settings of DAGs; a pipeline's own settings override them.",
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
    if not path.is_file():
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
