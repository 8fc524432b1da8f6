"""Tasks in which Spark computes. Where it does is the connection's to say, when the task runs:

`spark`          spark-submit starts a driver, which is there for this batch alone
`spark_connect`  the task's own process is a client of a Spark Connect server, which keeps a session for each
                 stream, and with it the Python workers of the batch before
"""

from __future__ import annotations

import os
import re
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from tidegate_airflow import tasks
from tidegate_airflow.connections import export_connections, spark_connect_url


class ComputeOperator(SparkSubmitOperator):  # type: ignore[misc]  # Airflow is not typed
    """Step 2. `application_args` are a stream's pipeline and generation, and the run's id."""

    preloads_quality = False
    """Whether this process goes on with step 3."""

    def execute(self, context: Any) -> Any:
        server = spark_connect_url(self._conn_id)
        if server is not None:
            return tasks.compute(*self.of_run, server, preload=self.preloads_quality)
        # Into the environment, which spark-submit inherits: not into arguments, and not into
        # `env_vars`, which some cluster managers turn into configuration that the Spark UI shows.
        export_connections()
        _export_class_archive()
        tasks.check_lease(*self.of_run)
        try:
            return super().execute(context)
        except AirflowException as error:
            outcome = _outcome_by_exit_code(error)
            if outcome is None:
                raise
            raise outcome from error

    @property
    def of_run(self) -> tuple[str, int, str]:
        """Pipeline, generation and run id."""
        pipeline, generation, run_id = self.application_args
        return pipeline, int(generation), run_id


class BatchOperator(ComputeOperator):
    """All five steps of the pipeline file `pipeline_file`. Each finds what it has done already, so a retry
    goes on where the task stopped."""

    preloads_quality = True

    def __init__(self, *, pipeline_file: str, **options: Any) -> None:
        super().__init__(**options)
        self.pipeline_file = pipeline_file

    def execute(self, context: Any) -> Any:
        if not tasks.plan(self.pipeline_file, context["dag_run"]):
            raise AirflowSkipException("There is nothing to do.")
        super().execute(context)
        tasks.validate(*self.of_run)
        tasks.commit(*self.of_run)
        return tasks.publish(*self.of_run)


def _export_class_archive() -> None:
    """Have spark-submit's JVM start from the class archive, where one was made for it on this machine."""
    from tidegate.local.class_archive import archive_options, submitting_java

    given = os.environ.get("SPARK_SUBMIT_OPTS", "")
    if "-XX:SharedArchiveFile" not in given:
        os.environ["SPARK_SUBMIT_OPTS"] = " ".join([given, *archive_options(submitting_java())]).strip()


def _outcome_by_exit_code(error: AirflowException) -> AirflowException | None:
    """To wait or to fail, as the script that failed has it; None: a retry can help."""
    from tidegate.errors import LeaseHeld, Permanent

    match = re.search(r"Error code is: (\d+)", str(error))
    code = int(match.group(1)) if match else None
    if code == LeaseHeld.exit_code:
        return tasks.reschedule()
    if code == Permanent.exit_code:
        return AirflowFailException(
            "The Spark job failed for a reason that a retry does not cure; it stands above."
        )
    return None
