"""How a pipeline's DAG stands in this Airflow: `airflow:` of its file, over `defaults.yaml`, as arguments.

The factory has settings of its own. What a file says goes before them, but for tags and callbacks, which are
added: nobody switches tidegate's own off by naming one.
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

from tidegate.spec import AirflowSettings, Defaults, Scheduling, SparkPlacement
from tidegate_airflow.failures import condition_label, failure_message
from tidegate_airflow.notify import PlainCallback, call, plain_callback

if TYPE_CHECKING:
    from tidegate.spec.airflow import Callback

SPARK_CONNECTION = "spark_default"


@dataclass(frozen=True)
class Deployment:
    """What holds for the DAGs of one folder of pipelines.

    `folder`: where it is, if the DAG file says so; None: each task finds it in its environment.
    """

    defaults: Defaults
    folder: Path | None = None

    def dag_id(self, name: str) -> str:
        """Of the pipeline file with a name, which is without `.yaml`."""
        return self.defaults.dag_id_prefix + name

    def file_name(self, dag_id: str) -> str:
        """The other way round."""
        return dag_id.removeprefix(self.defaults.dag_id_prefix)

    def dag_arguments(self, pipeline: Scheduling, own: Mapping[str, Any]) -> dict[str, Any]:
        """What `DAG` is called with, `default_args` included; `own` is the factory's."""
        settings = pipeline.airflow.over(self.defaults.airflow)
        ours = {
            "dagrun_timeout": _duration(settings.run_timeout_ms),
            "on_failure_callback": _failure_callback(settings.on_run_failure, pipeline),
            "on_success_callback": _callback(settings.on_run_success),
        }
        tags = [*own.get("tags", ()), *settings.tags]
        tasks = self._task_arguments(pipeline, settings, own.get("default_args", {}))
        return _added(own, ours) | {"tags": tags, "default_args": tasks}

    def approves_promotions(self, pipeline: Scheduling) -> bool:
        """Whether a person has to approve that another generation of a pipeline takes charge."""
        return bool(pipeline.airflow.over(self.defaults.airflow).approve_promotion)

    def on_missed_deadline(self, pipeline: Scheduling) -> PlainCallback | None:
        """What the user wants to be called when a run has missed its deadline."""
        return plain_callback(pipeline.airflow.over(self.defaults.airflow).on_missed_deadline)

    def batch_callbacks(self, pipeline: Scheduling) -> dict[str, PlainCallback | None]:
        """What the user wants to be called with verdicts that are not as they should be, and for batches
        that put too much into quarantine: arguments of the tasks that validate.
        """
        settings = pipeline.airflow.over(self.defaults.airflow)
        return {name: plain_callback(getattr(settings, name)) for name in ("on_quality", "on_quarantine")}

    def step_timeout(self, pipeline: Scheduling, own: timedelta) -> timedelta:
        """How long a step may take that computes and sends nothing; `own` is the factory's."""
        chosen = _duration(pipeline.airflow.over(self.defaults.airflow).task_timeout_ms)
        return own if chosen is None else chosen

    def spark_arguments(self, pipeline: Scheduling, own: Mapping[str, Any]) -> dict[str, Any]:
        """What spark-submit's operator is called with; `own` is the factory's."""
        spark = pipeline.airflow.over(self.defaults.airflow).spark
        return {**own, **_spark_arguments(spark)}

    def _task_arguments(
        self, pipeline: Scheduling, settings: AirflowSettings, own: Mapping[str, Any]
    ) -> dict[str, Any]:
        ours = {
            **{name: getattr(settings, name) for name in ("owner", "pool", "queue", "retries")},
            "retry_delay": _duration(settings.retry_delay_ms),
            "execution_timeout": _duration(settings.task_timeout_ms),
            "on_failure_callback": _failure_callback(settings.on_task_failure, pipeline),
            "on_retry_callback": _failure_callback(settings.on_task_retry, pipeline),
            "pre_execute": None if self.folder is None else partial(_use_pipelines, str(self.folder)),
        }
        return _added(own, ours)


def compute_program() -> str:
    """The path of what spark-submit runs, wherever tidegate is installed."""
    spec = find_spec("tidegate_airflow.spark_jobs.compute")
    assert spec is not None, "the program is a part of this package"
    assert spec.origin is not None, "the program is a file"
    return spec.origin


def _spark_arguments(spark: SparkPlacement) -> dict[str, Any]:
    told = {
        "conn_id": spark.connection or SPARK_CONNECTION,
        "driver_memory": spark.driver_memory,
        "executor_memory": spark.executor_memory,
        "executor_cores": spark.executor_cores,
        "num_executors": spark.executors,
        "conf": {name: _conf_text(value) for name, value in (spark.conf or {}).items()} or None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _conf_text(value: str | bool | int) -> str:
    """As Spark writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _added(own: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Both, without what nobody has said; of callbacks both are called, the factory's first."""
    said = {name: value for name, value in ours.items() if value is not None}
    for name in [name for name in said if name.endswith("_callback") and own.get(name)]:
        before = own[name] if isinstance(own[name], list) else [own[name]]
        said[name] = [*before, said[name]]
    return {**own, **said}


def _duration(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)


def _callback(written: Callback | None) -> Any:
    """Airflow's form of a callback. Its module is imported when it is called: no DAG waits for it."""
    callback = plain_callback(written)
    return None if callback is None else partial(call, callback)


def _failure_callback(written: Callback | None, pipeline: Scheduling) -> Any:
    """The same, with the failure's `cause` in its context: one sentence, and what to do; and the stream's
    `condition`.
    """
    callback, stream = plain_callback(written), (pipeline.pipeline, pipeline.generation)
    return None if callback is None else partial(_call_with_cause, callback, *stream)


def _call_with_cause(callback: PlainCallback, pipeline: str, generation: int, context: Any) -> Any:
    cause = failure_message(context, pipeline, generation)
    return call(callback, {**context, "cause": cause, "condition": condition_label(pipeline, generation)})


def _use_pipelines(folder: str, context: Any) -> None:
    """Let a task, and what it starts, find the pipelines where its DAG's file has found them."""
    os.environ["TIDEGATE_PIPELINES"] = folder
