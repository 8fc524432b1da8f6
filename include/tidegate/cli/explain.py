"""explain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from tidegate.cli.show import out, show, steps_shown
from tidegate.errors import SettingsInvalid
from tidegate.inspect.explain import Explanation
from tidegate.inspect.explain import explain as explain_key
from tidegate.ledger import OffsetRange

if TYPE_CHECKING:
    from tidegate.engine.explain import TraceEvent

# What became of a record, or why something went out, in words.
_WHY = {
    "new": "the key's first value, or its first after a deletion",
    "changed": "differs from what last went out",
    "deleted": "a record without a value deletes the key",
    "heartbeat": "unchanged, but the last emission is a heartbeat ago",
    "suppressed": "not emitted: the same as what last went out",
    "filtered": "not emitted: `where` does not let it through",
    "held": "not emitted yet: held back",
    "repeated": "dropped: was applied before",
    "late": "dropped: its window is over",
    "quarantined": "put aside: the stage cannot use it (`tidegate quarantine` has the reason)",
    "ignored": "dropped: it has no value to add",
    "count": "enough records were held back",
    "bytes": "enough bytes were held back",
    "elapsed": "the time since the first record, or the last flush, has passed",
    "time_limit": "the time limit of what was held back has passed",
    "interval": "the interval is over",
    "window_close": "the window is over",
    "emit_early": "the buffer was full",
    "drained": "drained by hand",
    "merged": "taken back: its session is part of a longer one now",
}
_WHAT = {"record": "came in", "emission": "went out", "quarantined": "quarantined"}


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
        raise SettingsInvalid("--batch and --offsets say the same thing twice", "Give one of them.")
    from tidegate.cli.reading import open_stream
    from tidegate.engine.session import open_session

    app, stream = open_stream(pipeline, generation)
    settings = app.settings
    with steps_shown(quiet=as_json) as progress:
        progress("deciding again")
        found = explain_key(
            app,
            stream,
            key,
            lambda: open_session(settings.spark_master, settings.spark_memory),
            batch,
            _parse_offsets(offsets),
            stage,
        )
    if as_json:
        print(json.dumps([_as_object(each) for each in found], ensure_ascii=False))
        return
    for each in found:
        _show(each)


def _parse_offsets(text: str | None) -> OffsetRange | None:
    """`topic/0/17-20` (20 excluded) or `topic/0/17`."""
    if text is None:
        return None
    topic, _, rest = text.partition("/")
    partition, _, span = rest.partition("/")
    first, dash, end = span.partition("-")
    numbers = (partition, first, end) if dash else (partition, first)
    if not topic or not all(each.isdecimal() for each in numbers):
        raise SettingsInvalid(
            f"--offsets {text} cannot be read", "Write TOPIC/PARTITION/START-END, such as stock/0/17-20."
        )
    start = int(first)
    made = OffsetRange(topic, int(partition), start, int(end) if dash else start + 1)
    if not made.span > 0:
        raise SettingsInvalid(
            f"--offsets {text} holds no offset", "END is excluded: write 17-18, or 17, for one."
        )
    return made


def _as_object(each: Explanation) -> dict[str, Any]:
    return {
        "batch": each.plan.seq,
        "key": each.key,
        "changed_in": list(each.changed),
        "events": [_event_object(event) for event in each.events],
    }


def _event_object(event: TraceEvent) -> dict[str, Any]:
    return {
        "stage": event.stage,
        "what": event.what,
        "source": "/".join(map(str, event.source)),
        "timestamp": event.timestamp,
        "at": event.at,
        "value": event.value,
        "known": list(event.known),
        "window": event.window,
        "fate": event.fate,
        "why": _WHY.get(event.fate),
    }


def _show(each: Explanation) -> None:
    plan = each.plan
    title = f"Batch {plan.seq} of {plan.stream}, key {each.key}"
    show(_rows(each.events), False, title, f"{title}: no record of it came in, and nothing went out.")
    if each.changed:
        out.print(f"Batches that changed its state: {_some(each.changed)}.", highlight=False)


def _some(batches: Sequence[int]) -> str:
    newest = ", ".join(map(str, batches[-10:]))
    return newest if len(batches) <= 10 else f"{newest}, and {len(batches) - 10} before them"


def _rows(events: Sequence[TraceEvent]) -> list[dict[str, Any]]:
    stages = {each.stage for each in events}
    return [
        {
            **({"stage": each.stage} if len(stages) > 1 else {}),
            "": _WHAT[each.what],
            "position": "/".join(map(str, each.source)),
            "timestamp": _instant(each.timestamp),
            "value": each.value,
            "was known": _known(each) if each.what == "record" else "",
            "decision": each.fate,
            "which means": _WHY.get(each.fate, "not usable" if each.what == "quarantined" else ""),
        }
        for each in events
    ]


def _known(event: TraceEvent) -> str:
    """The state before a record, an entry a line."""
    return "\n".join(_entry(dict(entry)) for entry in event.known) or "nothing"


def _entry(known: dict[str, Any]) -> str:
    parts = []
    if known.get("window"):
        first, end = known["window"]
        parts.append(f"window {_instant(first)} to {_instant(end)}")
    if "emitted" in known:
        parts.append(f"emitted {json.dumps(known['emitted'], ensure_ascii=False)}")
    if "held" in known:
        parts.append(f"{known['held']} held back")
    if "due" in known:
        parts.append(f"due {_instant(known['due'])}")
    return ", ".join(parts) or "a value that never went out"


def _instant(epoch_ms: int | None) -> str | None:
    if epoch_ms is None:
        return None
    try:
        instant = datetime.fromtimestamp(epoch_ms / 1000, tz=timezone.utc)
    except (ValueError, OverflowError):
        return str(epoch_ms)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
