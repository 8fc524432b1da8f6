"""The pipeline file against the state that it goes on from: edits within a generation."""

from __future__ import annotations

import logging

from tidegate.app.root import App, missing_of_head
from tidegate.errors import PipelineChanged
from tidegate.ledger import Head, Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.spec import Pipeline, incompatible_changes, notable_changes

logger = logging.getLogger(__name__)


def require_compatible(planned: Plan | None, pipeline: Pipeline) -> None:
    """Raise PipelineChanged when the head's batch was planned with a pipeline that this one cannot follow.

    `planned`: the head's plan, see `head_plan`. What is compared are the compiled forms, so defaults that
    have changed with tidegate count as edits.
    """
    if planned is None:
        return
    before = planned_pipeline(planned)
    changes = incompatible_changes(before, pipeline)
    if changes:
        raise PipelineChanged(
            f"The state of {planned.stream} after batch {planned.seq} does not fit the edited pipeline file: "
            + "; ".join(map(str, changes)),
            "Raise `generation` in the file: it starts with a state of its own. Or undo the edit. "
            "Nothing was planned.",
        )
    for sentence in notable_changes(before, pipeline):
        logger.warning("%s: %s", planned.stream, sentence)


def head_plan(app: App, head: Head) -> Plan | None:
    """The plan of the head's batch; None before the first. Raises what `missing_of_head` gives."""
    if head.seq == 0:
        return None
    plan = app.ledger.plan(head.stream, head.seq)
    if plan is None:
        raise missing_of_head(app.ledger, head.stream, head.seq, "plan")
    return plan
