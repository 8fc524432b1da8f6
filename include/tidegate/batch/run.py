"""Run all five steps in one process, in the order of Airflow. `tidegate run` and the tests use it."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.app.root import App, OpenSession
from tidegate.batch.commit import commit_batch
from tidegate.batch.compute import compute_batch
from tidegate.batch.plan import Outcome, plan_batch
from tidegate.batch.publish import is_sent_in_shards, publish_batch
from tidegate.batch.trigger import Trigger
from tidegate.batch.validate import Check, validate_batch
from tidegate.ledger import LedgerReader, Stream
from tidegate.ledger.planned import planned_pipeline, planned_pipelines
from tidegate.model.connection import Connection
from tidegate.model.pipeline import Pipeline


def run_batch(
    app: App,
    pipeline: Pipeline,
    trigger: Trigger,
    open_session: OpenSession,
    progress: Callable[[str], None] = lambda _: None,
    end_session: Callable[[], None] = lambda: None,
    check: Check | None = None,
) -> Outcome:
    """Run one batch from plan to publication.

    Args:
        app: the settings and the ledger.
        pipeline: the pipeline file.
        trigger: why and for which clock the batch runs.
        open_session: opens a Spark session for about so many rows.
        progress: gets each step's name before the step begins.
        end_session: called as soon as Spark is not needed any more, unless its tasks send the batch.
        check: see `validate_batch`.

    Raises the errors of the steps.
    """
    progress("plan")
    outcome = plan_batch(app, pipeline, trigger)
    plan = outcome.plan
    if plan is None:
        return outcome
    progress("compute")
    attempt = compute_batch(app, plan, trigger.run_id, open_session)
    in_shards = is_sent_in_shards(app, plan, attempt)
    if not in_shards:
        end_session()
    progress("validate")
    validate_batch(app, plan, trigger.run_id, check=check)
    progress("commit")
    commit_batch(app, plan, trigger.run_id)
    progress("publish")
    publish_batch(app, plan, trigger.run_id, open_session if in_shards else None)
    return outcome


def connections(ledger: LedgerReader, stream: Stream, *more: Pipeline) -> set[Connection]:
    """Return the connections of the pipelines of a stream's last and planned batches, and of `more`.

    If batches may have been withheld, those of all pipelines that batches were planned with.
    """
    head = ledger.head(stream).seq
    # A plan keeps its own connections, whatever the file names now; head + 1 is the open plan.
    plans = [ledger.plan(stream, seq) for seq in (head, head + 1)]
    pipelines = [*more, *(planned_pipeline(plan) for plan in plans if plan is not None)]
    if ledger.charge(stream.pipeline).promotions:
        pipelines += planned_pipelines(ledger, stream)
    return {connection for pipeline in pipelines for connection in pipeline.connections}
