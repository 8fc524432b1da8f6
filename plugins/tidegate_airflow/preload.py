"""Import what every task needs, in the process from which Airflow forks its tasks.

Name this module in Airflow's setting `[scheduler] mp_forkserver_preload`: then tasks inherit the imports.
A process that works for itself does not need it.
"""

from __future__ import annotations

import gc
from importlib import import_module

from tidegate.model.compiled import parts
from tidegate.model.pipeline import Written

IMPORTED_BY_TASKS = (
    "airflow.executors.local_executor",
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.task_runner",
    "airflow.dag_processing.dagbag",
    "tidegate.batch",
    "tidegate.inspect",
    "tidegate.quality.gate",
    "tidegate.spark.batch",
    "tidegate_airflow.factory",
    "tidegate_airflow.plugin",
)
"""The modules that Airflow and the steps import when a task runs, also those imported inside of functions."""

for module in IMPORTED_BY_TASKS:
    import_module(module)

# Pydantic builds the validators of the file, and tidegate the table of classes in plans, at their first use.
Written.model_rebuild()
parts()

# With Great Expectations, imports leave half a million objects, and each full collection in a task would take
# a third of a second. Garbage collection does not look at frozen objects.
gc.freeze()
