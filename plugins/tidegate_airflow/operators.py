"""The operators of a pipeline's DAG. The type of the Spark connection decides, at run time, what computes a
batch, and sends a large one:

`spark`          spark-submit starts a driver for this batch; if the host is `local…`, without an extra field,
                 the task is the driver, which saves two processes and their imports
`spark_connect`  the task is a client of a Spark Connect server, which keeps a session for each stream, with
                 the Python workers of the previous batch

Their links lead from Airflow's pages to tidegate's. Airflow's UI shows tidegate's pages in a frame: the page
`/plugin/tidegate/PATH` has `/PATH` in its frame.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.python import PythonOperator, ShortCircuitOperator
from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from tidegate.console.links import quoted
from tidegate.signals import terminate
from tidegate_airflow import tasks
from tidegate_airflow.assets import event_emitted, has_event
from tidegate_airflow.connections import own_environment
from tidegate_airflow.notify import PlainCallback, call, callback_name
from tidegate_airflow.submission import driver_outcome, submitted_arguments, task_spark

if TYPE_CHECKING:
    from tidegate.quality.verdict import Verdict

Batch = tuple[str, int, str]


class EndingOperator(BaseOperator):  # type: ignore[misc]  # Airflow is not typed
    """An operator that releases the stream's lease if Airflow ends its task: a worker stops, or a person
    fails it.

    Airflow calls `on_kill` when SIGTERM has interrupted the task, and waits only seconds for its end. Such a
    task is tried again if it has retries left.
    """

    def on_kill(self) -> None:
        super().on_kill()
        terminate()


class LineageOperator(EndingOperator):
    """An operator that reports lineage to Airflow's OpenLineage provider: see `tidegate_airflow.lineage`.

    `lineage` is the name of the function that makes the report, for the `first` to the `last` batch of the
    run (None: the newest). `verdicts` are those of the quality suites that the task has run.
    """

    lineage: str
    first = 1
    last: int | None = 1

    def __init__(
        self,
        *,
        on_quality: PlainCallback | None = None,
        on_quarantine: PlainCallback | None = None,
        on_freshness: PlainCallback | None = None,
        **options: Any,
    ) -> None:
        """Take the user's callbacks: for verdicts that fail, and for a batch with too much in quarantine, or
        with emissions that were out too late.
        """
        super().__init__(**options)
        self.on_quality = on_quality
        self.on_quarantine = on_quarantine
        self.on_freshness = on_freshness
        self.verdicts: list[Verdict] = []

    def note_verdict(self, verdict: Verdict, context: Any) -> None:
        """Keep a verdict for lineage, and call the user's callback if it failed.

        Args:
            verdict: The verdict of one quality suite.
            context: Airflow's context of the task.
        """
        self.verdicts.append(verdict)
        if self.on_quality is not None and not verdict.passed:
            self._notify(self.on_quality, {**context, "verdict": verdict, "cause": verdict.summary})

    def note_alert(self, callback: PlainCallback | None, context: Any, cause: str) -> None:
        """Call a callback of the user, if there is one.

        Args:
            callback: The callback.
            context: Airflow's context of the task.
            cause: A sentence on what is wrong with a batch.
        """
        if callback is not None:
            self._notify(callback, {**context, "cause": cause})

    def reports(self, context: Any) -> dict[str, Any]:
        """Return the arguments through which `tasks.validate` reports verdicts, and too much in quarantine.

        Example: `tasks.validate(*self.batch, **self.reports(context))`
        """
        return {
            "report": partial(self.note_verdict, context=context),
            "alert": partial(self.note_alert, self.on_quarantine, context),
        }

    def publication_reports(self, context: Any) -> dict[str, Any]:
        """Return the arguments through which `tasks.publish` reports emissions that were out too late."""
        return {"alert": partial(self.note_alert, self.on_freshness, context)}

    def _notify(self, callback: PlainCallback, context: Any) -> None:
        try:
            call(callback, context)
        except Exception:  # as for Airflow's callbacks: a notification must not fail the task
            self.log.exception("%s failed on: %s", callback_name(callback), context["cause"])

    @property
    def batch(self) -> Batch:
        """Pipeline, generation and the ledger's id of the batch's run, from the arguments of the function."""
        pipeline, generation, run_id = self.op_args
        return pipeline, generation, run_id

    def get_openlineage_facets_on_start(self) -> Any:
        return self._reported()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        return self._reported()

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        return self._reported()

    def _reported(self) -> Any:
        from tidegate_airflow import lineage

        # By name: the module needs the OpenLineage provider, and a DAG must parse without it.
        report = getattr(lineage, self.lineage)
        return report(lineage.lineage_of(self.batch, self.first, self.last), self.verdicts)


class PlanOperator(EndingOperator, ShortCircuitOperator):  # type: ignore[misc]  # Airflow is not typed
    """Step 1. If there is nothing to do, Airflow skips the other steps.

    It is a class of its own, because Airflow attaches links to classes.
    """


class ReportingOperator(LineageOperator):
    """An operator whose function gets the arguments through which it reports."""

    def execute(self, context: Any) -> Any:
        # `execute_callable` does not get the context, so the callbacks are bound to it here.
        self._reports = self.reports(context)
        return super().execute(context)

    def execute_callable(self) -> Any:
        self.op_kwargs: Any = {**self.op_kwargs, **self._reports}
        return super().execute_callable()


class ValidateOperator(ReportingOperator, PythonOperator):  # type: ignore[misc]
    """Step 3."""

    lineage = "checking"


class StepOperator(EndingOperator, PythonOperator):  # type: ignore[misc]
    """Step 4."""


class PublishOperator(ReportingOperator, ShortCircuitOperator):  # type: ignore[misc]
    """Step 5. If this batch covers the run's interval, `cover` is skipped."""

    lineage = "publishing"

    def reports(self, context: Any) -> dict[str, Any]:
        """Return the arguments of a publication."""
        return self.publication_reports(context)


