"""generation diff."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidegate import inspect, protocol
from tidegate.app import App
from tidegate.cli.generations import name_of
from tidegate.cli.show import show
from tidegate.lake.outbox import WINDOW
from tidegate.ledger import Stream


def diff(pipeline: str, generation: int, against: int | None, examples: int, as_json: bool) -> None:
    """Show what would change for consumers if GENERATION of PIPELINE took charge."""
    app = App.for_reading()
    new = Stream(name_of(app, pipeline), generation)
    old = Stream(new.pipeline, against or app.ledger.charge(new.pipeline).generation or 0)
    for stream in (old, new):
        protocol.require_generation(app, stream)
    comparison = inspect.compare_generations(app, old, new)
    if as_json:
        print(json.dumps(_difference(comparison, examples), ensure_ascii=False))
        return
    sides = f"{new} after batch {comparison.new_seq} against {old} after batch {comparison.old_seq}"
    title = f"{sides}: what both have read"
    show([_summary(sink) for sink in comparison.sinks], False, title)
    for sink in comparison.sinks:
        show(_examples(sink.entries, examples), False, sink.sink, empty=f"{sink.sink}: no difference.")


def _difference(comparison: inspect.GenerationDifference, examples: int) -> dict[str, Any]:
    sinks = [
        {
            **{name: value for name, value in _summary(sink).items() if not name.startswith("emissions")},
            "emissions": {"old": dict(sink.emissions[0]), "new": dict(sink.emissions[1])},
            "examples": _examples(sink.entries, examples),
        }
        for sink in comparison.sinks
    ]
    batches = {"old": comparison.old_seq, "new": comparison.new_seq}
    return {
        "old": comparison.old.generation,
        "new": comparison.new.generation,
        "batches": batches,
        "sinks": sinks,
    }


def _summary(sink: inspect.SinkDifference) -> dict[str, Any]:
    old, new = sink.emissions
    entries = sink.entries
    return {
        "sink": sink.sink,
        "same": entries.same,
        "changed": entries.changed.num_rows,
        "added": entries.added.num_rows,
        "removed": entries.removed.num_rows,
        "emissions, old": _by_reason(old),
        "emissions, new": _by_reason(new),
    }


def _by_reason(emissions: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {reason}" for reason, number in emissions.items()) or "none"


def _examples(entries: inspect.Difference, most: int) -> list[dict[str, Any]]:
    """Some of each kind, as far as they go."""
    kinds = {"changed": entries.changed, "added": entries.added, "removed": entries.removed}
    rows = [
        {"difference": kind} | row
        for kind, table in kinds.items()
        for row in table.slice(0, most).to_pylist()
    ]
    for row in rows:
        for name in WINDOW:
            if row[name] == inspect.NO_WINDOW:
                del row[name]
    return sorted(rows[:most], key=lambda row: len(row), reverse=True)
