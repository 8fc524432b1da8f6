"""The kernel: rows in; state changes, emissions and counts out. All decisions are made here, once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel import columnar
from tidegate.kernel.columns import count_lateness
from tidegate.kernel.counts import Counts
from tidegate.kernel.folding import Folding
from tidegate.kernel.grouping import group_ends, whole_groups
from tidegate.kernel.ordering import in_order, merge_partitions
from tidegate.kernel.prior_state import NO_STATE, PriorState, with_state
from tidegate.kernel.rows import BY_KEY, BY_PARTITION, COUNTS, QUARANTINED, fill, output_schema
from tidegate.kernel.stage import Batch, Stage, groups
from tidegate.kernel.unusable import pass_through, without_unreadable

_WHOLE_BATCH = Batch()


def order(stage: Stage) -> tuple[str, ...]:
    """Return the columns by which a stage takes its rows.

    Example: it is `rows.BY_PARTITION` for a stage with a bounded buffer, otherwise `rows.BY_KEY`.
    """
    return BY_PARTITION if stage.bound else BY_KEY


def decide(
    stage: Stage,
    batches: Iterable[pa.RecordBatch],
    batch: Batch = _WHOLE_BATCH,
    prior: PriorState = NO_STATE,
) -> Iterator[pa.RecordBatch]:
    """Apply a stage to rows as `rows` describes them.

    Yields state, emission, quarantined and trace rows, then counts. All rows of one hash must be in `batches`
    of one call, one after the other in any order, and smaller hashes before larger ones. The state may be
    among them, or come from `prior`. Quarantined rows are yielded before the next of `batches` is taken.

    The input must have at least one Arrow batch, though it may be empty: its schema gives the output's.
    Raises BufferFull; and if a record cannot be used and the stage stops for it, RecordFailed,
    UserFunctionFailed or ConditionFailed, with its position.

    Example::

        for rows in decide(stage, [record_batch], Batch(times={("orders", 0): 1_700_000_000_000})):
            ...
    """
    # a replayed record is below the fence, although no batch has applied it
    if batch.replay and stage.deduplicate == "offset":
        stage = replace(stage, deduplicate="none")
    counts = Counts()
    schema: pa.Schema | None = None
    quarantined: list[pa.RecordBatch] = []

    def accepted_rows() -> Iterator[pa.RecordBatch]:
        nonlocal schema
        for rows in batches:
            schema = schema or output_schema(stage, rows.schema)
            # usually there is none, and then nothing is filtered or copied
            if pc.index(rows.column("kind"), QUARANTINED).as_py() >= 0:
                unusable = pc.equal(rows.column("kind"), QUARANTINED)
                quarantined.append(pass_through(schema, rows.filter(unusable), counts))
                rows = rows.filter(pc.invert(unusable))
            rows, unreadable = without_unreadable(stage, rows)
            if unreadable is not None:
                quarantined.append(pass_through(schema, unreadable, counts))
            if quarantined:
                # an empty batch lets the loop below yield them now: whole records may be wide
                yield rows.slice(0, 0)
            yield rows

    by = order(stage)
    ordered = (in_order(rows, by) for rows in whole_groups(accepted_rows(), ("hash",)))
    for rows in with_state(ordered, prior, by, groups(stage)):
        schema = schema or output_schema(stage, rows.schema)
        if rows.num_rows:
            count_lateness(rows, counts)
            yield from _decide_groups(stage, batch, schema, rows, counts)
        while quarantined:
            yield quarantined.pop()
    yield from quarantined
    if schema is not None:
        yield fill(schema, COUNTS, {"counts": pa.array([counts.to_json()])}, 1)


def _decide_groups(
    stage: Stage, batch: Batch, schema: pa.Schema, rows: pa.RecordBatch, counts: Counts
) -> Iterator[pa.RecordBatch]:
    # a bounded buffer is one partition's own, so its records are in order already
    if not stage.bound:
        rows, merged_keys = merge_partitions(rows, stage.by_time)
        counts["keys-in-several-partitions"] += merged_keys
    if stage.unchanged is not None:
        rows = stage.unchanged.fill(rows)
    column_kernel = columnar.column_kernel(stage, batch, rows.schema.field("value").type)
    if column_kernel is not None:
        yield from column_kernel(stage, batch, schema, rows, counts)
    else:
        yield from Folding(stage, batch, rows, schema, counts).run(group_ends(rows, groups(stage)))
