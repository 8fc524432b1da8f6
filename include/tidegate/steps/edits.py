"""The pipeline file against the state that it goes on from: edits within a generation."""

from __future__ import annotations

import logging

from tidegate.errors import Halted, PipelineChanged
from tidegate.ledger import Head
from tidegate.spec import Pipeline, incompatible_changes, notable_changes
from tidegate.steps.app import App, planned_pipeline

logger = logging.getLogger(__name__)


def require_compatible(app: App, pipeline: Pipeline, head: Head) -> None:
    """Raise PipelineChanged when the state of the head was made with a pipeline that this one cannot follow.

    What is compared are the compiled forms, so defaults that have changed with tidegate count as edits.
    """
    before = _planned(app, head)
    if before is None:
        return
    changes = incompatible_changes(before, pipeline)
    if changes:
        raise PipelineChanged(
            f"The state of {head.stream} after batch {head.seq} does not fit the pipeline file any more: "
            + "; ".join(map(str, changes)),
            "Raise `generation` in the file: it starts with a state of its own. Or undo the edit. "
            "Nothing was planned.",
        )
    for sentence in notable_changes(before, pipeline):
        logger.warning("%s: %s", head.stream, sentence)


def _planned(app: App, head: Head) -> Pipeline | None:
    """What the head's batch was planned with; None before the first. Raises Halted when it is lost."""
    if head.seq == 0:
        return None
    plan = app.ledger.plan(head.stream, head.seq)
    if plan is None:
        raise Halted(
            f"The ledger does not have the plan of batch {head.seq} of {head.stream}, which is the head",
            "Restore the ledger from a backup, or raise `generation` to begin anew.",
        )
    return planned_pipeline(plan)
