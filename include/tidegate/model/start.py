"""`source.start`: where the first batch of a pipeline begins."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

from tidegate.model.mistakes import mistake, shown

# The forms that datetime.fromisoformat reads in the same way in every supported Python.
_INSTANT = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{3}(?:\d{3})?)?)?)(?P<zone>Z|[+-]\d\d:\d\d)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_START = "Write `earliest`, `latest`, `2026-01-31T00:00:00Z`, or milliseconds since 1970."


def _read_start(written: Any) -> Any:
    """Read `earliest`, `latest`, epoch milliseconds, or ISO 8601 with a zone, which becomes milliseconds."""
    if isinstance(written, str) and written not in ("earliest", "latest"):
        return _milliseconds(written)
    if isinstance(written, str) or (type(written) is int and 0 <= written < 2**47):
        return written
    raise mistake(f"{shown(written)} is not a place to start", _START)


def _milliseconds(text: str) -> int:
    """Return the milliseconds since 1970 of an ISO 8601 time with a zone. Raises a mistake otherwise."""
    match = _INSTANT.fullmatch(text)
    # Without a zone the start would depend on the machine.
    if match and not match["zone"]:
        raise mistake(f"{text!r} has no time zone", f"Write it with one: `{text}Z`.")
    try:
        instant = datetime.fromisoformat(
            match["time"] + match["zone"].replace("Z", "+00:00") if match else ""
        )
    except ValueError:
        raise mistake(f"{text!r} is not a place to start", _START) from None
    if instant < _EPOCH:
        raise mistake(f"{text!r} is before 1970", _START)
    # Integer arithmetic: `timestamp() * 1000` is a double, and can be off by one.
    return (instant - _EPOCH) // timedelta(milliseconds=1)


Start = Annotated[
    Literal["earliest", "latest"] | int,
    BeforeValidator(_read_start),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["earliest", "latest"]},
                {"type": "integer"},
                {"pattern": r"^\d{4}-\d\d-\d\d[T ]"},
            ]
        }
    ),
]
