"""A first case for a new pipeline: a few records of one key, and what they make it emit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tidegate.scaffold.draft import Draft
from tidegate.scaffold.flow import flow

_RECORD_KEY = "k1"
# Two different values of each type whose values have exactly one spelling in JSON and in a key's text.
_VALUES: dict[str, tuple[Any, Any]] = {
    "string": ("a", "b"),
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), (1, 2)),
    **dict.fromkeys(("double", "float"), (0.5, 1.5)),
    "boolean": (True, False),
    "date": ("2026-01-31", "2026-02-01"),
}
# Values of the other types that a key can have. Their texts in a key can differ from what a person writes.
_KEY_VALUES = {"timestamp": "2026-01-31T10:30:00Z", "timestamp_ntz": "2026-01-31T10:30:00", "decimal": 1}
_TEXT = """\
# Run it with `tidegate test`. If you change the pipeline, change what the case expects; add cases for what
# matters.
cases:
  - name: {name}
    pipeline: ../../{pipeline}.yaml
    input:
{input}    expect:
{expected}"""
_NAMES = {
    "change": "an unchanged value is not emitted again",
    "threshold": "buffered records are emitted together after a minute",
    "time_limit": "the newest value is emitted after 30 seconds",
    "window_close": "the count of an hour is emitted ten minutes after its end",
}
_TIMES_MS = {"change": (1000, 2000, 3000), "window_close": (60_000, 120_000)}
_TICKS_MS = {"threshold": 61_000, "time_limit": 31_000, "window_close": 4_200_000}


def case_text(draft: Draft) -> str:
    """Return the text of a case file that the new pipeline passes."""
    return _TEXT.format(
        name=_NAMES[draft.way],
        pipeline=draft.name,
        input="".join(f"      - {flow(step)}\n" for step in _input(draft)),
        expected="".join(f"      {line}\n" for line in _expected(draft)),
    )


def _input(draft: Draft) -> Iterator[dict[str, Any]]:
    """Yield the case's records, and a tick if the way to emit depends on time."""
    for record, timestamp_ms in _records(draft):
        key = {} if draft.key else {"key": _RECORD_KEY}
        yield {**key, "value": record, "timestamp": timestamp_ms}
    if draft.way in _TICKS_MS:
        yield {"tick": _TICKS_MS[draft.way]}


def _records(draft: Draft) -> list[tuple[dict[str, Any], int]]:
    first, second = _record(draft, 0), _record(draft, 1)
    records = [first, first, second] if draft.way == "change" else [first, second]
    return list(zip(records, _TIMES_MS.get(draft.way, (1000, 2000)), strict=True))


def _record(draft: Draft, variant: int) -> dict[str, Any]:
    """Return a record of the case's key. `variant`: 0 or 1, which of two values its columns beside the key
    have.

    A column whose values have several spellings is left out, so that the expected text is certain.
    """
    values = {}
    for column in draft.source_columns:
        kind, is_key = draft.kind_of(column.name), column.name in draft.key
        if kind in _VALUES:
            values[column.name] = _VALUES[kind][0 if is_key else variant]
        elif is_key:
            values[column.name] = _KEY_VALUES[kind]
    return values


def _expected(draft: Draft) -> Iterator[str]:
    if any(draft.kind_of(name) not in _VALUES for name in draft.key):
        yield "# Run `tidegate simulate` to see the text of this key and what is emitted for it."
        yield "quarantined: 0"
        return
    emissions = list(_emissions(draft))
    yield "emissions:"
    yield f"  {flow(_key(draft))}:"
    yield from (f"    - {flow(emission)}" for emission in emissions)
    if draft.way == "change":
        yield f"suppressed: {3 - len(emissions)}"


def _emissions(draft: Draft) -> Iterator[dict[str, Any]]:
    (first, begin_ms), *_, (last, end_ms) = _records(draft)
    if draft.way == "change":
        yield {"value": _emitted(draft, first), "timestamp": begin_ms}
        if _emitted(draft, first) != _emitted(draft, last):
            yield {"value": _emitted(draft, last), "timestamp": end_ms}
    elif draft.way == "threshold":
        events = [_emitted(draft, record) for record in (first, last)]
        yield {"value": {"events": events}, "timestamp": end_ms}
    elif draft.way == "time_limit":
        yield {"value": _emitted(draft, last), "timestamp": end_ms}
    else:
        yield {"value": {"n": 2}, "timestamp": end_ms, "window": [0, 3_600_000]}


def _emitted(draft: Draft, record: dict[str, Any]) -> dict[str, Any]:
    return {name: record.get(column.name) for name, column in draft.emitted.items()}


def _key(draft: Draft) -> str:
    """Return the key's text: the value of a single column, or a compact JSON object of several columns."""
    if not draft.key:
        return _RECORD_KEY
    record = _record(draft, 0)
    values = {name: record[name] for name in draft.key}
    if len(values) > 1:
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    (value,) = values.values()
    return value if isinstance(value, str) else json.dumps(value)
