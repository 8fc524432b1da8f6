"""The steps of a batch as tasks of Airflow: they map errors to fail, retry or wait, and log the result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from tidegate_airflow import metrics
from tidegate_airflow.actions import act_in_place
from tidegate_airflow.connections import (
    connected,
    export_connections,
    export_ledger,
    reschedule,
    run_step,
)
from tidegate_airflow.runs import remember_text, run_ahead
from tidegate_airflow.submission import TaskSpark, export_java_options, publish_in_spark
from tidegate_airflow.triggers import is_triggered_again, read_request, trigger_of

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate.batch import Trigger
    from tidegate.errors import PipelineInvalid
    from tidegate.ledger import Plan, Stream
    from tidegate.quality.verdict import Verdict

log = logging.getLogger(__name__)
_DONE_BEFORE = (
    "The run {run} is done. TriggerDagRunOperator with `reset_dag_run` clears the DagRun of that id and "
    "creates no new one, so it reads no newer records. Leave `trigger_run_id` out, so that each run has its "
    "own id. Nothing was planned."
)


def plan(
    pipeline_file: str, context: Mapping[str, Any], batch: Trigger | None = None, *, is_first: bool = True
) -> bool:
    """Run step 1 for a task's run, or for a `batch` of it. Returns False if there is nothing to do.

    Raises AirflowFailException for an error that a retry cannot resolve, AirflowRescheduleException if
    another run goes first.

    Args:
        pipeline_file: The file's name, without `.yaml`.
        context: Airflow's context of the task.
        batch: The trigger of a batch of the run; None for the first.
        is_first: Whether the tasks of the run begin with this step.
    """
    request = read_request(context["params"])
    if request.action is not None:
        act_in_place(pipeline_file, request, context["dag_run"])
        return False
    trigger = batch or trigger_of(context)
    return bool(run_step(lambda: _plan(pipeline_file, trigger, context, is_first=is_first)))


def _plan(pipeline_file: str, trigger: Trigger, context: Mapping[str, Any], *, is_first: bool) -> bool:
    from tidegate.app import App, stream_of
    from tidegate.batch import (
        describe_next_batch,
        is_done,
        noted_batches,
        orphaned_streams,
        plan_batch,
        run_of_batch,
    )
    from tidegate.errors import Halted, PipelineInvalid, PlanUnreadable

    # first, because a mistyped `dry_run` must not open the ledger for writing or plan anything
    request = read_request(context["params"])
    app = App.for_reading() if request.dry_run else App.from_environment()
    try:
        pipeline = app.pipeline(pipeline_file)
    except PipelineInvalid as error:
        return _planned_before(app, error, trigger.run_id)
    stream = stream_of(pipeline)
    if request.replay is not None:
        # The rows are read lazily: a run that has its plan already never evaluates the edits again.
        trigger = replace(trigger, replay=request.replay.request(app, stream, context["dag_run"]))
    if request.dry_run:
        lines = list(describe_next_batch(app, pipeline, trigger))
        if request.replay is not None:
            lines.append(f"  replays {request.replay.count_open(app, stream)} open records of quarantine")
        log.info("Dry run, nothing is written: %s", "\n".join(lines))
        return False
    # Ids of later batches end with `#2`, `#3` …; the run itself has its id without that.
    noted = noted_batches(app.ledger, stream, run_of_batch(trigger.run_id))
    if not noted:  # a run that has planned, or found nothing to do, has waited already
        _wait_for_turn(context["dag_run"])
    elif is_first and is_triggered_again(context["dag_run"]) and is_done(app.ledger, stream, trigger):
        raise AirflowFailException(_DONE_BEFORE.format(run=context["dag_run"].run_id))
    for orphan in orphaned_streams(app, pipeline):  # the plan step publishes their last batches
        with suppress(Halted, PlanUnreadable):  # the plan step logs it, and continues
            connected(app, orphan)
    outcome = plan_batch(connected(app, stream, pipeline), pipeline, trigger)
    log.info("Plan: %s", outcome.note)
    metrics.gauge(stream, {("", name): value for name, value in outcome.metrics.items()})
    # only now: a text that a plan refused is not the last good one
    remember_text(app.settings.home, pipeline_file, pipeline.text)
    return outcome.plan is not None


def _planned_before(app: App, error: PipelineInvalid, run_id: str) -> bool:
    """Return whether a run has a batch, although its file has mistakes now.

    Raises AirflowFailException, with the mistakes and the last valid text, if the run was not planned before.
    """
    from tidegate.batch import broken_stream, explain_broken_file

    # A run that has its plan needs no file: the plan stores the pipeline (docs/decisions/0031).
    stream = broken_stream(app, error)
    run = app.ledger.run(stream, run_id) if stream is not None else None
    if run is None:
        raise AirflowFailException(explain_broken_file(app, error)) from error
    log.warning("The pipeline file has mistakes now: this run continues as it was planned.\n%s", error)
    return run.seq is not None


def _wait_for_turn(run: Any) -> None:
    ahead = run_ahead(run)
    if ahead is not None:
        log.info("Plan: %s %s; looks again in %.0f s", run.run_id, ahead, ahead.wait.total_seconds())
        raise reschedule(ahead.wait)


def has_more_batches(pipeline: str, generation: int, context: Mapping[str, Any]) -> bool:
    """Return whether the interval of a task's run needs more batches than its first tasks have made.

    Raises AirflowFailException and AirflowRescheduleException as `run_step`.
    """
    trigger = trigger_of(context)

    def work() -> bool:
        from tidegate.app import App
        from tidegate.batch import has_more_batches
        from tidegate.ledger import Stream

        return has_more_batches(App.from_environment(), Stream(pipeline, generation), trigger)

    return run_step(work)


def planned_batches(
    pipeline_file: str, pipeline: str, generation: int, context: Mapping[str, Any], first: int = 1
) -> Iterator[str]:
    """Plan the batches of a task's run one after the other, and yield the ledger's id of each.

    It begins with the run's batch number `first`, or the newest that the ledger has. The caller publishes a
    batch before it asks for the next one.

    Raises AirflowFailException and AirflowRescheduleException as `plan`.
    """
    from tidegate.app import App
    from tidegate.batch import batches_of_run
    from tidegate.ledger import Stream

    request, trigger = read_request(context["params"]), trigger_of(context)
    if request.dry_run or request.action is not None:
        plan(pipeline_file, context)  # it makes no batch, and must not create the ledger
        return
    app = run_step(App.from_environment)
    batches = batches_of_run(app, Stream(pipeline, generation), trigger, first)
    # Each look for the next batch is a step, so that errors of the ledger map to retry or fail, too.
    is_first = first == 1
    while (batch := run_step(lambda: next(batches, None))) is not None:
        if not plan(pipeline_file, context, batch, is_first=is_first):
            return
        is_first = False
        yield batch.run_id


def compute(pipeline: str, generation: int, run: str, spark: TaskSpark) -> str:
    """Run step 2 in this process, as the driver of its Spark or a client of a Spark Connect server.

    Returns a sentence for the log. Raises AirflowFailException and AirflowRescheduleException as `run_step`.
    """

    def work() -> str:
        from tidegate.app import App, expected_rows
        from tidegate.batch import compute_batch
        from tidegate.batch_counts import computed_text
        from tidegate.imports import keep_pandas_out
        from tidegate.ledger.planned import planned_pipeline

        # The task process is tidegate's own here, and pandas costs half a second and 50 MB.
        keep_pandas_out()
        app = App.from_environment()
        plan = _left_to_compute(app, pipeline, generation, run)
        if isinstance(plan, str):
            return plan
        rows = expected_rows(plan, planned_pipeline(plan))
        with spark.opening(app, plan, rows) as open_session:
            attempt = compute_batch(connected(app, plan.stream), plan, run, open_session)
        return f"batch {plan.seq} computed as {attempt.name}: {computed_text(attempt.counts)}"

    result = run_step(work)
    log.info("compute_batch: %s", result)
    return result


def computed_before(pipeline: str, generation: int, run: str) -> str | None:
    """Return a sentence on a batch that needs no Spark; None if it must be computed.

    `run` is the ledger's id of the batch's run. Raises AirflowRescheduleException if the step has to wait.
    """

    def work() -> str | None:
        from tidegate.app import App

        plan = _left_to_compute(App.from_environment(), pipeline, generation, run)
        return plan if isinstance(plan, str) else None

    return run_step(work)


def _left_to_compute(app: App, pipeline: str, generation: int, run: str) -> Plan | str:
    """Return the batch that a run has to compute, or a sentence on why there is none.

    Spark takes long to start, so LeaseHeld is raised here if the compute step would have to wait.
    """
    from tidegate.app import LONG_DONE, check_lease, planned_for

    plan = planned_for(app, pipeline, generation, run)
    if plan is None:
        return LONG_DONE
    # before the lease: work that is done needs no lease, whoever has it now
    attempt = app.ledger.attempt(plan.stream, plan.seq)
    if attempt is not None:
        return _not_again(plan, "computed", attempt.name)
    check_lease(app.ledger, plan.stream, run)
    return plan


def export_for_driver(pipeline: str, generation: int, run: str) -> None:
    """Export what a Spark driver needs for a run's batch to this task's environment, which the driver
    inherits.

    That is the ledger, the source's cluster, and options of the JVM.
    """

    def planned() -> Plan | None:
        from tidegate.app import App, planned_for

        return planned_for(App.from_environment(), pipeline, generation, run)

    plan = run_step(planned)
    if plan is None:
        return
    # The plan's pipeline, not the file's: the file may have another cluster by the time of a retry.
    from tidegate.ledger.planned import planned_pipeline

    export_ledger()
    export_connections([planned_pipeline(plan).sources.cluster])
    export_java_options(plan.span)


def validate(
    pipeline: str,
    generation: int,
    run: str,
    report: Callable[[Verdict], object] | None = None,
    alert: Callable[[str], object] | None = None,
) -> str:
    """Run step 3.

    `report` gets the verdict of each quality suite. `alert` gets a sentence on a batch that puts too much
    into quarantine. Raises AirflowFailException if a critical check fails.
    """

    def work(app: App, plan: Plan) -> str:
        from tidegate.batch import validate_batch

        return validate_batch(app, plan, run, report, alert=alert)

    return _step("validate_batch", pipeline, generation, run, work)


def commit(pipeline: str, generation: int, run: str) -> str:
    """Run step 4: one compare-and-set in the ledger, after which the batch is decided.

    Raises AirflowFailException and AirflowRescheduleException as `run_step`.
    """
    return _step("commit_batch", pipeline, generation, run)


def publish(
    pipeline: str,
    generation: int,
    run: str,
    submitted: Mapping[str, Any],
    alert: Callable[[str], object] | None = None,
) -> str:
    """Run step 5, and send the batch's metrics as gauges. Spark sends a large batch.

    Raises AirflowFailException and AirflowRescheduleException as `run_step`.

    Args:
        submitted: The arguments of spark-submit: see `submitted_arguments`.
        alert: Gets a sentence on a batch whose emissions were out later than `freshness` allows.
    """

    def work(app: App, plan: Plan) -> str:
        from tidegate import inspect
        from tidegate.batch import is_sent_in_shards, publish_batch, stale_publication, withheld_note
        from tidegate.batch_counts import published_text
        from tidegate.ledger.planned import lacking_sinks

        # The ledger has the records that each sink got: if they do not change, an earlier try has published.
        before = app.ledger.publications(plan.stream, plan.seq)
        attempt = app.ledger.attempt(plan.stream, plan.seq)
        if attempt and lacking_sinks(app.ledger, plan) and is_sent_in_shards(app, plan, attempt):
            publish_in_spark(app, plan, run, submitted)
        published = publish_batch(app, plan, run)
        metrics.gauge(plan.stream, app.ledger.metrics(plan.stream, plan.seq))
        # Deriving the condition takes several queries to the ledger.
        if metrics.are_on():
            condition = inspect.stream_condition(app, plan.stream)
            metrics.gauge(plan.stream, inspect.condition_metric(condition))
        if withheld := withheld_note(app.ledger, plan):
            return withheld
        if published == before:
            return _not_again(plan, "published", published_text(published))
        stale = stale_publication(app.ledger, plan)
        if stale is not None and alert is not None:
            alert(stale)
        return f"batch {plan.seq} is published: {published_text(published)}"

    return _step("publish_batch", pipeline, generation, run, work)


def migrate() -> str:
    """Migrate the ledger to the schema of this version of tidegate."""

    def work() -> str:
        from tidegate.ledger import migrate_database
        from tidegate.settings import Settings

        before, after = migrate_database(Settings.from_environment().ledger)
        return f"the ledger has schema {after}, and had {before or 'no tables'}"

    result = run_step(work)
    log.info("migrate: %s", result)
    return result


def compact(pipeline: str, generation: int) -> str:
    """Compact a stream's state, if that is due."""

    def work() -> str:
        from tidegate import maintenance
        from tidegate.app import App
        from tidegate.ledger import Stream

        app = App.from_environment()
        done = maintenance.compact_state(app, Stream(pipeline, generation), only_if_due=True)
        return f"{done.stream} batch {done.seq}: {done.note}, {done.before.rows} rows are {done.after.rows}"

    result = run_step(work)
    log.info("compact: %s", result)
    return result