class ComputeOperator(LineageOperator, SparkSubmitOperator):  # type: ignore[misc]  # Airflow is not typed
    """Step 2. `application_args` are pipeline, generation and the run's id."""

    lineage = "reading"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.submitted = submitted_arguments(options)

    @own_environment()
    def execute(self, context: Any) -> Any:
        spark = task_spark(self.submitted)
        if spark is not None:
            return tasks.compute(*self.batch, spark)
        # spark-submit inherits the environment. Arguments would be visible to all users of the machine, and
        # some cluster managers turn `env_vars` into configuration that the Spark UI shows.
        tasks.export_for_driver(*self.batch)
        # Asks for the lease, too: otherwise a driver would start only to find out that it has to wait.
        done = tasks.computed_before(*self.batch)
        if done is not None:
            self.log.info("compute_batch: %s", done)
            return done
        try:
            return super().execute(context)
        except AirflowException as error:
            raise driver_outcome(error, self.batch) from error

    @property
    def batch(self) -> Batch:
        pipeline, generation, run_id = self.application_args
        return pipeline, int(generation), run_id


class BatchOperator(ComputeOperator):
    """Run all five steps for each batch of a run, one batch after the other, until the run's interval is
    covered.

    Each step finds the work that is done, so a retry continues where the task stopped. `pipeline_file` is the
    name of the file, and `first` the number of the run's batch to begin with; other tasks make those before
    it.
    """

    lineage = "publishing"
    last = None

    def __init__(self, *, pipeline_file: str, first: int = 1, **options: Any) -> None:
        super().__init__(**options)
        self.pipeline_file = pipeline_file
        self.first = first

    def execute(self, context: Any) -> Any:
        pipeline, generation, _ = self.batch
        published = None
        # One event for all batches of the task; Airflow stores it only if the task succeeds.
        with event_emitted(context, pipeline, generation):
            for run_id in tasks.planned_batches(
                self.pipeline_file, pipeline, generation, context, self.first
            ):
                # `batch` reads them, for Spark Connect and for lineage as well.
                self.application_args = [pipeline, str(generation), run_id]
                self._hook = None  # Airflow caches it, with the arguments of the previous batch
                published = self._steps_after_plan(context)
        # With `first` > 1 the run's first batch is out, so the run has done something.
        if published is None and self.first == 1 and not has_event(context, pipeline, generation):
            raise AirflowSkipException("There is nothing to do.")
        return published

    def _steps_after_plan(self, context: Any) -> str:
        super().execute(context)
        tasks.validate(*self.batch, **self.reports(context))
        tasks.commit(*self.batch)
        return tasks.publish(*self.batch, self.submitted, **self.publication_reports(context))


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


class DataDocsLink(BaseOperatorLink):  # type: ignore[misc]  # Airflow is not typed
    """A link from the task that validates to the results of the quality suites for its batch."""

    name = "Data Docs"
    operators = [ValidateOperator, BatchOperator]  # noqa: RUF012

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        page = f"{pages_path()}pipelines/{quoted(ti_key.dag_id)}/quality/{quoted(ti_key.run_id)}"
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
        page = f"{pages_path()}pipelines/{quoted(ti_key.dag_id)}/runs/{quoted(ti_key.run_id)}"
        return f"{root_path()}/plugin/tidegate{page}"
