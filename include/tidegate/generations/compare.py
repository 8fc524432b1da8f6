"""Compute what would change for consumers if another generation took charge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.root import App
from tidegate.errors import Halted
from tidegate.generations.events import different_events
from tidegate.generations.outputs import (
    ENTRY,
    NO_WINDOW,
    TEXT,
    consumed,
    emissions_by_reason,
    live,
    own_feeds,
)
from tidegate.ledger import Head, Offsets, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.stage import Stage
from tidegate.storage.schema import WINDOW

_OLD, _NEW = "old", "new"


def common_point(app: App, old: Stream, new: Stream) -> tuple[int, int]:
    """Return the last batch of each stream such that both have read the same in every partition that both
    read.

    Raises Halted if no two batches that the ledger still has end at the same offsets.
    """
    heads = app.ledger.head(old), app.ledger.head(new)
    shared = _shared_partitions(*heads)
    seqs = [head.seq for head in heads]
    while all(seqs):
        ends = [_ends(app, head, seq, shared) for head, seq in zip(heads, seqs, strict=True)]
        if None in ends:
            break
        first, second = ends
        if first == second:
            return seqs[0], seqs[1]
        # Offsets only rise from batch to batch, so the stream that is ahead goes back.
        behind = sum((first or {}).values()) < sum((second or {}).values())
        seqs[1 if behind else 0] -= 1
    raise Halted(
        f"No batch of {new} ends where one of {old} does, so their outputs cannot be compared",
        "Give both the same schedule, or run both with the same `--until`.",
    )


def _shared_partitions(old: Head, new: Head) -> list[tuple[str, int]]:
    """Return the partitions that both read, of topics that have the same id in both."""
    return [
        partition
        for partition in old.offsets
        if partition in new.offsets and old.topic_ids.get(partition[0]) == new.topic_ids.get(partition[0])
    ]


def _ends(app: App, head: Head, seq: int, partitions: list[tuple[str, int]]) -> Offsets | None:
    """Return the end offsets of a batch (0 in a partition that it did not have); None if the ledger has no
    plan of it.
    """
    if seq == head.seq:
        return {partition: head.offsets[partition] for partition in partitions}
    plan = app.ledger.plan(head.stream, seq)
    return {partition: plan.ends.get(partition, 0) for partition in partitions} if plan is not None else None


@dataclass(frozen=True)
class Difference:
    """Entries by what becomes of them; each table has the columns of ENTRY, and `old` and `new`, the values
    as JSON text. `same` is only counted. Events are never `changed`.
    """

    added: pa.Table
    changed: pa.Table
    removed: pa.Table
    same: int

    @property
    def total(self) -> int:
        """The number of entries that differ."""
        return sum(table.num_rows for table in (self.added, self.changed, self.removed))


def difference(old: pa.Table, new: pa.Table) -> Difference:
    """Return the difference between two tables with the newest emission of each entry, as of `consumed`."""
    both = _values(old, _OLD).join(_values(new, _NEW), keys=list(ENTRY), join_type="full outer")
    both = both.sort_by([(name, "ascending") for name in ENTRY])
    before, after = pc.is_valid(both[_OLD]), pc.is_valid(both[_NEW])
    # Arrow compares with null as null: such a row is added or removed, and `changed` leaves it out below.
    differs = pc.fill_null(pc.not_equal(both[_OLD], both[_NEW]), True)
    changed = both.filter(pc.and_(pc.and_(before, after), differs))
    added, removed = both.filter(pc.invert(before)), both.filter(pc.invert(after))
    return Difference(added, changed, removed, both.num_rows - sum(map(len, (changed, added, removed))))


def _values(rows: pa.Table, name: str) -> pa.Table:
    """Return the live entries, each with its value in the column `name`."""
    # `consumed` has no column where nothing was emitted, and a join needs them.
    if not rows.num_columns:
        columns = dict.fromkeys(ENTRY[1:], pa.int64())
        return pa.schema([(ENTRY[0], pa.string()), *columns.items(), (name, pa.string())]).empty_table()
    rows = live(rows).select([*ENTRY, TEXT])
    return rows.rename_columns([*ENTRY, name])


@dataclass(frozen=True)
class SinkDifference:
    """The differences between what a sink would contain of two generations.

    Args:
        emissions: Reason -> number of emissions, of the old and of the new generation.
    """

    sink: str
    entries: Difference
    emissions: tuple[Mapping[str, int], Mapping[str, int]]

    @property
    def counts(self) -> dict[str, int]:
        """The number of keys (and windows) that are the same, changed, added and removed."""
        entries = self.entries
        return {
            "same": entries.same,
            "changed": entries.changed.num_rows,
            "added": entries.added.num_rows,
            "removed": entries.removed.num_rows,
        }

    def examples(self, most: int) -> list[dict[str, Any]]:
        """Return at most `most` rows, with some of each kind."""
        entries = self.entries
        kinds = {"changed": entries.changed, "added": entries.added, "removed": entries.removed}
        rows = [
            {"difference": kind} | row
            for kind, table in kinds.items()
            for row in table.slice(0, most).to_pylist()
        ]
        for row in rows:
            for name in WINDOW:
                if row[name] == NO_WINDOW:
                    del row[name]
        return sorted(rows[:most], key=lambda row: len(row), reverse=True)


@dataclass(frozen=True)
class GenerationDifference:
    """The differences between two generations, up to the last batches after which both have read the same
    records.
    """

    old: Stream
    new: Stream
    old_seq: int
    new_seq: int
    sinks: tuple[SinkDifference, ...]

    @property
    def sides(self) -> str:
        """The two sides of the comparison, for people."""
        return f"{self.new} after batch {self.new_seq} against {self.old} after batch {self.old_seq}"


def compare_generations(app: App, old: Stream, new: Stream) -> GenerationDifference:
    """Compare what both generations have sent, or would have. Raises Halted if they have no point in
    common.
    """
    old_seq, new_seq = common_point(app, old, new)
    # A sink that only one of them has is compared, too: consumers gain or lose all of it.
    stages = {**_stages_of_sinks(app, old), **_stages_of_sinks(app, new)}
    sides = (old, old_seq), (new, new_seq)
    sinks = tuple(_compared(app, sink, stage, *sides) for sink, stage in stages.items())
    return GenerationDifference(old, new, old_seq, new_seq, sinks)


def _compared(app: App, sink: str, stage: Stage, *sides: tuple[Stream, int]) -> SinkDifference:
    old, new = (own_feeds(app, stream, sink, seq) for stream, seq in sides)
    reasons = emissions_by_reason(app, old), emissions_by_reason(app, new)
    if stage.emits_facts:
        added, removed = different_events(app, old, new)
        same = sum(reasons[1].values()) - added.num_rows
        none = added.slice(0, 0)
        return SinkDifference(sink, Difference(added, none, removed, same), reasons)
    return SinkDifference(sink, difference(consumed(app, old), consumed(app, new)), reasons)


def _stages_of_sinks(app: App, stream: Stream) -> dict[str, Stage]:
    """Return sink -> the stage that it reads. Raises Halted if the generation has no batch."""
    plan = app.ledger.plan(stream, app.ledger.head(stream).seq)
    if plan is None:
        raise Halted(f"{stream} has no batch yet", "Run it first.")
    pipeline = planned_pipeline(plan)
    return {sink.name: pipeline.stage_of(sink) for sink in pipeline.sinks}
