"""All five steps in one process: what `tidegate run` and the tests do, in the order that Airflow does."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

from tidegate.app.root import App, OpenSession
from tidegate.ledger import Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.protocol.commit import commit_batch
from tidegate.protocol.compute import compute_batch
from tidegate.protocol.plan import Outcome, plan_batch
from tidegate.protocol.publish import publish_batch
from tidegate.protocol.trigger import Trigger
from tidegate.protocol.validate import validate_batch
from tidegate.spec import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_batch(
    app: App,
    pipeline: Pipeline,
    trigger: Trigger,
    open_session: OpenSession,
    progress: Callable[[str], None] = lambda _: None,
    end_session: Callable[[], None] = lambda: None,
) -> Outcome:
    """One batch from plan to publication. Calls `progress` with each step's name before it begins, and
    `end_session` as soon as Spark is needed no more.
    """
    progress("plan")
    outcome = plan_batch(app, pipeline, trigger)
    plan = outcome.plan
    if plan is None:
        return outcome
    progress("compute")
    compute_batch(app, plan, trigger.run_id, preloading_quality(plan, open_session))
    end_session()
    progress("validate")
    validate_batch(app, plan, trigger.run_id)
    progress("commit")
    commit_batch(app, plan, trigger.run_id)
    progress("publish")
    publish_batch(app, plan, trigger.run_id)
    return outcome


def preloading_quality(plan: Plan, open_session: OpenSession) -> OpenSession:
    """How to open a session for a batch whose next step follows in this process: Great Expectations takes
    seconds to import, if it has a suite, for which there is time while Spark computes.
    """
    return open_session if planned_pipeline(plan).quality is None else _preloading_quality(open_session)


def _preloading_quality(open_session: OpenSession) -> OpenSession:
    """Great Expectations looks for pyspark, too, so it comes after all of ours that imports that: two threads
    that import modules which import each other can see halves of them.
    """

    def opened(records: int) -> SparkSession:
        Thread(target=_import_quality, name="preload quality", daemon=True).start()
        return open_session(records)

    return opened


def _import_quality() -> None:
    for module in ("tidegate.quality", "tidegate.frozen"):
        import_module(module)
