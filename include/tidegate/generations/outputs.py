"""Fold what consumers have: the newest emission of each key (and window) of many batches.

A generation's outboxes are folded batch by batch, so that memory is needed for keys, not for history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.outboxes import StoredOutboxes
from tidegate.app.root import App, batch_named, needed_by
from tidegate.errors import EmissionsExpired, Halted
from tidegate.kernel.json_text import json_texts
from tidegate.kernel.rows import with_column
from tidegate.ledger import Charge, Stream
from tidegate.ledger.planned import inherited_sinks, planned_pipelines
from tidegate.model.pipeline import Pipeline
from tidegate.storage import DataFile, Manifest
from tidegate.storage.datafile import joined, read_files
from tidegate.storage.schema import AT, HASH, KEY, REASON, SOURCE, TIMESTAMP, VALUE, WINDOW

ENTRY = (KEY, *WINDOW)
"""What tells apart what consumers hold. A window is never null here: NO_WINDOW stands for it."""
NO_WINDOW = -(2**63)
TEXT = "text"
"""The emitted value as JSON text; null for a deletion."""
CONSUMED = pa.schema(
    [
        (HASH, pa.int64()),
        *((name, pa.string()) for name in (KEY, REASON, SOURCE, TEXT)),
        *((name, pa.int64()) for name in (*WINDOW, TIMESTAMP, AT)),
    ]
)
"""The columns of an emission that every generation has."""
_FOLDED_AT = 500_000
"""Rows that are gathered before they are folded."""


@dataclass(frozen=True)
class Feed:
    """The emissions that a sink has of one generation: those of a stage in the batches `seqs`.

    Two feeds are equal if they have the same emissions, whether or not they are written with the key.

    Args:
        with_key: whether values have the key's columns; see sinks.
        missing: the batches that the sink never got of this generation.
    """

    stream: Stream
    stage: str
    with_key: bool = field(compare=False)
    seqs: range
    missing: frozenset[int] = frozenset()

    def has(self, seq: int) -> bool:
        """Return whether the sink has a batch."""
        return seq in self.seqs and seq not in self.missing


def own_feeds(app: App, stream: Stream, sink: str, until: int) -> list[Feed]:
    """Return the feeds of a consumer that has only this generation up to batch `until`, and the one that it
    began from.

    Empty if the generation lacks the sink. Raises Halted if the feeds cannot be found.
    """
    origin = app.ledger.origin(stream)
    before = own_feeds(app, origin[0], sink, origin[1]) if origin is not None else []
    return [*before, *_feed(app, stream, sink, range(1, until + 1))]


def consumed_feeds(app: App, charge: Charge, pipeline: str, sink: str) -> list[Feed]:
    """Return the feeds that a sink has got of a pipeline, generation by generation.

    From a promotion by net differences on, the sink has what the generation in charge has, and earlier feeds
    do not count.
    """
    spans = list(charge.spans())
    # Only from the last net promotion on: older generations may be dropped, and need not be read.
    first = max((number for number, span in enumerate(spans) if span.is_net), default=0)
    feeds: list[Feed] = []
    for span in spans[first:]:
        stream = Stream(pipeline, span.generation)
        if span.is_net:
            feeds += own_feeds(app, stream, sink, span.seqs.start - 1)
        inherited = _inherited(app, charge, stream, sink, span.seqs)
        feeds += (
            replace(feed, missing=feed.missing | inherited) for feed in _feed(app, stream, sink, span.seqs)
        )
    return feeds


def _inherited(app: App, charge: Charge, stream: Stream, sink: str, seqs: range) -> frozenset[int]:
    """Return the batches that a sink has from the generation before: those with which a generation begins
    that was computed only in part.
    """
    plans = takewhile(lambda plan: plan is not None, (app.ledger.plan(stream, seq) for seq in seqs))
    reused = takewhile(lambda plan: plan.reused is not None, filter(None, plans))
    return frozenset(plan.seq for plan in reused if sink in inherited_sinks(plan, charge))


def _feed(app: App, stream: Stream, sink: str, seqs: range) -> Iterator[Feed]:
    """Yield the feed of a sink, if it has one.

    Raises Halted if the generation was dropped, or the sink did not always have the same stage.
    """
    if not seqs:
        return
    if app.ledger.is_dropped(stream):
        raise Halted(
            f"{stream} was dropped, and with it the outboxes that tell what {sink} has of it",
            "Promote the new generation without --net: its whole stream goes out.",
        )
    ways = {_way(pipeline, sink) for pipeline in planned_pipelines(app.ledger, stream)}
    # The sink then has another stage's values, or none, for a part of the batches.
    if len(ways) > 1:
        raise Halted(
            f"The sink {sink} was added or changed within {stream}, so what it has cannot be told",
            "Promote the new generation without --net: its whole stream goes out.",
        )
    for way in ways - {None}:
        assert way is not None
        yield Feed(stream, *way, seqs, _given_up(app, stream, sink, seqs))


def _given_up(app: App, stream: Stream, sink: str, seqs: range) -> frozenset[int]:
    """Return the batches that a sink never got. Raises Halted if it has a part of one."""
    given_up = [row for row in app.ledger.given_up(stream) if row.sink == sink and row.seq in seqs]
    if partial := [row.seq for row in given_up if row.sent]:
        raise Halted(
            f"Batch {partial[0]} of {stream} was given up when {sink} had a part of it, so what it has of it "
            "cannot be told",
            "Promote the new generation without --net: its whole stream goes out.",
        )
    return frozenset(row.seq for row in given_up)


def _way(pipeline: Pipeline, sink: str) -> tuple[str, bool] | None:
    """Return the stage that feeds a sink, and whether messages have the key; None: there is no such sink."""
    return next(
        (
            (pipeline.stage_of(declared).name, declared.with_key)
            for declared in pipeline.sinks
            if declared.name == sink
        ),
        None,
    )


def consumed(app: App, feeds: Iterable[Feed]) -> pa.Table:
    """Return the newest emission of each entry of the feeds, also deletions, with the columns CONSUMED.

    Raises LakeDamaged, LakeUnavailable.
    """
    return _folded(_as_consumed(rows) for feed in feeds for rows in _outboxes(app, feed))


def whole_emissions(app: App, feeds: Iterable[Feed]) -> pa.Table:
    """Return the newest emissions of feeds whose outboxes have the same columns, with all of these and TEXT.

    A table without columns where nothing was emitted. Raises SchemaChanged, too.
    """
    return _folded(_with_text(rows) for feed in feeds for rows in _outboxes(app, feed))


def all_consumed(app: App, feeds: Iterable[Feed]) -> pa.Table:
    """Return all emissions of the feeds, in order, with the columns CONSUMED."""
    return _joined(_as_consumed(rows) for feed in feeds for rows in _outboxes(app, feed))


def all_emissions(app: App, feeds: Iterable[Feed]) -> pa.Table:
    """Return all emissions of feeds whose outboxes have the same columns, in order, with all of these and
    TEXT; a table without columns where nothing was emitted. Raises SchemaChanged, too.
    """
    return _joined(_with_text(rows) for feed in feeds for rows in _outboxes(app, feed))


def emissions_by_reason(app: App, feeds: Iterable[Feed]) -> dict[str, int]:
    """Return reason -> number of emissions."""
    numbers: dict[str, int] = {}
    for feed in feeds:
        for rows in _outboxes(app, feed, [REASON]):
            for row in pc.value_counts(rows[REASON]).to_pylist():
                numbers[row["values"]] = numbers.get(row["values"], 0) + row["counts"]
    return dict(sorted(numbers.items()))


def live(rows: pa.Table) -> pa.Table:
    """Return the rows without entries whose last emission is a deletion."""
    return rows.filter(pc.is_valid(rows[TEXT])) if rows.num_columns else rows


def _outboxes(app: App, feed: Feed, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """Yield the outboxes batch by batch, in the order in which a sink gets the emissions.

    Raises EmissionsExpired if one of them is no longer kept, LakeDamaged, LakeUnavailable.
    """
    store, outboxes = app.lake(feed.stream).store, StoredOutboxes(app, feed.stream)
    for seq, reference in app.ledger.committed(feed.stream, feed.seqs.start - 1):
        if feed.has(seq):
            with needed_by(batch_named(feed.stream, seq)):
                files = _files(outboxes, app.manifest(feed.stream, reference), feed.stage)
                if files:
                    yield read_files(store, files, columns)


def _files(outboxes: StoredOutboxes, manifest: Manifest, stage: str) -> tuple[DataFile, ...]:
    try:
        return outboxes.files(manifest, stage)
    except EmissionsExpired as error:
        raise EmissionsExpired(
            f"{error.what}, so what consumers have of {outboxes.stream} cannot be told",
            "Promote the new generation without --net: its whole stream goes out.",
        ) from error


def _as_consumed(rows: pa.Table) -> pa.Table:
    return _with_text(rows).select(CONSUMED.names).cast(CONSUMED)


def _with_text(rows: pa.Table) -> pa.Table:
    rows = rows.combine_chunks().append_column(TEXT, json_texts(rows[VALUE].combine_chunks()))
    for name in WINDOW:
        rows = with_column(rows, name, pc.fill_null(rows[name], NO_WINDOW))
    return rows


def _joined(tables: Iterable[pa.Table]) -> pa.Table:
    gathered = list(tables)
    return joined(gathered) if gathered else pa.table({})


def _folded(tables: Iterable[pa.Table]) -> pa.Table:
    gathered: list[pa.Table] = []
    for table in tables:
        gathered.append(table)
        if len(gathered) > 1 and sum(part.num_rows for part in gathered[1:]) > _FOLDED_AT:
            # Fold early: memory is for keys, not for the history of a key.
            gathered = [_newest(joined(gathered))]
    return _newest(joined(gathered)) if gathered else pa.table({})


def _newest(rows: pa.Table) -> pa.Table:
    """Return the last row of each entry."""
    numbered = rows.select(ENTRY).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    # Rows come in the order in which they were sent, so the largest row number is the newest emission.
    last = numbered.group_by(list(ENTRY)).aggregate([("row", "max")])["row_max"].combine_chunks()
    return rows.take(last.sort())
