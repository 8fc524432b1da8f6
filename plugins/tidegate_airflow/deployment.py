"""Turn `airflow:` of a pipeline file, over `defaults.yaml`, into arguments of its DAG and tasks.

The factory has its own settings. A file's settings replace them, except for tags and callbacks, which are
added: a user who names a callback does not switch off tidegate's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.model.airflow import AirflowSettings, SparkPlacement
from tidegate.model.pipeline import Scheduling
from tidegate.yaml.folder import dag_id_of
from tidegate.yaml.load import Defaults
from tidegate_airflow.failures import condition_label, failure_message
from tidegate_airflow.notify import PlainCallback, call, plain_callback

if TYPE_CHECKING:
    from tidegate.model.airflow import Callback

SPARK_CONNECTION = "spark_default"


@dataclass(frozen=True)
class Deployment:
    """The settings for the DAGs of one folder of pipelines.

    `folder` is the folder, if the DAG file names it; None: each task reads it from its environment.
    """

    defaults: Defaults
    folder: Path | None = None

    def dag_id(self, name: str) -> str:
        """Return the DAG id of the pipeline file `name`, which has no `.yaml`.

        Example: with `dag_id_prefix: shop_`, `dag_id("orders")` is `shop_orders`.
        """
        return dag_id_of(name, self.defaults.dag_id_prefix)

    def file_name(self, dag_id: str) -> str:
        """Return the name of the pipeline file of a DAG: the inverse of `dag_id`, for names that can be ids.

        Example: with `dag_id_prefix: shop_`, `file_name("shop_orders")` is `orders`.
        """
        return dag_id.removeprefix(self.defaults.dag_id_prefix)

    def dag_arguments(self, pipeline: Scheduling, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of `DAG`, `default_args` included; `own` are those of the factory.

        Args:
            pipeline: The pipeline; `airflow` has its settings.
            own: The arguments that the factory sets itself.
        """
        settings = pipeline.airflow.over(self.defaults.airflow)
        chosen = {
            "dagrun_timeout": _duration(settings.run_timeout_ms),
            "on_failure_callback": _failure_callback(settings.on_run_failure, pipeline),
            "on_success_callback": _callback(settings.on_run_success),
        }
        # Tags are added: whoever filters Airflow's list by `tidegate` sees every pipeline.
        tags = [*own.get("tags", ()), *settings.tags]
        tasks = self._task_arguments(pipeline, settings, own.get("default_args", {}))
        return _added(own, chosen) | {"tags": tags, "default_args": tasks}

    def approves_promotions(self, pipeline: Scheduling) -> bool:
        """Return whether a person has to approve that another generation of a pipeline takes charge."""
        return bool(pipeline.airflow.over(self.defaults.airflow).approve_promotion)

    def on_missed_deadline(self, pipeline: Scheduling) -> PlainCallback | None:
        """Return the user's callback for a run that has missed its deadline.

        Example: `"shop.alerts:page"` for `on_missed_deadline: "shop.alerts:page"`.
        """
        return plain_callback(pipeline.airflow.over(self.defaults.airflow).on_missed_deadline)

    def batch_callbacks(self, pipeline: Scheduling) -> dict[str, PlainCallback | None]:
        """Return the user's callbacks for verdicts that fail, and for batches that put too much into
        quarantine, or are out too late.

        The keys are arguments of the tasks that validate and publish.

        Example: `{"on_quality": "shop.alerts:quality", "on_quarantine": None, "on_freshness": None}`
        """
        settings = pipeline.airflow.over(self.defaults.airflow)
        names = ("on_quality", "on_quarantine", "on_freshness")
        return {name: plain_callback(getattr(settings, name)) for name in names}

    def step_timeout(self, pipeline: Scheduling, own: timedelta) -> timedelta:
        """Return the timeout of a step that computes and sends nothing; `own` is the factory's.

        Example: `step_timeout(pipeline, timedelta(hours=1))` is 30 minutes with `task_timeout: 30m`.
        """
        chosen = _duration(pipeline.airflow.over(self.defaults.airflow).task_timeout_ms)
        return own if chosen is None else chosen

    def spark_arguments(self, pipeline: Scheduling, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of spark-submit's operator; `own` are those of the factory.

        Example: `spark_arguments(pipeline, {})` has `num_executors: 4` with `spark: {executors: 4}`.
        """
        spark = pipeline.airflow.over(self.defaults.airflow).spark
        return {**own, **_spark_arguments(spark)}

    def _task_arguments(
        self, pipeline: Scheduling, settings: AirflowSettings, own: Mapping[str, Any]
    ) -> dict[str, Any]:
        chosen = {
            **{name: getattr(settings, name) for name in ("owner", "pool", "queue", "retries")},
            "retry_delay": _duration(settings.retry_delay_ms),
            "execution_timeout": _duration(settings.task_timeout_ms),
            "on_failure_callback": _failure_callback(settings.on_task_failure, pipeline),
            "on_retry_callback": _failure_callback(settings.on_task_retry, pipeline),
            # The worker may have another TIDEGATE_PIPELINES than the process that parsed the DAG file.
            "pre_execute": None if self.folder is None else partial(_use_pipelines, str(self.folder)),
        }
        return _added(own, chosen)


def spark_program(step: str) -> str:
    """Return the path of the program that spark-submit runs, wherever tidegate is installed.

    Args:
        step: `compute` or `publish`.
    """
    # Located without importing it: the program imports PySpark, and this runs at parse time.
    spec = find_spec(f"tidegate_airflow.spark_jobs.{step}")
    assert spec is not None, "the program is a part of this package"
    assert spec.origin is not None, "the program is a file"
    return spec.origin


def _spark_arguments(spark: SparkPlacement) -> dict[str, Any]:
    arguments = {
        "conn_id": spark.connection or SPARK_CONNECTION,
        "driver_memory": spark.driver_memory,
        "executor_memory": spark.executor_memory,
        "executor_cores": spark.executor_cores,
        "num_executors": spark.executors,
        "conf": {name: _conf_text(value) for name, value in (spark.conf or {}).items()} or None,
    }
    return {name: value for name, value in arguments.items() if value is not None}


def _conf_text(value: str | bool | int) -> str:
    """Return a value in Spark's notation: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _added(own: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return both, without settings that no file sets. If both have a callback, Airflow calls both, the
    factory's first.
    """
    chosen = {name: value for name, value in settings.items() if value is not None}
    # Airflow accepts a single callback or a list of them.
    for name in [name for name in chosen if name.endswith("_callback") and own.get(name)]:
        before = own[name] if isinstance(own[name], list) else [own[name]]
        chosen[name] = [*before, chosen[name]]
    return {**own, **chosen}


def _duration(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)


def _callback(written: Callback | None) -> Any:
    """Return a callback in Airflow's form. Its module is imported when it is called, so that no DAG waits for
    it.
    """
    callback = plain_callback(written)
    return None if callback is None else partial(call, callback)


def _failure_callback(written: Callback | None, pipeline: Scheduling) -> Any:
    """Return a callback in Airflow's form that also gets `cause` and `condition` in its context.

    `cause` is one sentence on the failure, and what to do; `condition` is that of the stream.
    """
    callback, stream = plain_callback(written), (pipeline.pipeline, pipeline.generation)
    return None if callback is None else partial(_call_with_cause, callback, *stream)


def _call_with_cause(callback: PlainCallback, pipeline: str, generation: int, context: Any) -> Any:
    cause = failure_message(context, pipeline, generation)
    return call(callback, {**context, "cause": cause, "condition": condition_label(pipeline, generation)})


def _use_pipelines(folder: str, context: Any) -> None:
    """Let a task, and the processes that it starts, read the pipelines from the same folder as the DAG
    file.
    """
    os.environ["TIDEGATE_PIPELINES"] = folder
