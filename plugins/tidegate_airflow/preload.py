"""Import what every task needs, in the process from which Airflow forks its tasks.

Name this module in Airflow's setting `[scheduler] mp_forkserver_preload`: then tasks inherit the imports, and
what libraries build at their first use. A process that works for itself does not need it.
"""

from __future__ import annotations

import gc
import logging
from importlib import import_module
from importlib.util import find_spec

IMPORTED_BY_TASKS = (
    # Each forked process runs `airflow.__main__` anew, with its imports.
    "airflow.__main__",
    "airflow.executors.local_executor",
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.task_runner",
    "airflow.dag_processing.dagbag",
    "confluent_kafka.admin",
    "jinja2.ext",
    # gRPC may be forked as long as it has no channel. A task opens one.
    "pyspark.sql.connect.session",
    "tidegate.batch",
    "tidegate.inspect",
    "tidegate.sinks.kafka.sink",
    "tidegate.spark.batch",
    "tidegate_airflow.factory",
    "tidegate_airflow.plugin",
)
"""The modules that Airflow and the steps import when a task runs, also those imported inside of functions."""

_PIPELINE = """
pipeline: any
source: {topics: [any], format: json, columns: "amount bigint"}
stages: [{name: any, select: {is_large: "amount > 0"}, reduce: latest, emit: {on: change}}]
sinks: [{kind: kafka, topic: emissions}]
"""


def preload() -> None:
    """Import the modules, and let libraries build what they build once per process."""
    for module in IMPORTED_BY_TASKS:
        import_module(module)
    from tidegate.model.compiled import parts
    from tidegate.yaml.load import parse_pipeline

    # The first file that a process loads builds Pydantic's validators and the grammar of expressions.
    parse_pipeline(_PIPELINE, "preloaded.yaml")
    parts()
    # An optional extra: tasks without it need everything else all the same.
    if find_spec("great_expectations") is not None:
        _preload_quality()


def _preload_quality() -> None:
    import_module("tidegate.quality.gate")
    from tidegate.quality.expectations import import_expectations
    from tidegate.quality.pages import compile_templates

    import_expectations()
    compile_templates()


try:
    preload()
except Exception:
    # Python's fork server ends with any other error than an ImportError, and Airflow's scheduler with it.
    # Tasks start more slowly then, and one that meets the same error reports it.
    logging.getLogger(__name__).exception("Tasks import everything themselves: the preload failed")

# With Great Expectations, imports leave half a million objects, and each full collection in a task would take
# a third of a second. Garbage collection does not look at frozen objects.
gc.freeze()
