"""Equivalences that random stages name as `python: "module:function"`, and SQL as Spark reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.kernel.model.values import is_nan


def same_parity(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether all numbers are odd, or even, in both; nulls and NaN count as odd."""
    return _parities(old) == _parities(new)


def _parities(value: Mapping[str, Any]) -> list[bool]:
    numbers = [number for number in value.values() if number is None or isinstance(number, (int, float))]
    return [number is not None and not is_nan(number) and number % 2 == 0 for number in numbers]


def below(column: str, limit: float) -> Callable[[Mapping[str, Any]], bool | None]:
    """`column < limit`: null for null; NaN is larger than any number."""

    def passes(row: Mapping[str, Any]) -> bool | None:
        return None if row[column] is None else not is_nan(row[column]) and row[column] < limit

    return passes


def not_above(column: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], bool | None]:
    """`new.column <= old.column`: null for null; NaN is larger than any number, and equal to itself."""

    def holds(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool | None:
        left, right = new[column], old[column]
        if left is None or right is None:
            return None
        return is_nan(right) or (not is_nan(left) and left <= right)

    return holds
