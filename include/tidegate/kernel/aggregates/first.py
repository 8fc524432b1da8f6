"""`first(x)`."""

from __future__ import annotations

from typing import Any

from tidegate.kernel.aggregates.function import Function, either, same_type


def _first(accumulator: Any, value: Any) -> Any:
    return value if accumulator is None else accumulator


FUNCTION = Function(_first, either(_first), same_type, same_type, takes_back="never")
