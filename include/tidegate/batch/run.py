"""All five steps in one process: what `tidegate run` and the tests do, in the order that Airflow does."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.app.root import App, OpenSession
from tidegate.batch.commit import commit_batch
from tidegate.batch.compute import compute_batch
from tidegate.batch.plan import Outcome, plan_batch
from tidegate.batch.publish import publish_batch
from tidegate.batch.trigger import Trigger
from tidegate.batch.validate import Check, validate_batch
from tidegate.spec import Pipeline


def run_batch(
    app: App,
    pipeline: Pipeline,
    trigger: Trigger,
    open_session: OpenSession,
    progress: Callable[[str], None] = lambda _: None,
    end_session: Callable[[], None] = lambda: None,
    check: Check | None = None,
) -> Outcome:
    """One batch from plan to publication. Calls `progress` with each step's name before it begins, and
    `end_session` as soon as Spark is needed no more. `check`: see `validate_batch`.
    """
    progress("plan")
    outcome = plan_batch(app, pipeline, trigger)
    plan = outcome.plan
    if plan is None:
        return outcome
    progress("compute")
    compute_batch(app, plan, trigger.run_id, open_session)
    end_session()
    progress("validate")
    validate_batch(app, plan, trigger.run_id, check=check)
    progress("commit")
    commit_batch(app, plan, trigger.run_id)
    progress("publish")
    publish_batch(app, plan, trigger.run_id)
    return outcome
