"""Promote by net differences: send the emissions after which consumers have what the new generation has.

They are a batch of their own, the next one of the generation that takes charge. It reads nothing and changes
no state. Its outbox is computed here, written as that of any attempt, and decided in the transaction of the
promotion. From then on it is published as any batch: exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.root import App
from tidegate.batch.pipeline_files import head_plan
from tidegate.batch.still_batch import (
    emitting_attempt,
    require_no_plan,
    running_counts,
    still_plan,
    write_emissions,
)
from tidegate.errors import Halted, SettingsInvalid
from tidegate.failpoints import failpoint
from tidegate.generations.compare import difference, lacking_events
from tidegate.generations.outputs import (
    CONSUMED,
    ENTRY,
    NO_WINDOW,
    TEXT,
    Feed,
    consumed,
    consumed_feeds,
    live,
    own_feeds,
    whole_emissions,
)
from tidegate.kernel.rows import RECORDED, with_column
from tidegate.ledger import Attempt, Charge, LeasedLedger, Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.pipeline import Pipeline
from tidegate.model.stage import Stage
from tidegate.sinks.model import SinkModel
from tidegate.spark.outbox import key_columns_of
from tidegate.storage import DataFile, Lake, attempt_name
from tidegate.storage.schema import (
    AT,
    HASH,
    KEY,
    KEY_COLUMNS,
    ORDINAL,
    REASON,
    SEQ,
    SOURCE,
    TIMESTAMP,
    VALUE,
    WINDOW,
)

PROMOTED = "promoted"
"""The reason of such an emission."""


def net_batch(app: App, lease: LeasedLedger, charge: Charge, run_id: str) -> tuple[Plan, Attempt]:
    """Write the files of a batch of net differences; return its plan and attempt, which are not in the ledger
    yet.

    `lease` is that of the generation that takes charge, `charge` is from before its promotion. Raises the
    errors of `net_outbox`; Halted if a batch is planned; SinkRefused or TimestampRefused if a sink would not
    take an emission.
    """
    head = lease.head(lease.stream)
    before, last = head_plan(app, head), lease.attempt(lease.stream, head.seq)
    if before is None or last is None:
        raise Halted(f"{lease.stream} has no batch yet", "Run it first.")
    require_no_plan(lease, lease.stream)
    plan = still_plan(head, before, run_id)
    name = attempt_name(plan.seq, lease.lease.epoch)
    outboxes = net_outboxes(app, charge, plan)
    files = [_written(app.lake(lease.stream), stage, name, rows) for stage, rows in outboxes.items()]
    return plan, emitting_attempt(app, plan, last, name, files, _emission_counts(last, outboxes))


def net_outboxes(app: App, charge: Charge, plan: Plan) -> dict[str, pa.Table]:
    """Return stage -> the emissions that its sinks lack, for the stages whose sinks lack some.

    `plan` is that of the batch that sends them. Raises the errors of `net_outbox`.
    """
    pipeline = planned_pipeline(plan)
    return {
        stage.name: rows
        for stage in pipeline.outlets
        if pipeline.sinks_of(stage) and (rows := net_outbox(app, charge, pipeline, stage, plan)).num_rows
    }


def _written(lake: Lake, stage: str, name: str, rows: pa.Table) -> DataFile:
    with failpoint("promote.write"):
        return write_emissions(lake, stage, name, PROMOTED, rows)


def _emission_counts(last: Attempt, outboxes: dict[str, pa.Table]) -> dict[str, dict[str, float]]:
    """Return the previous batch's running counts, and the counts of what this batch emits."""
    counts = running_counts(last)
    for stage, rows in outboxes.items():
        deleted = rows[VALUE].null_count
        emitted: dict[str, float] = {
            "emitted": rows.num_rows,
            f"emitted.{PROMOTED}": rows.num_rows,
            "emitted-tombstones": deleted,
        }
        counts[stage] = counts.get(stage, {}) | emitted
    return counts


def net_outbox(app: App, charge: Charge, pipeline: Pipeline, stage: Stage, plan: Plan) -> pa.Table:
    """Return the emissions that the stage's sinks lack, as rows of its outbox, in its order.

    `plan` is that of the batch that sends them; `charge` is from before its promotion. Raises SettingsInvalid
    if net differences make no sense for the stage, Halted if they cannot be found; LakeDamaged,
    LakeUnavailable.
    """
    sinks = pipeline.sinks_of(stage)
    feeds_by_sink = _consumed_by_all(app, charge, plan, stage, sinks)
    feeds = feeds_by_sink[0]
    # Up to the batch before, since this one is not committed yet.
    own = own_feeds(app, plan.stream, sinks[0].name, plan.seq - 1)
    if stage.emits_facts:
        events = lacking_events(app, stage, feeds, own)
        _require_payloads(pipeline, stage, live(events))
        return _numbered(events.drop_columns([TEXT]), plan.seq) if events.num_rows else events
    old, new = consumed(app, feeds), whole_emissions(app, own)
    if not new.num_columns:
        raise Halted(
            f"The stage {stage.name} of {plan.stream} has emitted nothing, so nothing tells what its "
            "emissions look like",
            "Promote it without --net, or let it emit something first.",
        )
    entries = difference(old, new)
    # With another form of messages every entry has to be sent, not only the entries that differ.
    is_written_otherwise = any(
        feed.with_key != sink.with_key
        for sink, its_feeds in zip(sinks, feeds_by_sink, strict=True)
        for feed in its_feeds
    )
    to_send = live(new) if is_written_otherwise else _of_entries(new, [entries.added, entries.changed])
    _require_payloads(pipeline, stage, to_send)
    rows = pa.concat_tables([to_send.drop_columns([TEXT]), _deletions(old, entries.removed, new.schema)])
    return _numbered(rows, plan.seq)


