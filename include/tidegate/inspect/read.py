"""Read what batches have written, state and emissions, as Arrow tables, and the erasures since; and
estimate a stage's state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate.app.outboxes import StoredOutboxes
from tidegate.app.root import App, aliases_of, batch_named, needed_by, state_after, state_named
from tidegate.errors import KeyErased, SettingsInvalid
from tidegate.ledger import Erasure, Plan, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.pipeline import Pipeline
from tidegate.model.stage import Stage, stage_named
from tidegate.numerals import counted
from tidegate.storage import DataFile
from tidegate.storage.datafile import joined, read_files
from tidegate.storage.schema import HASH, ORDER
from tidegate.storage.state import live_rows


def erasures_since(app: App, stream: Stream, seq: int) -> list[Erasure]:
    """Return the erasures after batch `seq`: state and emissions up to this batch lack their keys."""
    return [erasure for erasure in app.ledger.erasures(stream) if erasure.seq > seq]


def require_not_erased(app: App, stream: Stream, seq: int, key: str) -> None:
    """Raise KeyErased if a key was erased after batch `seq`: what the batch had of it cannot be told."""
    for erasure in erasures_since(app, stream, seq):
        if erasure.covers(key):
            raise KeyErased(
                f"The key {key} of {stream} was erased in batch {erasure.seq}, so nothing is left of what "
                f"batch {seq} had of it",
                f"See certificate {erasure.number}: tidegate erase {stream.pipeline} --certificates.",
            )


def erasure_notes(app: App, stream: Stream, seq: int | None) -> list[str]:
    """Return a sentence for each erasure since batch `seq` (None: for each), for those who list all keys."""
    shown = "the batches before it" if seq is None else f"batch {seq}"
    return [
        f"Erased in batch {erasure.seq} (certificate {erasure.number}), and so not shown for {shown}: "
        f"{counted(len(erasure.keys), 'key')}."
        for erasure in erasures_since(app, stream, seq or 0)
    ]


def erased_in(app: App, stream: Stream, key: str) -> int:
    """Return the batch of the newest erasure of a key, before which nothing is left of it; 0 if there is
    none.
    """
    return max((erasure.seq for erasure in app.ledger.erasures(stream) if erasure.covers(key)), default=0)


MEASURED_ROWS = 10_000
"""With fewer rows in files, the files are mostly overhead, and a default size per row is used."""
DEFAULT_BYTES_PER_ROW = 15.0
"""The size of a boolean value under a key of two columns, as `python -m benchmarks.state` measures it."""
DEFAULT_BYTES_PER_HASH = 85.0
"""The same, if only a hash is stored: hashes are distinct and do not compress."""


def read_state(
    app: App, stream: Stream, as_of: int | None = None, stage: str | None = None, key: str | None = None
) -> pa.Table:
    """Return one row per live key, and window if there are windows, sorted by key and window.

    The columns are `key`, `window_start`, `window_end` (epoch ms; null without a window), `value` (the folded
    value) and `emitted` (the value last emitted), or `digest` in a stage that stores only hashes; `pending`,
    the number of records that are held back, and `due_at`, until when; and the position that last changed the
    row. Of a join, there is one row per record that can still match: it has no window, but its `side`.

    Args:
        as_of: The seq of a batch; None for the head.
        stage: None for the last stage.
        key: Return only its rows, for which few rows are read.

    Raises SettingsInvalid, StateGivenUp, KeyErased, LakeDamaged, LakeUnavailable.
    """
    planned = planned_stage(app, stream, stage)
    if planned is None:
        return pa.table({})
    pipeline, chosen = planned
    head = app.ledger.head(stream).seq
    seq = head if as_of is None else as_of
    if not 0 <= seq <= head:
        raise SettingsInvalid(
            f"{stream} has no batch {seq}: its last one is {head}", f"Name a batch from 0 to {head}."
        )
    if key is not None:
        require_not_erased(app, stream, seq, key)
    with needed_by(state_named(stream, seq)):
        state = state_after(app, stream, app.ledger.state_manifests(stream, as_of))
        # The stage may have been added after the batch, or may have written nothing yet.
        if chosen.name not in state:
            return pa.table({})
        is_bounded = kernel_stage(pipeline, chosen).bound is not None
        # Files keep the column names of their time, and are read with the present ones.
        aliases = aliases_of(app.ledger, stream, seq, chosen.name)
        rows = live_rows(app.lake(stream).store, state[chosen.name], is_bounded, key, aliases)
        return chosen.reduce.shown(rows)


def read_emissions(app: App, stream: Stream, seq: int | None = None, stage: str | None = None) -> pa.Table:
    """Return the emissions of a stage, of one batch or of all, sorted by batch, key and order.

    Args:
        seq: None for all batches.
        stage: None for the last stage.

    Emissions that have expired are missing among those of all batches. Raises EmissionsExpired if `seq` is
    such a batch; SettingsInvalid, also for a stage whose emissions only the next stage gets, since they are
    not stored.
    """
    planned = planned_stage(app, stream, stage)
    if planned is None:
        return pa.table({})
    pipeline, chosen = planned
    if chosen.name not in pipeline.published_stages:
        raise SettingsInvalid(
            f"The emissions of the stage {chosen.name} are not kept: no sink of {stream} gets them",
            f"Add a sink with `stage: {chosen.name}`; its next batches are kept.",
        )
    rows = _emissions(app, stream, chosen.name, seq)
    if not rows.num_rows:
        return pa.table({})
    # Files are sorted by hash, which says nothing to a reader.
    return rows.drop_columns([HASH]).sort_by([(name, "ascending") for name in ORDER])


def stored_stages(app: App, stream: Stream) -> tuple[str, ...]:
    """Return the stages whose emissions are stored, as last planned; none before the first plan."""
    planned = planned_stage(app, stream, None)
    return planned[0].published_stages if planned is not None else ()


def planned_stage(app: App, stream: Stream, name: str | None) -> tuple[Pipeline, Stage] | None:
    """Return a stage by its name (None: the last), as last planned; None before the first plan."""
    # Before the first commit the open plan, which is batch 1, already names the stages.
    plan = app.ledger.plan(stream, max(app.ledger.head(stream).seq, 1))
    if plan is None:
        return None
    pipeline = planned_pipeline(plan)
    return pipeline, pipeline.stages[-1] if name is None else stage_named(pipeline.outlets, name, stream)


def _emissions(app: App, stream: Stream, stage: str, seq: int | None) -> pa.Table:
    """Return what batch `seq` emitted; None: all batches."""
    tables, outboxes = [], StoredOutboxes(app, stream)
    for committed_seq, manifest in app.ledger.committed(stream, outboxes.expired if seq is None else seq - 1):
        if seq in (None, committed_seq):
            with needed_by(batch_named(stream, committed_seq)):
                files = outboxes.files(app.manifest(stream, manifest), stage)
                tables.append(read_files(app.lake(stream).store, files))
    return joined(tables)


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
