"""Describe the failure of a task: the cause in one sentence, and what to do."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSecretsBackendAccessDenied

from tidegate_airflow import metrics
from tidegate_airflow.connections import connected, export_ledger, own_environment
from tidegate_airflow.notify import PlainCallback, call
from tidegate_airflow.runs import ledger_run_id

if TYPE_CHECKING:
    from tidegate.ledger import Failure, LedgerReader, Stream

log = logging.getLogger(__name__)


def noted_failure(pipeline: str, generation: int, run_id: str) -> str | None:
    """Return the failure that the ledger has of the newest batch of a run, with the remedy; None if it has
    none.

    `run_id` is the ledger's id of the run, or of one of its batches. Raises LedgerUnavailable if the database
    does not answer.
    """
    failure = _newest_failure(pipeline, generation, run_id)
    return None if failure is None else _sentence(failure)


def _sentence(failure: Failure) -> str:
    cause = (
        f"Batch {failure.seq} of {failure.stream} failed in {failure.step}: {failure.error}: {failure.what}"
    )
    return f"{cause.rstrip('.')}. {failure.fix}".rstrip()


def _newest_failure(pipeline: str, generation: int, run_id: str) -> Failure | None:
    from tidegate.app import App
    from tidegate.batch import noted_batches, run_of_batch
    from tidegate.ledger import Stream

    stream, ledger = Stream(pipeline, generation), App.from_environment().ledger
    noted = noted_batches(ledger, stream, run_of_batch(run_id))
    if not noted:
        return _failure_before_a_plan(ledger, stream)
    seq = noted[-1].seq
    return ledger.failure(stream, seq) if seq is not None else None


def _failure_before_a_plan(ledger: LedgerReader, stream: Stream) -> Failure | None:
    """Return why a run has no batch: no batch could be planned, or the batch before not be published."""
    from tidegate.ledger.planned import lacking_sinks

    head = ledger.head(stream).seq
    # The ledger removes the failures of these steps when they succeed, so the last try has failed.
    failure = ledger.failure(stream, head + 1)
    if failure is not None and failure.step in ("start", "plan"):
        return failure
    failure = ledger.failure(stream, head)
    if failure is None or failure.step != "publish":
        return None
    plan = ledger.plan(stream, head)
    return failure if plan is not None and lacking_sinks(ledger, plan) else None


def log_failure(context: Any, pipeline: str, generation: int) -> None:
    """Log in one line why a task failed, and what to do: Airflow's `on_failure_callback`.

    Args:
        context: Airflow's context of the failed task.
        pipeline: The pipeline.
        generation: Its generation.
    """
    run_id = context["dag_run"].run_id
    log.error("%s, run %s: %s", context["dag"].dag_id, run_id, failure_message(context, pipeline, generation))


@own_environment()
def measure_failure(context: Any, pipeline: str, generation: int) -> None:
    """Send metrics of a failed try to Airflow: its cause, the batch's metrics so far, and the stream's
    condition.

    A callback of each failed try. Raises LedgerUnavailable; the cause is counted before.
    """
    if not metrics.are_on():
        return
    from tidegate import inspect
    from tidegate.app import App
    from tidegate.batch import noted_batches
    from tidegate.ledger import Stream

    stream, run = Stream(pipeline, generation), context["dag_run"]
    error = failure_class(context, pipeline, generation)
    # before the ledger is asked: a ledger that is down is the failure that most needs to be counted
    metrics.count_failure(stream, context["task_instance"].task_id, error)
    export_ledger()
    app = App.from_environment()
    noted = noted_batches(app.ledger, stream, ledger_run_id(run.run_id, run.run_after))
    if noted and noted[-1].seq is not None:
        metrics.gauge(stream, app.ledger.metrics(stream, noted[-1].seq))
    now_ms = round(datetime.now(timezone.utc).timestamp() * 1000)
    metrics.gauge(stream, inspect.standing_metrics(connected(app, stream), stream, now_ms))


@own_environment()
def log_missed_deadline(
    context: Any, pipeline: str, generation: int, notify: PlainCallback | None = None
) -> None:
    """Log what a run is doing that has missed its deadline: the callback of a pipeline's `deadline`.

    Args:
        notify: The user's callback. It gets the context with this text as `cause`, and the stream's
            `condition`.
    """
    run = context["dag_run"]
    try:
        # Callbacks of deadlines get the DagRun as JSON, in which instants end with `Z`.
        run_after = datetime.fromisoformat(run["run_after"].replace("Z", "+00:00"))
        doing = _progress_in_callback(pipeline, generation, ledger_run_id(run["dag_run_id"], run_after))
    except Exception as error:  # the deadline is missed, even if the ledger does not answer
        doing = f"tidegate cannot find out what it is doing: {type(error).__name__}: {error}"
    log.error("%s, run %s has missed its deadline. %s", run["dag_id"], run["dag_run_id"], doing)
    if notify is not None:
        call(notify, {**context, "cause": doing, "condition": condition_label(pipeline, generation)})


@own_environment()
def _progress_in_callback(pipeline: str, generation: int, run_id: str) -> str:
    """Return what the run is doing, with the ledger of the environment.

    Airflow's API gives no connection to the callbacks of deadlines, because they belong to no task. Raises
    SettingsInvalid if the environment names no ledger: the default would be an empty one.
    """
    from tidegate.errors import SettingsInvalid

    try:
        export_ledger()
    except AirflowSecretsBackendAccessDenied as error:
        # The default is a new SQLite file, which would say that the run has planned nothing.
        if not os.environ.get("TIDEGATE_LEDGER"):
            raise SettingsInvalid(
                "Airflow gives the callbacks of deadlines no connection",
                "Set TIDEGATE_LEDGER where its executor runs.",
            ) from error
    return run_progress(pipeline, generation, run_id)


def run_progress(pipeline: str, generation: int, run_id: str) -> str:
    """Return what a run that has not ended is doing: the failure of its batch, its batch, or that it
    waits.

    Raises LedgerUnavailable if the database does not answer.
    """
    from tidegate.app import App
    from tidegate.batch import noted_batches
    from tidegate.ledger import Stream

    stream, ledger = Stream(pipeline, generation), App.from_environment().ledger
    noted = noted_batches(ledger, stream, run_id)
    failure = noted_failure(pipeline, generation, run_id)
    if not noted:
        return failure or (
            "It has planned no batch yet. The log of its first task says what it waits for; if that task "
            "has not started, the pipeline's page says why."
        )
    return failure or f"It works on batch {noted[-1].seq} of {stream}, the {len(noted)}. of the run."


def failure_message(context: Any, pipeline: str, generation: int) -> str:
    """Return the cause of a task's failure and the remedy, for logs and notifications.

    The error of the task itself comes first. If it is not one of tidegate's (a process was killed, say, or
    timed out), the ledger's record of the batch's failure is used.

    Example: `Batch 7 of orders/1 failed in compute: OffsetsLost: … `, followed by the remedy.
    """
    error = context.get("exception")
    if _own_error(error) is not None:
        return str(error)
    failure = _stored_failure(context, pipeline, generation)
    if failure is not None:
        return _sentence(failure)
    if error is None:  # a run failed: Airflow gives no error, since one of its tasks has it
        return "The ledger has no cause. See the log of the task that failed; the next run continues."
    return f"{type(error).__name__}: {error}. See the log of the task; the next run continues."


def failure_class(context: Any, pipeline: str, generation: int) -> str:
    """Return the class of the error that a task failed with, found as in `failure_message`; else
    "unknown".

    Example: `"OffsetsLost"`
    """
    error = context.get("exception")
    own = _own_error(error)
    if own is not None:
        return type(own).__name__
    failure = _stored_failure(context, pipeline, generation)
    if failure is not None:
        return failure.error
    return type(error).__name__ if isinstance(error, BaseException) else "unknown"


def condition_label(pipeline: str, generation: int) -> str:
    """Return the condition of a stream in a word, such as "halted"; "unknown" if the ledger does not answer.

    It raises nothing: a failure must be reported all the same.
    """
    from tidegate import inspect
    from tidegate.app import App
    from tidegate.ledger import Stream

    with suppress(Exception), own_environment():
        with suppress(AirflowSecretsBackendAccessDenied):  # in callbacks of deadlines
            export_ledger()
        # A callback must not create a ledger.
        app = App.for_reading()
        return inspect.stream_condition(app, Stream(pipeline, generation)).condition.label
    return "unknown"


def _stored_failure(context: Any, pipeline: str, generation: int) -> Failure | None:
    """Return the failure in the ledger; None if it has none, or does not answer: the failure must be reported
    anyway.
    """
    with suppress(Exception), own_environment():
        export_ledger()
        run = context["dag_run"]
        return _newest_failure(pipeline, generation, ledger_run_id(run.run_id, run.run_after))
    return None


def _own_error(error: Any) -> BaseException | None:
    """Return tidegate's error that a task has raised, also as the cause of Airflow's error."""
    from tidegate.errors import TidegateError

    # `run_step` raises AirflowFailException from tidegate's own error.
    cause = getattr(error, "__cause__", None)
    return next((raised for raised in (error, cause) if isinstance(raised, TidegateError)), None)
