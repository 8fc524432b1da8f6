"""Compute what would change for consumers if another generation took charge.

Nothing replaces an event, a pair of a join or a late record: consumers have each of them for good. So these
are compared event by event, and net differences can only add what consumers lack. Other emissions are
compared by the newest one of each entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.root import App
from tidegate.errors import Halted, SettingsInvalid
from tidegate.generations.outputs import (
    CONSUMED,
    ENTRY,
    NO_WINDOW,
    TEXT,
    Feed,
    all_consumed,
    all_emissions,
    consumed,
    emissions_by_reason,
    live,
    own_feeds,
)
from tidegate.ledger import Head, Offsets, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.stage import Stage
from tidegate.storage.schema import KEY, TIMESTAMP, WINDOW

_OLD, _NEW = "old", "new"
_SAME = (*ENTRY, TIMESTAMP, TEXT)
"""Two events are the same if these are equal."""


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


def behind_common_beginning(old: Sequence[Feed], new: Sequence[Feed]) -> tuple[list[Feed], list[Feed]]:
    """Return the feeds without the batches with which both begin.

    A generation that began with the state of another one has all of its earlier batches.
    """
    for number, (before, after) in enumerate(zip(old, new, strict=False)):
        if not _begin_alike(before, after):
            return [*old[number:]], [*new[number:]]
        if before.seqs != after.seqs:
            end = min(before.seqs.stop, after.seqs.stop)
            return [*_from(before, end), *old[number + 1 :]], [*_from(after, end), *new[number + 1 :]]
    shared = min(len(old), len(new))
    return [*old[shared:]], [*new[shared:]]


def _from(feed: Feed, seq: int) -> Iterator[Feed]:
    if feed.seqs.stop > seq:
        yield replace(feed, seqs=range(seq, feed.seqs.stop))


def _begin_alike(before: Feed, after: Feed) -> bool:
    return (before.stream, before.stage, before.seqs.start) == (after.stream, after.stage, after.seqs.start)


def unmatched(old: pa.Table, new: pa.Table) -> tuple[list[int], list[int]]:
    """Return the numbers of the rows of each table that have no equal row in the other one.

    Example: if `old` has an event once and `new` has it three times, the last two of these rows.
    """
    return list(_without_equal(new, old)), list(_without_equal(old, new))


def _without_equal(compared: pa.Table, rows: pa.Table) -> Iterator[int]:
    """Yield the numbers of the rows that have no equal row in `compared`."""
    matches = Counter(_identities(compared))
    for number, identity in enumerate(_identities(rows)):
        if matches[identity]:
            matches[identity] -= 1
        else:
            yield number


def _identities(rows: pa.Table) -> Iterator[tuple[object, ...]]:
    if not rows.num_columns:  # nothing was emitted
        return iter(())
    return zip(*(rows[name].to_pylist() for name in _SAME), strict=True)


def different_events(app: App, old: Sequence[Feed], new: Sequence[Feed]) -> tuple[pa.Table, pa.Table]:
    """Return the events that only `new` has, and those that only `old` has, with the columns of ENTRY, `old`
    and `new`, the values as JSON text.
    """
    before, after = (all_consumed(app, feeds) for feeds in behind_common_beginning(old, new))
    removed, added = unmatched(before, after)
    return _event_values(after, added, "new", "old"), _event_values(before, removed, "old", "new")


def _event_values(rows: pa.Table, numbers: list[int], side: str, other: str) -> pa.Table:
    if not rows.num_columns:
        rows = CONSUMED.empty_table()
    taken = rows.take(pa.array(numbers, pa.int64()))
    columns = {name: taken[name] for name in ENTRY} | {side: taken[TEXT]}
    return pa.table(columns).append_column(other, pa.nulls(len(numbers), pa.string()))


def lacking_events(app: App, stage: Stage, old: Sequence[Feed], new: Sequence[Feed]) -> pa.Table:
    """Return the events of the feeds `new` that consumers of the feeds `old` lack, in their order, with all
    columns.

    A table without columns if nothing was emitted where they differ. Raises SettingsInvalid if consumers have
    an event that `new` lacks.
    """
    old, new = behind_common_beginning(old, new)
    had, events = all_consumed(app, old), all_emissions(app, new)
    surplus, lacking = unmatched(had, events)
    if surplus:
        key = had[KEY][surplus[0]].as_py()
        raise SettingsInvalid(
            f"What the stage {stage.name} has sent are events, which nothing takes back: {len(surplus)} of "
            f"them are not in the new generation, such as one of the key {key}",
            "Promote it without --net, and let consumers begin anew; or leave out the sink of this stage.",
        )
    return events.take(pa.array(lacking, pa.int64())) if events.num_columns else events


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
