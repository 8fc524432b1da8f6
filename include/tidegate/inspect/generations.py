"""Compute what would change for consumers if another generation took charge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.app.root import App
from tidegate.batch.common import common_point
from tidegate.batch.difference import Difference, difference
from tidegate.batch.outputs import NO_WINDOW, consumed, emissions_by_reason, own_feeds
from tidegate.errors import Halted
from tidegate.lake.outbox import WINDOW
from tidegate.ledger import Stream
from tidegate.ledger.planned import planned_pipeline


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
    names = dict.fromkeys([*_sinks(app, old), *_sinks(app, new)])
    return GenerationDifference(
        old,
        new,
        old_seq,
        new_seq,
        tuple(_compared(app, name, (old, old_seq), (new, new_seq)) for name in names),
    )


def _compared(app: App, sink: str, *sides: tuple[Stream, int]) -> SinkDifference:
    old, new = (own_feeds(app, stream, sink, seq) for stream, seq in sides)
    entries = difference(consumed(app, old), consumed(app, new))
    return SinkDifference(sink, entries, (emissions_by_reason(app, old), emissions_by_reason(app, new)))


def _sinks(app: App, stream: Stream) -> Iterator[str]:
    plan = app.ledger.plan(stream, app.ledger.head(stream).seq)
    if plan is None:
        raise Halted(f"{stream} has no batch yet", "Run it first.")
    yield from (sink.name for sink in planned_pipeline(plan).sinks)


__all__ = ["NO_WINDOW", "Difference", "GenerationDifference", "SinkDifference", "compare_generations"]
