"""Run a step in Spark, as the type of the Spark connection says: see `tidegate_airflow.operators`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tidegate_airflow.connections import reschedule, spark_connect_url
from tidegate_airflow.deployment import spark_program
from tidegate_airflow.failures import noted_failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.app import App
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

    server = spark_connect_url(arguments["conn_id"])
    if server is not None:
        publish_batch(app, plan, run, lambda _: named_session(app, plan, server))
        return
    stream = plan.stream
    batch = (stream.pipeline, stream.generation, run)
    export_java_options(plan.span)
    hook = SparkSubmitHook(application_args=list(map(str, batch)), **arguments)
    try:
        hook.submit(spark_program("publish"))
    except AirflowException as error:
        raise driver_outcome(error, batch) from error


def named_session(app: App, plan: Plan, server: str) -> SparkSession:
    """Return the session that a Spark Connect server keeps for the batch's stream."""
    from tidegate.spark.session import open_session

    return open_session(server, name=app.session_name(plan.stream))


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
