"""When what waits must go out: by a timer, by its size, or because there is no room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.kernel.model.entry import Entry
from tests.kernel.model.grammar import Settings, milliseconds
from tests.kernel.model.records import Value
from tests.kernel.model.values import Folded, fold, serialized
from tests.kernel.model.windows import closes_at


def natural_due(settings: Settings, entry: Entry) -> int | None:
    """Return when the timer of a buffered value would be due if it was set in time, or None without a
    timer.
    """
    if settings.on == "any":
        return min((due for due, _ in trigger_times(settings, entry)), default=None)
    since, after = entry.since, settings.duration("after")
    assert since is not None
    if settings.on == "interval":
        # Quote: at the first multiple of `every` after the timestamp of the key's first value since it
        # was last emitted
        every = settings.duration("every")
        assert every
        return (since // every + 1) * every
    if settings.on == "window_close":
        early: Mapping[str, str] = settings.emit.get("early", {})
        assert entry.window
        if "every" not in early or settings.window is None:
            return None
        # Quote: multiples from the window's start, by the stage's clock; at the window's end + grace only the
        # final value is emitted
        due = _next_multiple(since, entry.window[0], milliseconds(early["every"]))
        return due if due < closes_at(settings.window, entry.window) else None
    if after is None:
        return None
    if settings.emit.get("since") == "last_flush" and entry.last_flush is not None:
        # Quote: or since the key's `last_flush` (never flushed: first event)
        return entry.last_flush + after
    # Quote: `after` the timestamp of the key's first buffered value
    return since + after


def trigger_times(settings: Settings, entry: Entry) -> list[tuple[int, str]]:
    """Return when each trigger of `any` would emit what waits, and its reason; `change` never waits."""
    timed = [trigger for trigger in settings.triggers if trigger.on != "change"]
    times = [(natural_due(trigger, entry), trigger.on) for trigger in timed]
    return [(due, on) for due, on in times if due is not None]


def _next_multiple(after: int, start: int, every: int) -> int:
    return next(at for at in range(start, after + every + 1, every) if at > after)


def reached(settings: Settings, entry: Entry) -> str | None:
    """Quote: `collect` reached `count` (or `max_bytes`)

    Bytes are those of the value that would go out.
    """
    count, max_bytes = settings.emit.get("count"), settings.emit.get("max_bytes")
    if count is not None and entry.pending >= count:
        return "count"
    if max_bytes is not None and _size(fold(settings, entry.folded)) >= max_bytes:
        return "bytes"
    return "until" if settings.until is not None and _is_over(settings, entry) else None


def _is_over(settings: Settings, entry: Entry) -> bool:
    """Quote: the stage collects until the condition is true (for the newest record, which is included)"""
    assert settings.until is not None
    newest = [entry.folded[-1]] if settings.reduce == "collect" else entry.folded
    value = fold(settings, newest)
    row = value["events"][0] if value is not None and settings.reduce == "collect" else value
    return row is not None and settings.until({"n": entry.pending, **row}) is True


def overflows(settings: Settings, folded: Sequence[Folded]) -> bool:
    """Quote: flush before the record that would overflow; one record that is larger alone goes out alone"""
    max_bytes = settings.emit.get("max_bytes")
    if settings.on != "threshold" or max_bytes is None:
        return False
    return _size(fold(settings, folded)) > max_bytes


def over_bound(settings: Settings, waiting: Sequence[Entry]) -> bool:
    """Quote: Bounded buffers hold per topic-partition, count keys (`max_records`) or bytes of key +
    serialized value (`max_bytes`)
    """
    buffer = settings.emit["buffer"]
    if "max_records" in buffer and len(waiting) > buffer["max_records"]:
        return True
    if "max_bytes" not in buffer:
        return False
    sizes = (len(entry.key.encode()) + _size(fold(settings, entry.folded)) for entry in waiting)
    return bool(sum(sizes) > buffer["max_bytes"])


def _size(value: Value) -> int:
    """Bytes of a value as it is serialized; a null has none, as in Kafka."""
    return 0 if value is None else len(serialized(value))
