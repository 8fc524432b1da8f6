"""`tidegate explain`: show why a key was emitted, or not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.options import as_json, generation, open_stream, pipeline_argument
from tidegate.cli.output import iso_instant, out, show, steps_shown
from tidegate.errors import SettingsInvalid

if TYPE_CHECKING:
    from tidegate.inspect.explain import Explanation
    from tidegate.ledger import OffsetRange
    from tidegate.spark.explain import TraceEvent

# The fates and reasons that do not come from a strategy, in words.
_WHY = {
    "removed": "dropped: `filter` does not let it reach the state",
    "filtered": "not emitted: `where` does not let it through",
    "refused": "not emitted: it breaks an expectation (`tidegate quarantine list` has the value)",
    "held": "not emitted yet: held back",
    "repeated": "dropped: was applied before",
    "late": "too late: its window is over, or what it may repeat or undo is forgotten",
    "quarantined": "put aside: the stage cannot use it (`tidegate quarantine list` has the reason)",
    "retracted": "taken back: the group has it as it is now",
    "ignored": "dropped: it has no value to add",
    "emit_early": "the buffer was full",
    "drained": "drained by hand",
    "merged": "taken back: its session is part of a longer one now",
}
_WHAT = {"record": "came in", "emission": "went out", "refused": "was refused", "quarantined": "quarantined"}

_OTHERWISE = {"quarantined": "not usable", "refused": "in quarantine: it breaks these expectations"}


@click.command()
@pipeline_argument
@click.argument("key")
@click.option("--batch", type=int, help="This batch; default: the newest.")
@click.option(
    "--offsets", metavar="TOPIC/PARTITION/START-END", help="The batches that read these; END excluded."
)
@click.option("--stage", help="Only this stage; default: each one.")
@generation
@as_json
def explain(
    pipeline: str,
    key: str,
    batch: int | None,
    offsets: str | None,
    stage: str | None,
    generation: int | None,
    as_json: bool,
) -> None:
    """Tell why KEY of PIPELINE was emitted, or not: what came in, what was known, and what went out.

    The batch is decided again from what it read and what it started from; nothing is written.
    """
    if batch is not None and offsets is not None:
        raise SettingsInvalid("--batch and --offsets both choose batches", "Give only one of them.")
    from tidegate.cli.master import spark_master
    from tidegate.inspect.explain import explain as explain_key
    from tidegate.spark.session import open_session

    app, stream = open_stream(pipeline, generation)
    settings, master = app.settings, spark_master(app.settings)
    with steps_shown(quiet=as_json) as progress:
        progress("deciding again")
        explanations = explain_key(
            app,
            stream,
            key,
            lambda records: open_session(master, settings.spark_memory, records=records),
            batch,
            _parse_offsets(offsets),
            stage,
        )
    if as_json:
        print(json.dumps([_as_object(explanation) for explanation in explanations], ensure_ascii=False))
        return
    for explanation in explanations:
        _show(explanation)


def _parse_offsets(text: str | None) -> OffsetRange | None:
    """Parse `topic/0/17-20` (20 excluded) or `topic/0/17`."""
    from tidegate.ledger import OffsetRange

    if text is None:
        return None
    topic, _, rest = text.partition("/")
    partition, _, span = rest.partition("/")
    first, dash, end = span.partition("-")
    numbers = (partition, first, end) if dash else (partition, first)
    if not topic or not all(number.isdecimal() for number in numbers):
        raise SettingsInvalid(
            f"--offsets {text} cannot be read", "Write TOPIC/PARTITION/START-END, such as stock/0/17-20."
        )
    start = int(first)
    offsets = OffsetRange(topic, int(partition), start, int(end) if dash else start + 1)
    if not offsets.span > 0:
        raise SettingsInvalid(
            f"--offsets {text} holds no offset", "END is excluded: write 17-18, or 17, for one."
        )
    return offsets


def _as_object(explanation: Explanation) -> dict[str, Any]:
    return {
        "batch": explanation.plan.seq,
        "key": explanation.key,
        "changed_in": list(explanation.changed),
        "events": [_event_object(event) for event in explanation.events],
    }


def _event_object(event: TraceEvent) -> dict[str, Any]:
    return {
        "stage": event.stage,
        "what": event.what,
        "source": "/".join(map(str, event.source)),
        "timestamp": event.timestamp,
        "at": event.at,
        "value": event.value,
        "known": list(event.previous),
        "window": event.window,
        "fate": event.fate,
        "why": _meaning(event.fate),
    }


def _show(explanation: Explanation) -> None:
    plan = explanation.plan
    title = f"Batch {plan.seq} of {plan.stream}, key {explanation.key}"
    show(_rows(explanation.events), False, title, f"{title}: no record of it came in, and nothing went out.")
    if explanation.changed:
        out.print(f"Batches that changed its state: {_some(explanation.changed)}.", highlight=False)


def _some(batches: Sequence[int]) -> str:
    newest = ", ".join(map(str, batches[-10:]))
    return newest if len(batches) <= 10 else f"{newest}, and {len(batches) - 10} before them"


def _rows(events: Sequence[TraceEvent]) -> list[dict[str, Any]]:
    stages = {event.stage for event in events}
    return [
        {
            **({"stage": event.stage} if len(stages) > 1 else {}),
            "": _WHAT[event.what],
            "position": "/".join(map(str, event.source)),
            "timestamp": event.timestamp,
            "value": event.value,
            "was known": _known_entries(event) if event.what == "record" and event.fate != "removed" else "",
            "decision": event.fate,
            "which means": _meaning(event.fate) or _OTHERWISE.get(event.what, ""),
        }
        for event in events
    ]


def _meaning(fate: str) -> str | None:
    # imported here: `tidegate explain --help` needs no kernel
    from tidegate.kernel.strategies import REASONS

    return REASONS.get(fate, _WHY.get(fate))


def _known_entries(event: TraceEvent) -> str:
    """Return the state before a record, one entry per line."""
    return "\n".join(_entry_text(dict(entry)) for entry in event.previous) or "nothing"


def _entry_text(entry: dict[str, Any]) -> str:
    parts = []
    if entry.get("window"):
        first, end = entry["window"]
        parts.append(f"window {iso_instant(first)} to {iso_instant(end)}")
    if "emitted" in entry:
        parts.append(f"emitted {json.dumps(entry['emitted'], ensure_ascii=False)}")
    if "held" in entry:
        parts.append(f"{entry['held']} held back")
    if "due" in entry:
        parts.append(f"due {iso_instant(entry['due'])}")
    if "expires" in entry:
        parts.append(f"expires {iso_instant(entry['expires'])}")
    return ", ".join(parts) or "a value that never went out"
