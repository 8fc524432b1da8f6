"""What would change for consumers if another generation took charge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidegate.app.root import App
from tidegate.errors import Halted
from tidegate.ledger import Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.protocol.common import common_point
from tidegate.protocol.difference import Difference, difference
from tidegate.protocol.outputs import NO_WINDOW, consumed, emissions_by_reason, own_feeds


@dataclass(frozen=True)
class SinkDifference:
    """What a sink would hold of one generation, and of the other. `emissions`: by reason, of the old and of
    the new one.
    """

    sink: str
    entries: Difference
    emissions: tuple[Mapping[str, int], Mapping[str, int]]


@dataclass(frozen=True)
class GenerationDifference:
    """Of two generations, folded up to the last batches at which both have read the same."""

    old: Stream
    new: Stream
    old_seq: int
    new_seq: int
    sinks: tuple[SinkDifference, ...]


def compare_generations(app: App, old: Stream, new: Stream) -> GenerationDifference:
    """Compare what both have sent, or would have. Raises Halted where they have no point in common."""
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
