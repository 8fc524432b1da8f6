"""How the grammar reads durations: `10m` in a file is a number of milliseconds in the model."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from tidegate.kernel.windows import parse_duration
from tidegate.spec.mistakes import mistake, shown

_LONGEST_MS = 2**45
_FIX = "Write a whole number and a unit: `15ms`, `30s`, `10m`, `1h` or `2d`."


def _read(written: Any) -> int:
    milliseconds = parse_duration(written) if isinstance(written, str) else None
    if milliseconds is None:
        raise mistake(f"{shown(written)} is not a duration", _FIX)
    if milliseconds > _LONGEST_MS:
        raise mistake(f"{written} is too long", "Write less than a thousand years.")
    return milliseconds


def _positive(milliseconds: int) -> int:
    if milliseconds == 0:
        raise mistake("it has no length", _FIX)
    return milliseconds


_WRITTEN = WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,15}(ms|s|m|h|d)$"})

Grace = Annotated[int, BeforeValidator(_read), _WRITTEN]
"""Milliseconds, 0 or more."""
Duration = Annotated[int, BeforeValidator(_read), AfterValidator(_positive), _WRITTEN]
"""Milliseconds, more than 0."""
