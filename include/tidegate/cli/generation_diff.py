"""The command `generation diff`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidegate.app import App
from tidegate.cli.generations import name_of
from tidegate.cli.show import show
from tidegate.generations import GenerationDifference, SinkDifference, compare_generations, require_generation
from tidegate.ledger import Stream


def diff(pipeline: str, generation: int, against: int | None, examples: int, as_json: bool) -> None:
    """Show what would change for consumers if GENERATION of PIPELINE took charge.

    Args:
        against: The generation to compare with; None for the one in charge.
        examples: The number of keys to show per sink.
    """
    app = App.for_reading()
    new = Stream(name_of(app, pipeline), generation)
    old = Stream(new.pipeline, against or app.ledger.charge(new.pipeline).generation or 0)
    for stream in (old, new):
        require_generation(app, stream)
    comparison = compare_generations(app, old, new)
    if as_json:
        print(json.dumps(_difference(comparison, examples), ensure_ascii=False))
        return
    title = f"{comparison.sides}: what both have read"
    show([_summary(sink) for sink in comparison.sinks], False, title)
    for sink in comparison.sinks:
        show(sink.examples(examples), False, sink.sink, empty=f"{sink.sink}: no difference.")


def _difference(comparison: GenerationDifference, examples: int) -> dict[str, Any]:
    sinks = [
        {
            **{name: value for name, value in _summary(sink).items() if not name.startswith("emissions")},
            "emissions": {"old": dict(sink.emissions[0]), "new": dict(sink.emissions[1])},
            "examples": sink.examples(examples),
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


def _summary(sink: SinkDifference) -> dict[str, Any]:
    old, new = sink.emissions
    return {
        "sink": sink.sink,
        **sink.counts,
        "emissions, old": _by_reason(old),
        "emissions, new": _by_reason(new),
    }


def _by_reason(emissions: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {reason}" for reason, number in emissions.items()) or "none"
