"""Run a step in Spark, as the type of the Spark connection says: see `tidegate_airflow.operators`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tidegate_airflow.connections import reschedule, task_master
from tidegate_airflow.deployment import spark_program
from tidegate_airflow.failures import noted_failure

if TYPE_CHECKING:
    from tidegate.app import App, OpenSession
    from tidegate.ledger import Plan

_NOT_NOTED = (
    "The Spark driver could not begin with the batch, so the ledger has no cause. The line of this log that "
    "begins with `tidegate:` says what to correct; a retry does not help."
)
_SUBMITTED = (
    *("conn_id", "name", "conf"),
    *("driver_memory", "executor_memory", "executor_cores", "num_executors"),
)
"""The arguments of spark-submit's operator that its hook takes, too."""


@dataclass(frozen=True)
class TaskSpark:
    """The Spark of a task that needs no spark-submit: see `task_spark`.

    Args:
        master: the URL of a Spark Connect server, or a `local` master, which the task starts.
        memory: the heap of a Spark that the task starts; None: Spark's default.
        conf: settings of a Spark that the task starts.
    """

    master: str
    memory: str | None
    conf: Mapping[str, str]

    @contextmanager
    def opening(self, app: App, plan: Plan, rows: int) -> Iterator[OpenSession]:
        """Let a step open the stream's session inside of the block, and start a JVM for it at once.

        Args:
            app: The settings.
            plan: The batch.
            rows: About how many rows Spark gets.
        """
        from tidegate.spark.driver import DriverJvm
        from tidegate.spark.session import OwnSession

        name = app.session_name(plan.stream)
        with DriverJvm(conf=self.conf) as jvm, OwnSession(self.master, self.memory, name, jvm) as session:
            session.start(rows)
            yield session.open


def task_spark(arguments: Mapping[str, Any]) -> TaskSpark | None:
    """Return the Spark that a task uses without spark-submit, as its connection says; None: spark-submit.

    Args:
        arguments: What `submitted_arguments` returned.
    """
    master = task_master(arguments["conn_id"])
    if master is None:
        return None
    conf = {"spark.app.name": arguments["name"], **(arguments.get("conf") or {})}
    return TaskSpark(master, arguments.get("driver_memory"), conf)


def submitted_arguments(operator: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the arguments of spark-submit's operator that `publish_in_spark` takes."""
    return {name: operator[name] for name in _SUBMITTED if name in operator}


def publish_in_spark(app: App, plan: Plan, run: str, arguments: Mapping[str, Any]) -> None:
    """Publish a large batch, whose shards Spark tasks send.

    Args:
        run: The ledger's id of the batch's run.
        arguments: What `submitted_arguments` returned.

    Raises what `publish_batch` and `driver_outcome` raise.
    """
    from tidegate.batch import publish_batch

    spark = task_spark(arguments)
    if spark is not None:
        with spark.opening(app, plan, rows=0) as open_session:
            publish_batch(app, plan, run, open_session)
        return
    stream = plan.stream
    batch = (stream.pipeline, stream.generation, run)
    export_java_options(plan.span)
    hook = SparkSubmitHook(application_args=list(map(str, batch)), **arguments)
    try:
        hook.submit(spark_program("publish"))
    except AirflowException as error:
        raise driver_outcome(error, batch) from error


def export_java_options(records: int) -> None:
    """Export the options of the driver's JVM. The user's options come last, so they take precedence."""
    from tidegate.spark.java import driver_options, submitting_java

    # For a repeated option, the JVM takes the last one.
    options = [*driver_options(submitting_java(), records), os.environ.get("SPARK_SUBMIT_OPTS", "")]
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(options).strip()


def driver_outcome(error: AirflowException, batch: tuple[str, int, str]) -> AirflowException:
    """Return the exception that makes Airflow wait, fail or try again, by the exit code of the driver.

    Args:
        error: The hook's exception.
        batch: Pipeline, generation and the ledger's id of the run.
    """
    from tidegate.errors import LeaseHeld, Permanent

    # The driver is another process, and its exit code is only in the text of the hook's exception.
    match = re.search(r"Error code is: (\d+)", str(error))
    code = int(match.group(1)) if match else None
    if code == LeaseHeld.exit_code:
        return reschedule()
    if code == Permanent.exit_code:
        # An exit code has no message; the driver has noted its error in the ledger.
        return AirflowFailException(noted_failure(*batch) or _NOT_NOTED)
    return error
