"""Estimate the size of each stage's state, and the largest size that it can have after the next batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.app.manifests import state_after
from tidegate.app.root import App
from tidegate.inspect.read import read_state
from tidegate.ledger import Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.spec import Pipeline, Stage
from tidegate.spec.kernel import kernel_stage
from tidegate.storage import DataFile

MEASURED_ROWS = 10_000
"""With fewer rows in files, the files are mostly overhead, and a default size per row is used."""

DEFAULT_BYTES_PER_ROW = 15.0
"""The size of a boolean value under a key of two columns, as `python -m benchmarks.state` measures it."""

DEFAULT_BYTES_PER_HASH = 85.0
"""The same, if only a hash is stored: hashes are distinct and do not compress."""


@dataclass(frozen=True)
class StateEstimate:
    """The size of one stage's state now, and at most after the next batch.

    Args:
        rows: Keys, or keys and windows.
        stored_rows: The rows in files, which include versions that later batches replaced.
        bytes_per_row: Measured in the files if `measured`, else a default.
        rows_at_most: The rows if each waiting record has a key of its own; an exploded record counts as one.
        bytes_at_most: The bytes of these rows.
    """

    stage: str
    rows: int
    stored_rows: int
    bytes: int
    bytes_per_row: float
    measured: bool
    rows_at_most: int
    bytes_at_most: int


def estimate_state(app: App, pipeline: Pipeline, plan: Plan) -> list[StateEstimate]:
    """Return the size of each stage's state, for a plan that is not committed yet. Raises LakeUnavailable.

    Args:
        app: The app.
        pipeline: The pipeline file as it is now.
        plan: The plan of its next batch, whose offsets are the waiting records.
    """
    head = app.ledger.head(plan.stream)
    last = app.ledger.plan(plan.stream, head.seq) if head.seq else None
    # A stage that is new in the file has no state, and `read_state` would refuse its name.
    planned_stages = {stage.name for stage in planned_pipeline(last).stages} if last is not None else set()
    stored = state_after(app, plan.stream, app.ledger.state_manifests(plan.stream))
    return [
        _estimate(
            pipeline,
            stage,
            read_state(app, plan.stream, stage=stage.name).num_rows if stage.name in planned_stages else 0,
            stored.get(stage.name, ()),
            plan.span,
        )
        for stage in pipeline.stages
    ]


def _estimate(
    pipeline: Pipeline, stage: Stage, rows: int, files: Sequence[DataFile], waiting: int
) -> StateEstimate:
    stored_rows, stored_bytes = sum(file.rows for file in files), sum(file.bytes for file in files)
    measured = stored_rows >= MEASURED_ROWS
    keeps_values = kernel_stage(pipeline, stage).keeps_values
    default = DEFAULT_BYTES_PER_ROW if keeps_values else DEFAULT_BYTES_PER_HASH
    per_row = stored_bytes / stored_rows if measured else default
    # A record can change a row in each window that contains it.
    more = waiting * _windows_per_record(stage)
    return StateEstimate(
        stage=stage.name,
        rows=rows,
        stored_rows=stored_rows,
        bytes=stored_bytes,
        bytes_per_row=per_row,
        measured=measured,
        rows_at_most=rows + more,
        bytes_at_most=stored_bytes + math.ceil(more * per_row),
    )


def _windows_per_record(stage: Stage) -> int:
    return 1 if stage.window is None else stage.window.windows_per_record
