"""The steps as Airflow sees them: which error is worth a retry, and what the log says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException
from airflow.sdk.observability import stats

from tidegate_airflow.connections import export_connections, export_sql_connections
from tidegate_airflow.order import is_backfill, run_ahead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.app import App
    from tidegate.ledger import Plan, Stream
    from tidegate.protocol import Trigger
    from tidegate.spec import Pipeline

log = logging.getLogger(__name__)
_WAIT_FOR_LEASE = timedelta(seconds=5)
Result = TypeVar("Result")


def plan(pipeline_file: str, run: Any) -> bool:
    """Step 1 of a run (Airflow's `DagRun`). False: there is nothing to do; the other steps are skipped."""
    return bool(run_step(lambda: _plan(pipeline_file, run)))


def _plan(pipeline_file: str, run: Any) -> bool:
    from tidegate import protocol
    from tidegate.app import App, stream_of
    from tidegate.errors import Halted, PlanUnreadable

    app = App.from_environment()
    pipeline = app.pipeline(pipeline_file)
    stream = stream_of(pipeline)
    if (
        app.ledger.run(stream, run.run_id) is None
    ):  # who has planned, or has found nothing to do, had its turn
        _wait_for_turn(run)
    for orphan in protocol.orphaned_streams(app, pipeline):  # the plan step publishes what they have decided
        with suppress(Halted, PlanUnreadable):  # which the plan step says, and goes on
            _with_databases(app, orphan)
    outcome = protocol.plan_batch(_with_databases(app, stream, pipeline), pipeline, trigger_of(run))
    log.info("Plan: %s", outcome.note)
    return outcome.plan is not None


def _wait_for_turn(run: Any) -> None:
    ahead = run_ahead(run)
    if ahead is not None:
        log.info("Plan: %s %s; looks again in %.0f s", run.run_id, ahead, ahead.wait.total_seconds())
        raise reschedule(ahead.wait)


def trigger_of(run: Any) -> Trigger:
    """Why and when a run's batch is, in the engine's words. A run without an interval reads all there is."""
    from tidegate.protocol import Trigger

    end_ms = None if run.data_interval_end is None else _epoch_ms(run.data_interval_end)
    clock_ms = _epoch_ms(run.run_after) if end_ms is None else end_ms
    now_ms = _epoch_ms(datetime.now(timezone.utc))
    return Trigger(run.run_id, clock_ms, end_ms, now_ms, backfill=is_backfill(run))


def compute(pipeline: str, generation: int, run: str, server: str, *, preload: bool = False) -> str:
    """Step 2 in this process, in the session that a Spark Connect server (its URL) keeps for the stream.

    `preload`: step 3 follows in this process; what it imports is imported while Spark computes.
    """

    def work() -> str:
        from tidegate import protocol
        from tidegate.app import LONG_DONE, App, planned_for
        from tidegate.arrow import keep_pandas_out
        from tidegate.engine.session import open_session

        keep_pandas_out()
        app = App.from_environment()
        plan = planned_for(app, pipeline, generation, run)
        if plan is None:
            return LONG_DONE

        def open_named() -> SparkSession:
            return open_session(server, name=app.session_name(plan.stream))

        opener = protocol.preloading_quality(plan, open_named) if preload else open_named
        attempt = protocol.compute_batch(app, plan, run, opener)
        return f"batch {plan.seq} computed as {attempt.name}: {dict(attempt.counts)}"

    result = run_step(work)
    log.info("compute_batch: %s", result)
    return result


def check_lease(pipeline: str, generation: int, run: str) -> None:
    """Whether the compute step would have to wait: Spark takes long to start, only to find that out."""

    def work() -> None:
        from tidegate.app import App, check_lease, planned_for

        app = App.from_environment()
        plan = planned_for(app, pipeline, generation, run)
        if plan is not None and app.ledger.attempt(plan.stream, plan.seq) is None:
            check_lease(app.ledger, plan.stream, run)

    run_step(work)


def validate(pipeline: str, generation: int, run: str) -> str:
    """Step 3."""
    return _step("validate_batch", pipeline, generation, run)


def commit(pipeline: str, generation: int, run: str) -> str:
    """Step 4."""
    return _step("commit_batch", pipeline, generation, run)


def publish(pipeline: str, generation: int, run: str) -> str:
    """Step 5, and the batch's metrics as gauges."""
    return _step("publish_batch", pipeline, generation, run)


def compact(pipeline: str, generation: int) -> str:
    """Fold a stream's state, if that is due."""

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
    """Give up old state of every stream, and remove files that nobody reads; one stops no other."""

    def work() -> None:
        from tidegate import maintenance
        from tidegate.app import App

        app = App.from_environment()

        def clean_stream(stream: Stream) -> None:
            cleaned = maintenance.clean(app, stream, datetime.now(timezone.utc).timestamp())
            log.info(
                "%s: removed %d files (%d bytes), and %d batches from the ledger. %s",
                *(stream, cleaned.files, cleaned.bytes, cleaned.batches, cleaned.note),
            )

        _, error = maintenance.work_on_streams(app.ledger.streams(), clean_stream)
        if error is not None:
            raise error

    run_step(work)


def _step(name: str, pipeline: str, generation: int, run: str) -> str:
    def work() -> str:
        from tidegate import protocol
        from tidegate.app import LONG_DONE, App, planned_for

        app = App.from_environment()
        found = planned_for(app, pipeline, generation, run)
        if found is None:
            return LONG_DONE
        result = str(getattr(protocol, name)(_with_databases(app, found.stream), found, run))
        if name == "publish_batch":
            _emit_metrics(app, found)
        return result

    result = run_step(work)
    log.info("%s: %s", name, result)
    return result


def _with_databases(app: App, stream: Stream, *more: Pipeline) -> App:
    """The app with Airflow's connections of the SQL sinks that the stream's batches, and `more`, go to."""
    from tidegate import protocol
    from tidegate.settings import Settings

    export_sql_connections(protocol.sql_connections(app.ledger, stream, *more))
    return replace(app, settings=Settings.from_environment())


def _emit_metrics(app: App, plan: Plan) -> None:
    """`tidegate.<pipeline>.<stage>.<metric>`; the batch's own stand without a stage."""
    tags = {"generation": str(plan.stream.generation)}
    for (stage, metric), value in app.ledger.metrics(plan.stream, plan.seq).items():
        name = ".".join(filter(None, ("tidegate", plan.stream.pipeline, stage, metric)))
        stats.gauge(name, value, tags=tags)


def run_step(work: Callable[[], Result]) -> Result:
    """Run a step; map its error to Airflow's fail, retry or wait."""
    from tidegate.errors import LeaseHeld, Permanent

    export_connections()
    try:
        return work()
    except LeaseHeld as error:
        log.info("%s", error)
        raise reschedule() from error
    except Permanent as error:
        raise AirflowFailException(str(error)) from error


def reschedule(wait: timedelta = _WAIT_FOR_LEASE) -> AirflowRescheduleException:
    """The task gives its slot back, and is started again later. That is no try."""
    return AirflowRescheduleException(datetime.now(timezone.utc) + wait)


def _epoch_ms(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)
