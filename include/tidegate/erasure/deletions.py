"""The batch of an erasure: it reads nothing, and deletes the keys at the sinks.

Its outbox has a deletion of each key that ever went out, with each of its windows. It is decided and
published as any batch, so each sink gets it once. Afterwards the outbox itself is erased.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.outboxes import StoredOutboxes
from tidegate.app.root import App, needed_by, state_after, state_named
from tidegate.batch.pipeline_files import head_plan
from tidegate.batch.still_batch import (
    emitting_attempt,
    require_no_plan,
    running_counts,
    still_plan,
    write_emissions,
)
from tidegate.erasure.files import columns_to_compare, kept_schema, key_columns_in, rows_of_keys
from tidegate.erasure.keys import ErasedKeys
from tidegate.failpoints import failpoint
from tidegate.kernel.keys import key_hashes
from tidegate.kernel.rows import RECORDED
from tidegate.ledger import Attempt, LeasedLedger, Plan, Stream
from tidegate.ledger.planned import planned_pipeline, planned_pipelines
from tidegate.model.kernel_stages import state_stages
from tidegate.model.pipeline import Pipeline
from tidegate.model.stage import Stage
from tidegate.spark.outbox import key_columns_of
from tidegate.storage import DataFile, Lake, attempt_name
from tidegate.storage.compaction import FoldRule
from tidegate.storage.datafile import data_errors, open_data, stored_schema
from tidegate.storage.schema import (
    AT,
    HASH,
    KEY,
    KEY_COLUMNS,
    LIVE,
    ORDINAL,
    PENDING,
    REASON,
    SEQ,
    TIMESTAMP,
    WINDOW,
)
from tidegate.storage.state import StateReader

ERASED = "erased"
"""The reason of such a deletion."""


def erasure_batch(
    app: App, lease: LeasedLedger, number: int, keys: ErasedKeys, run_id: str
) -> tuple[Plan, Attempt]:
    """Write the files of the batch; return its plan and attempt, which are not in the ledger yet.

    Raises Halted if a batch is planned; SinkRefused, TimestampRefused or …Unavailable if a sink would not
    take a deletion; LakeDamaged, LakeUnavailable.
    """
    head = lease.head(lease.stream)
    # A planned batch may have read records of the keys.
    require_no_plan(lease, lease.stream)
    before, last = head_plan(app, head), lease.attempt(lease.stream, head.seq)
    assert before is not None
    assert last is not None, "the ledger has the attempt of the head"
    plan = replace(still_plan(head, before, run_id), erasure=number)
    name, erased = attempt_name(plan.seq, lease.lease.epoch), _erased_rows(app, lease, keys)
    outboxes = dict(_outboxes(app, lease, plan, keys, erased))
    files = [_written(app.lake(plan.stream), stage, name, rows) for stage, rows in outboxes.items()]
    counts = _counts(last, erased, outboxes)
    return plan, emitting_attempt(app, plan, last, name, files, counts)


def _written(lake: Lake, stage: str, name: str, rows: pa.Table) -> DataFile:
    with failpoint("erase.outbox"):
        return write_emissions(lake, stage, name, ERASED, rows)


def _outboxes(
    app: App, lease: LeasedLedger, plan: Plan, keys: ErasedKeys, erased: Mapping[str, Sequence[pa.Table]]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the outbox of each stage whose sinks ever got one of the keys; none of a generation that sends
    nothing.

    Args:
        erased: the state's rows of the keys: emissions that are lost may have told consumers of them.
    """
    charge, pipeline = lease.charge(plan.stream.pipeline), planned_pipeline(plan)
    if charge.withholds(plan.stream.generation):
        return
    are_lost = any(lost_emissions(app, plan.stream))
    for stage in pipeline.outlets:
        sinks = pipeline.sinks_of(stage)
        if not sinks:
            continue
        emissions = list(_emissions(app, plan.stream, {sink.name for sink in sinks}, keys))
        schema = emissions[-1].schema if emissions else None
        key_payloads = [rule.key.column for rule in (sink.messages for sink in sinks) if rule and rule.key]
        # A message's key in another format is in its emission alone, so an entry of the state is no help.
        if are_lost and stage in pipeline.stages and not key_payloads:
            schema = schema or kept_schema(app, plan.stream, stage.name)
            stored = (rows.select([KEY, *WINDOW]) for rows in erased.get(stage.name, ()))
            entries = [*stored, *_named(pipeline, stage, keys)] if schema else []
            emissions = [_as_emissions(rows, schema) for rows in entries] + emissions
        if emissions:
            now_ms = round(app.ledger.now() * 1000)
            yield stage.name, _deletions(emissions, schema, key_payloads, plan.seq, now_ms)


