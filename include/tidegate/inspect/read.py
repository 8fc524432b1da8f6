"""Read state, emissions and quarantine of committed batches, as Arrow, without a JVM."""

from __future__ import annotations

import pyarrow as pa

from tidegate.app.manifests import aliases_of, batch_named, needed_by, state_after, state_named
from tidegate.app.root import App
from tidegate.errors import SettingsInvalid
from tidegate.ledger import Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.spec import Pipeline, Stage
from tidegate.spec.kernel import kernel_stage
from tidegate.storage.datafile import joined, read_files
from tidegate.storage.manifest import Kind
from tidegate.storage.schema import HASH, ORDER
from tidegate.storage.state import live_rows


def read_state(
    app: App, stream: Stream, as_of: int | None = None, stage: str | None = None, key: str | None = None
) -> pa.Table:
    """Return one row per live key, and window if there are windows, sorted by key and window.

    The columns are `key`, `window_start`, `window_end` (epoch ms; null without a window), `value` (the folded
    value) and `emitted` (the value last emitted), or `digest` in a stage that stores only hashes; `pending`,
    the number of records that are held back, and `due_at`, until when; and the position that last changed the
    row.

    Args:
        as_of: The seq of a batch; None for the head.
        stage: None for the last stage.
        key: Return only its rows, for which few rows are read.

    Raises SettingsInvalid, StateGivenUp, LakeDamaged, LakeUnavailable.
    """
    planned = _stage(app, stream, stage)
    if planned is None:
        return pa.table({})
    pipeline, chosen = planned
    seq = app.ledger.head(stream).seq if as_of is None else as_of
    with needed_by(state_named(stream, seq)):
        state = state_after(app, stream, app.ledger.state_manifests(stream, as_of))
        # The stage may have been added after the batch, or may have written nothing yet.
        if chosen.name not in state:
            return pa.table({})
        is_bounded = kernel_stage(pipeline, chosen).bound is not None
        # Files keep the column names of their time, and are read with the present ones.
        aliases = aliases_of(app.ledger, stream, seq, chosen.name)
        return live_rows(app.lake(stream).store, state[chosen.name], is_bounded, key, aliases)


def read_emissions(app: App, stream: Stream, seq: int | None = None, stage: str | None = None) -> pa.Table:
    """Return the emissions of a stage, of one batch or of all, sorted by batch, key and order.

    Args:
        seq: None for all batches.
        stage: None for the last stage.

    Raises SettingsInvalid, also for a stage whose emissions only the next stage gets, since they are not
    stored.
    """
    planned = _stage(app, stream, stage)
    if planned is None:
        return pa.table({})
    pipeline, chosen = planned
    if chosen.name not in pipeline.published_stages:
        raise SettingsInvalid(
            f"The emissions of the stage {chosen.name} are not kept: no sink of {stream} gets them",
            f"Add a sink with `stage: {chosen.name}`; its next batches are kept.",
        )
    rows = _committed_rows(app, stream, "outbox", chosen.name, seq)
    if not rows.num_rows:
        return pa.table({})
    # Files are sorted by hash, which says nothing to a reader.
    return rows.drop_columns([HASH]).sort_by([(name, "ascending") for name in ORDER])


def read_quarantine(app: App, stream: Stream, seq: int | None = None) -> pa.Table:
    """Return the input that could not be used, with all columns, by position. Raises LakeDamaged,
    LakeUnavailable.

    Args:
        app: The app.
        stream: The stream.
        seq: None for all batches.
    """
    rows = _committed_rows(app, stream, "quarantine", "", seq)
    if not rows.num_rows:
        return pa.table({})
    return rows.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])


def _stage(app: App, stream: Stream, name: str | None) -> tuple[Pipeline, Stage] | None:
    """Return a stage by its name (None: the last), as last planned; None before the first plan."""
    # Before the first commit the open plan, which is batch 1, already names the stages.
    plan = app.ledger.plan(stream, max(app.ledger.head(stream).seq, 1))
    if plan is None:
        return None
    pipeline = planned_pipeline(plan)
    stages = {stage.name: stage for stage in pipeline.stages}
    if name is not None and name not in stages:
        raise SettingsInvalid(f"{stream} has no stage {name}", f"It has: {', '.join(stages)}.")
    return pipeline, stages[name] if name is not None else pipeline.stages[-1]


def _committed_rows(app: App, stream: Stream, kind: Kind, stage: str, seq: int | None) -> pa.Table:
    """Return what batch `seq` wrote; None: all batches."""
    tables = []
    for committed_seq, manifest in app.ledger.committed(stream):
        if seq in (None, committed_seq):
            with needed_by(batch_named(stream, committed_seq)):
                files = app.manifest(stream, manifest).files_of(kind, stage)
                tables.append(read_files(app.lake(stream).store, files))
    return joined(tables)
