"""`last(x)`."""

from __future__ import annotations

from typing import Any

from tidegate.kernel.aggregates.function import Function, either, same_type


def _last(accumulator: Any, value: Any) -> Any:
    return value


FUNCTION = Function(_last, either(_last), same_type, same_type, takes_back="never")
