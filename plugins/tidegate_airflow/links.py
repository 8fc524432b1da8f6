"""Ways between Airflow's pages and tidegate's.

Airflow's UI shows tidegate's pages in a frame: what is at `/plugin/tidegate/PATH` shows `/PATH` in it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink

from tidegate_airflow.operators import (
    BatchOperator,
    ComputeOperator,
    PlanOperator,
    PublishOperator,
    StepOperator,
    ValidateOperator,
)


def root_path() -> str:
    """Below which path of its host Airflow is served: "" or such as `/airflow`."""
    base_url: str = conf.get("api", "base_url", fallback="")
    return urlsplit(base_url).path.rstrip("/")


def pages_path() -> str:
    """Where tidegate's pages are, outside of the frame."""
    return f"{root_path()}/tidegate/"


def quoted(part: str) -> str:
    """A part of a path; what it holds is no separator."""
    return quote(part, safe="")


class DataDocsLink(BaseOperatorLink):  # type: ignore[misc]  # as below
    """From the task that validates to what the quality suites have found of its batch."""

    name = "Data Docs"
    operators = [ValidateOperator, BatchOperator]  # noqa: RUF012

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        page = f"{pages_path()}dags/{quoted(ti_key.dag_id)}/quality/{quoted(ti_key.run_id)}"
        return f"{root_path()}/plugin/tidegate{page}"


class BatchLink(BaseOperatorLink):  # type: ignore[misc]  # Airflow is not typed
    """From a task to the batch that its run worked on."""

    name = "Tidegate batch"
    operators = [  # noqa: RUF012
        PlanOperator,
        ComputeOperator,
        ValidateOperator,
        StepOperator,
        PublishOperator,
        BatchOperator,
    ]

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        page = f"{pages_path()}dags/{quoted(ti_key.dag_id)}/runs/{quoted(ti_key.run_id)}"
        return f"{root_path()}/plugin/tidegate{page}"
