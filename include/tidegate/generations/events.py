"""Compare emissions that nothing replaces: events, pairs of a join, late records.

Consumers have each of them for good. So two generations are compared event by event, and net differences can
only add what consumers lack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from tidegate.app.root import App
from tidegate.errors import SettingsInvalid
from tidegate.generations.outputs import CONSUMED, ENTRY, TEXT, Feed, all_consumed, all_emissions
from tidegate.model.stage import Stage
from tidegate.storage.schema import KEY, TIMESTAMP

_SAME = (*ENTRY, TIMESTAMP, TEXT)
"""Two events are the same if these are equal."""


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
    return _values(after, added, "new", "old"), _values(before, removed, "old", "new")


def _values(rows: pa.Table, numbers: list[int], side: str, other: str) -> pa.Table:
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