def clean() -> None:
    """Give up old state of every stream, and remove files that nobody reads. An error of one stream stops no
    other.

    Raises AirflowFailException if no retry can help any of the failed streams.
    """

    def work() -> None:
        from tidegate import maintenance
        from tidegate.app import App

        app = App.from_environment()
        export_connections(app.settings.table_connections)
        app = App.from_environment()

        def clean_stream(stream: Stream) -> None:
            cleaned = maintenance.clean(app, stream, app.ledger.now())
            log.info(
                "%s: removed %d files (%d bytes), and %d batches from the ledger. %s",
                *(stream, cleaned.files, cleaned.bytes, cleaned.batches, cleaned.note),
            )

        _, error = maintenance.work_on_streams(app.ledger.streams(), clean_stream)
        if error is not None:
            raise error

    run_step(work)


def _not_again(plan: Plan, done: str, what: object) -> str:
    return f"batch {plan.seq} was {done} before: {what}; nothing is {done} again"


def _step(
    name: str, pipeline: str, generation: int, run: str, work: Callable[[App, Plan], str] | None = None
) -> str:
    """Run a step of a run's batch, with its connections: `work`, or the step `name` of `tidegate.batch`."""

    def step() -> str:
        from tidegate import batch
        from tidegate.app import LONG_DONE, App, planned_for

        app = App.from_environment()
        plan = planned_for(app, pipeline, generation, run)
        if plan is None:
            return LONG_DONE
        app = connected(app, plan.stream)
        return work(app, plan) if work is not None else str(getattr(batch, name)(app, plan, run))

    result = run_step(step)
    log.info("%s: %s", name, result)
    return result