def _emissions(app: App, stream: Stream, sinks: set[str], keys: ErasedKeys) -> Iterator[pa.Table]:
    """Yield the emissions of the keys that the sinks may have, those of this generation last."""
    for sender in _senders(app, stream):
        stages = {
            pipeline.stage_of(sink).name
            for pipeline in planned_pipelines(app.ledger, sender)
            for sink in pipeline.sinks
            if sink.name in sinks
        }
        expired = StoredOutboxes(app, sender).expired
        for _, reference in app.ledger.committed(sender, expired) if stages else ():
            for file in app.manifest(sender, reference).files:
                if file.kind == "outbox" and file.stage in stages:
                    yield from _rows_of(app, sender, file, keys)


def lost_emissions(app: App, stream: Stream) -> Iterator[str]:
    """Yield a clause for each part of the emissions that sinks may have of a pipeline, and that is kept no
    longer.
    """
    for sender in _senders(app, stream):
        if expired := StoredOutboxes(app, sender).expired:
            owner = "" if sender == stream else f" of {sender}"
            yield f"the emissions of batches up to {expired}{owner} have expired"
    charge = app.ledger.charge(stream.pipeline)
    for dropped in app.ledger.dropped_streams(stream.pipeline):
        if charge.released(dropped.generation):
            yield f"the emissions of {dropped} were dropped with it"


def _senders(app: App, stream: Stream) -> list[Stream]:
    """Return the generations that may have sent to the sinks, this one last."""
    siblings = [
        other for other in app.ledger.streams() if other.pipeline == stream.pipeline and other != stream
    ]
    return [*siblings, stream]


def _named(pipeline: Pipeline, stage: Stage, keys: ErasedKeys) -> Iterator[pa.Table]:
    """Yield the keys themselves, if they are keys of the stage: one that expired (`ttl`) is in no state."""
    if stage.window is None and keys.is_same(pipeline.key_of(stage)):
        window = pa.nulls(len(keys.texts), pa.int64())
        yield pa.table([pa.array(keys.texts, pa.string()), window, window], names=[KEY, *WINDOW])


def _as_emissions(entries: pa.Table, schema: pa.Schema) -> pa.Table:
    keys = entries[KEY].combine_chunks()
    rows = entries.append_column(HASH, key_hashes(keys))
    return rows.append_column(KEY_COLUMNS, key_columns_of(keys, schema.field(KEY_COLUMNS).type))


def _rows_of(app: App, stream: Stream, file: DataFile, keys: ErasedKeys) -> Iterator[pa.Table]:
    store = app.lake(stream).store
    with open_data(store, file) as parquet, data_errors(store, file):
        if not keys.may_match(key_columns_in(file, parquet.schema_arrow)):
            return
        for group in range(parquet.num_row_groups):
            narrow = parquet.read_row_group(group, columns=columns_to_compare(file, parquet.schema_arrow))
            mask = rows_of_keys(file, keys, narrow)
            # Values are read only from row groups with such rows.
            if pc.any(mask).as_py():
                yield parquet.read_row_group(group).filter(mask).replace_schema_metadata(None)


