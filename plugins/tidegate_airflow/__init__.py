"""All code that depends on Airflow: the DAG factory, the steps as tasks, and connections as settings.

A DAG file needs two lines; see `factory.pipeline_dags` and `factory.maintenance_dag`:

    from tidegate_airflow import pipeline_dags
    globals().update(pipeline_dags())

Both are imported when they are used, so that Airflow can read the provider's description quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate_airflow.factory import maintenance_dag as maintenance_dag
    from tidegate_airflow.factory import pipeline_dags as pipeline_dags

__all__ = ["maintenance_dag", "pipeline_dags"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tidegate_airflow.factory"), name)
