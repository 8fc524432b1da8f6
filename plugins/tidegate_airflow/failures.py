"""What a task that has failed for good says: the cause in one sentence, and what to do."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSecretsBackendAccessDenied

from tidegate_airflow import metrics
from tidegate_airflow.connections import export_ledger, own_environment
from tidegate_airflow.notify import PlainCallback, call
from tidegate_airflow.runs import ledger_run_id
from tidegate_airflow.tasks import connected

if TYPE_CHECKING:
    from tidegate.ledger import Failure

log = logging.getLogger(__name__)


def noted_failure(pipeline: str, generation: int, run_id: str) -> str | None:
    """What the ledger has noted of the newest batch of a run that failed, with the remedy; None: nothing.

    `run_id`: of the run, or of one of its batches.
    """
    failure = _newest_failure(pipeline, generation, run_id)
    return None if failure is None else _sentence(failure)


def _sentence(failure: Failure) -> str:
    cause = (
        f"Batch {failure.seq} of {failure.stream} failed in {failure.step}: {failure.error}: {failure.what}"
    )
    return f"{cause.rstrip('.')}. {failure.fix}".rstrip()


def _newest_failure(pipeline: str, generation: int, run_id: str) -> Failure | None:
    from tidegate import protocol
    from tidegate.app import App
    from tidegate.ledger import Stream

    stream, ledger = Stream(pipeline, generation), App.from_environment().ledger
    noted = protocol.noted_batches(ledger, stream, protocol.run_of_batch(run_id))
    seq = noted[-1].seq if noted else None
    return ledger.failure(stream, seq) if seq is not None else None


def log_failure(context: Any, pipeline: str, generation: int) -> None:
    """Airflow's `on_failure_callback`: one line that says why a task failed, and what to do."""
    run_id = context["dag_run"].run_id
    log.error("%s, run %s: %s", context["dag"].dag_id, run_id, failure_message(context, pipeline, generation))


@own_environment()
def measure_failure(context: Any, pipeline: str, generation: int) -> None:
    """A callback of each failed try: Airflow's metrics get the cause, what the ledger has of the run's batch
    so far, and how the stream stands now. Raises LedgerUnavailable; the cause is counted before.
    """
    if not metrics.are_on():
        return
    from tidegate import inspect, protocol
    from tidegate.app import App
    from tidegate.ledger import Stream

    stream, run = Stream(pipeline, generation), context["dag_run"]
    error = failure_class(context, pipeline, generation)
    metrics.count_failure(stream, context["task_instance"].task_id, error)
    export_ledger()
    app = App.from_environment()
    noted = protocol.noted_batches(app.ledger, stream, ledger_run_id(run.run_id, run.run_after))
    if noted and noted[-1].seq is not None:
        metrics.gauge(stream, app.ledger.metrics(stream, noted[-1].seq))
    now_ms = round(datetime.now(timezone.utc).timestamp() * 1000)
    metrics.gauge(stream, inspect.standing_metrics(connected(app, stream), stream, now_ms))


@own_environment()
def log_missed_deadline(
    context: Any, pipeline: str, generation: int, notify: PlainCallback | None = None
) -> None:
    """The callback of a pipeline's `deadline`: what a run is doing that is not through in time.

    `notify`: the user's, which then gets the context, with that as its `cause`, and the stream's `condition`.
    """
    run = context["dag_run"]
    try:
        run_after = datetime.fromisoformat(run["run_after"].replace("Z", "+00:00"))
        doing = _progress_in_callback(pipeline, generation, ledger_run_id(run["dag_run_id"], run_after))
    except Exception as error:  # whatever keeps the ledger from being asked, the deadline is missed
        doing = f"What it is doing cannot be told: {type(error).__name__}: {error}"
    log.error("%s, run %s has missed its deadline. %s", run["dag_id"], run["dag_run_id"], doing)
    if notify is not None:
        call(notify, {**context, "cause": doing, "condition": condition_label(pipeline, generation)})