def _deletions(
    emissions: Sequence[pa.Table], schema: pa.Schema, key_payloads: Sequence[str], seq: int, now_ms: int
) -> pa.Table:
    """Return a deletion of each key and window, as rows of an outbox, in its order.

    A deletion has no source: who skips repeated roots must not take it for a repetition of what it deletes.
    """
    carried = (HASH, KEY, KEY_COLUMNS, *WINDOW, *key_payloads)
    rows = pa.concat_tables([_conformed(table, schema, carried) for table in emissions])
    entries = rows.select([KEY, *WINDOW]).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    newest = entries.group_by([KEY, *WINDOW]).aggregate([("row", "max")])["row_max"]
    rows = rows.take(newest.combine_chunks().sort())
    rows = rows.sort_by([(name, "ascending") for name in (HASH, KEY, *WINDOW)])
    count = rows.num_rows
    instants = {name: pa.repeat(pa.scalar(now_ms, pa.int64()), count) for name in (TIMESTAMP, AT, RECORDED)}
    filled = instants | {
        ORDINAL: pa.array(range(count), pa.int64()),
        REASON: pa.repeat(ERASED, count),
        SEQ: pa.repeat(pa.scalar(seq, pa.int64()), count),
    }
    columns = [filled[field.name] if field.name in filled else rows[field.name] for field in schema]
    return pa.table(columns, schema=schema)


def _conformed(rows: pa.Table, schema: pa.Schema, carried: Sequence[str]) -> pa.Table:
    """Return rows with the columns of a schema; those that are not carried, or have another type, are
    null.
    """
    columns = [
        rows[field.name]
        if field.name in carried and field.name in rows.column_names and rows[field.name].type == field.type
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _counts(
    last: Attempt, erased: Mapping[str, Sequence[pa.Table]], outboxes: Mapping[str, pa.Table]
) -> dict[str, dict[str, float]]:
    """Return the previous batch's running counts without the erased state, and what the batch emits."""
    counts = running_counts(last)
    for stage, tables in erased.items():
        removed = Counter[str]()
        for rows in tables:
            _count(removed, rows)
        totals = counts.setdefault(stage, {})
        counts[stage] = {name: value - removed[name] for name, value in totals.items()}
    for stage, rows in outboxes.items():
        emitted = dict.fromkeys(("emitted", f"emitted.{ERASED}", "emitted-tombstones"), rows.num_rows)
        counts[stage] = counts.get(stage, {}) | emitted
    return counts


def _erased_rows(app: App, lease: LeasedLedger, keys: ErasedKeys) -> dict[str, list[pa.Table]]:
    """Return stage -> the live state rows of the keys, for the stages that have some."""
    erased: dict[str, list[pa.Table]] = {}
    stream, head = lease.stream, lease.head(lease.stream).seq
    store, logics = app.lake(stream).store, state_stages(planned_pipelines(app.ledger, stream))
    with needed_by(state_named(stream, head)):
        for stage, files in state_after(app, stream, lease.state_manifests(stream, head)).items():
            columns = key_columns_in(files[-1], pa.schema([]))
            if not keys.may_match(columns):
                continue
            schema, by_place = stored_schema(store, files), FoldRule.for_stages(logics[stage]).by_place
            with StateReader(store, files, schema, by_place=by_place) as state:
                for rows in state.scan():
                    of_keys = rows.filter(keys.mask(columns, rows[KEY]))
                    if (live := of_keys.filter(of_keys[LIVE])).num_rows:
                        erased.setdefault(stage, []).append(live)
    return erased


def _count(removed: Counter[str], rows: pa.Table) -> None:
    removed["state-rows"] += rows.num_rows
    if PENDING in rows.column_names:
        waits = pc.fill_null(pc.greater(rows[PENDING], 0), False)
        removed["suppression-buffer-records"] += pc.sum(waits).as_py() or 0
    if "bytes" in rows.column_names:
        removed["suppression-buffer-bytes"] += pc.sum(rows["bytes"]).as_py() or 0