def _require_payloads(pipeline: Pipeline, stage: Stage, rows: pa.Table) -> None:
    """Raise an error if emissions cannot be sent as they were written.

    A message without its text would be a deletion. A message in another format names a schema, or an earlier
    value, of the generation that wrote it.
    """
    if pipeline.may_lack_keys(stage):
        raise SettingsInvalid(
            f"The stage {stage.name} sends records without a key, which are no entries that differ",
            "Promote without --net: the whole new stream goes out.",
        )
    for rule in (sink.messages for sink in pipeline.sinks_of(stage)):
        if rule is not None and (rule.payload.format != "json" or rule.key is not None):
            formats = {rule.payload.format, *([rule.key.format] if rule.key is not None else [])}
            raise SettingsInvalid(
                f"The sink of the topic {rule.target} has messages in {' and '.join(sorted(formats))}, which "
                "are not written again for another generation",
                "Promote without --net: the whole new stream goes out.",
            )
        names = [rule.payload.column, rule.timestamp or TIMESTAMP] if rule is not None else [VALUE]
        if any(name not in rows.column_names or rows[name].null_count for name in names):
            raise Halted(
                f"The stage {stage.name} has emissions of before that lack the text of their messages, or "
                "their timestamp",
                "Promote without --net: the whole new stream goes out.",
            )


def _consumed_by_all(
    app: App, charge: Charge, plan: Plan, stage: Stage, sinks: Sequence[SinkModel]
) -> list[list[Feed]]:
    """Return the feeds that each of a stage's sinks has got, which are equal: an outbox is for all of them.

    Raises SettingsInvalid if they have not got the same.
    """
    own = [sink.name for sink in sinks if sink.is_per_generation]
    if own:
        raise SettingsInvalid(
            f"The sink {', '.join(own)} is another one for each generation: nobody holds anything of it yet",
            "Give it a path, or promote without --net.",
        )
    feeds = [consumed_feeds(app, charge, plan.stream.pipeline, sink.name) for sink in sinks]
    if any(other != feeds[0] for other in feeds):
        raise SettingsInvalid(
            f"The sinks of the stage {stage.name} have not got the same so far: "
            + ", ".join(sink.name for sink in sinks),
            "Promote without --net: each then gets the whole new stream.",
        )
    return feeds


def _of_entries(rows: pa.Table, entries: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of some entries."""
    selected = pa.concat_tables([table.select(ENTRY) for table in entries])
    # Arrow's join keeps no order and no structs: so row numbers are joined, and rows taken by them.
    numbers = rows.select(ENTRY).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    return rows.take(
        numbers.join(selected, keys=list(ENTRY), join_type="inner")["row"].combine_chunks().sort()
    )


def _deletions(old: pa.Table, removed: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a deletion of each of these entries, with the time and the source of what it deletes."""
    rows = _of_entries(old, [removed]) if removed.num_rows else CONSUMED.empty_table()
    columns_of_old = {name: rows[name] for name in (HASH, KEY, *WINDOW, TIMESTAMP, AT, SOURCE, REASON)}
    columns_of_old[RECORDED] = rows[TIMESTAMP]
    columns_of_old[KEY_COLUMNS] = key_columns_of(rows[KEY].combine_chunks(), schema.field(KEY_COLUMNS).type)
    columns = {
        field.name: columns_of_old.get(field.name, pa.nulls(rows.num_rows, field.type))
        for field in schema
        if field.name != TEXT
    }
    return pa.table(columns, schema.remove(schema.get_field_index(TEXT)))


def _numbered(rows: pa.Table, seq: int) -> pa.Table:
    """Return the rows sorted and numbered as an outbox of this batch; a missing window is null again."""
    # By hash first, as in any outbox: readers skip row groups by their hashes. Arrow's sort is stable, so
    # events of a key keep their order.
    rows = rows.sort_by([(name, "ascending") for name in (HASH, *ENTRY)])
    for name in WINDOW:
        is_none = pc.equal(rows[name], NO_WINDOW)
        rows = with_column(rows, name, pc.if_else(is_none, pa.scalar(None, pa.int64()), rows[name]))
    count = rows.num_rows
    rows = with_column(rows, ORDINAL, range(count))
    rows = with_column(rows, REASON, pa.repeat(PROMOTED, count))
    return with_column(rows, SEQ, pa.repeat(pa.scalar(seq, pa.int64()), count))