@own_environment()
def _progress_in_callback(pipeline: str, generation: int, run_id: str) -> str:
    """Airflow's API refuses the callbacks of deadlines any connection: they are of no task. So the ledger is
    that of the environment. Raises SettingsInvalid where that names none: the default would be an empty one.
    """
    from tidegate.errors import SettingsInvalid

    try:
        export_ledger()
    except AirflowSecretsBackendAccessDenied as error:
        if not os.environ.get("TIDEGATE_LEDGER"):
            raise SettingsInvalid(
                "Airflow gives the callbacks of deadlines no connection",
                "Set TIDEGATE_LEDGER where its executor runs.",
            ) from error
    return run_progress(pipeline, generation, run_id)


def run_progress(pipeline: str, generation: int, run_id: str) -> str:
    """How far a run is that has not ended: what its batch failed of, or which that is, or that it waits."""
    from tidegate import protocol
    from tidegate.app import App
    from tidegate.ledger import Stream

    stream, ledger = Stream(pipeline, generation), App.from_environment().ledger
    noted = protocol.noted_batches(ledger, stream, run_id)
    if not noted:
        return (
            "It has planned no batch yet; for what it waits is in the log of its first task or, where that "
            "has not started, on the pipeline's page."
        )
    told = noted_failure(pipeline, generation, run_id)
    return told or f"It works on batch {noted[-1].seq} of {stream}, the {len(noted)}. of the run."


def failure_message(context: Any, pipeline: str, generation: int) -> str:
    """The cause of a task's failure and the remedy, for logs and notifications.

    What the task itself says counts; where that is not one of tidegate's errors (a process was killed, say,
    or ran out of time), what the ledger knows of the batch.
    """
    error = context.get("exception")
    if _own_error(error) is not None:
        return str(error)
    failure = _failure_if_known(context, pipeline, generation)
    if failure is not None:
        return _sentence(failure)
    if error is None:  # as of a run, whose failure is that of one of its tasks
        return (
            "The ledger has no note of why. The log of the task that failed has more; the next run goes on."
        )
    return f"{type(error).__name__}: {error}. The log of the task has more; the next run goes on."


def failure_class(context: Any, pipeline: str, generation: int) -> str:
    """The cause of a task's failure in one word: the error's class, found as in `failure_message`; else
    "unknown"."""
    error = context.get("exception")
    own = _own_error(error)
    if own is not None:
        return type(own).__name__
    failure = _failure_if_known(context, pipeline, generation)
    if failure is not None:
        return failure.error
    return type(error).__name__ if isinstance(error, BaseException) else "unknown"


def condition_label(pipeline: str, generation: int) -> str:
    """Return the condition of a stream in a word, such as "halted"; "unknown" where the ledger cannot be
    asked: a failure is to be told all the same.
    """
    from tidegate import inspect
    from tidegate.app import App
    from tidegate.ledger import Stream

    with suppress(Exception), own_environment():
        with suppress(AirflowSecretsBackendAccessDenied):  # as for callbacks of deadlines
            export_ledger()
        app = App.for_reading()
        return inspect.stream_condition(app, Stream(pipeline, generation)).condition.label
    return "unknown"


def _failure_if_known(context: Any, pipeline: str, generation: int) -> Failure | None:
    """What the ledger has noted; None also where it cannot be asked: a failure is to be told."""
    with suppress(Exception), own_environment():
        export_ledger()
        run = context["dag_run"]
        return _newest_failure(pipeline, generation, ledger_run_id(run.run_id, run.run_after))
    return None


def _own_error(error: Any) -> BaseException | None:
    """The error of tidegate's that a task has raised, or that Airflow's was raised for."""
    from tidegate.errors import TidegateError

    cause = getattr(error, "__cause__", None)
    return next((raised for raised in (error, cause) if isinstance(raised, TidegateError)), None)
