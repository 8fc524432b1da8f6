"""Links between Airflow's pages and tidegate's.

Airflow's UI shows tidegate's pages in a frame: the page `/plugin/tidegate/PATH` has `/PATH` in its frame.
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
    """Return the path below which Airflow is served: "", or for example `/airflow`.

    Example: `/airflow` for the base URL `https://shop.example/airflow`.
    """
    # Behind a proxy Airflow may be served below a path, which links must repeat.
    base_url: str = conf.get("api", "base_url", fallback="")
    return urlsplit(base_url).path.rstrip("/")


def pages_path() -> str:
    """Return the path of tidegate's pages, outside of the frame.

    Example: `/airflow/tidegate/`
    """
    return f"{root_path()}/tidegate/"


def quoted(part: str) -> str:
    """Return a part of a path with separators escaped. Example: `quoted("a/b")` is `a%2Fb`."""
    # Run ids contain `+` and `:`, and may contain `/`.
    return quote(part, safe="")


class DataDocsLink(BaseOperatorLink):  # type: ignore[misc]  # Airflow is not typed
    """A link from the task that validates to the results of the quality suites for its batch."""

    name = "Data Docs"
    operators = [ValidateOperator, BatchOperator]  # noqa: RUF012

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        page = f"{pages_path()}dags/{quoted(ti_key.dag_id)}/quality/{quoted(ti_key.run_id)}"
        return f"{root_path()}/plugin/tidegate{page}"


class BatchLink(BaseOperatorLink):  # type: ignore[misc]  # Airflow is not typed
    """A link from a task to the batch that its run worked on."""

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
