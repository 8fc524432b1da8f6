"""All code that depends on Airflow: the DAG factory, the steps as tasks, and connections as settings.

A DAG file needs two lines; see `factory.pipeline_dags` and `maintenance.maintenance_dag`:

    from tidegate_airflow import pipeline_dags
    globals().update(pipeline_dags())

Both are imported when they are used, so that Airflow can read the provider's description quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate_airflow.factory import pipeline_dags as pipeline_dags
    from tidegate_airflow.maintenance import maintenance_dag as maintenance_dag

__all__ = ["maintenance_dag", "pipeline_dags"]

_HOMES = {
    "maintenance_dag": "tidegate_airflow.maintenance",
    "pipeline_dags": "tidegate_airflow.factory",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
