"""Expectations about rows, each with the meaning that it has for the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.kernel.model.grammar import Condition
from tests.kernel.model.values import is_nan


@dataclass(frozen=True)
class Expected:
    """An expectation by its name in Great Expectations, and what it means: `meaning(row)`."""

    type: str
    columns: tuple[str, ...]
    meaning: Condition
    options: Mapping[str, Any] = field(default_factory=dict)


def all_of(expectations: Sequence[Expected]) -> Condition:
    """Whether a row breaks none of them."""
    return lambda row: all(expected.meaning(row) for expected in expectations)


def _absent(value: Any) -> bool:
    """Return whether a value is null as in pandas, where NaN is null."""
    return value is None or is_nan(value)


def not_null(column: str) -> Expected:
    name = "expect_column_values_to_not_be_null"
    return Expected(name, (column,), lambda row: not _absent(row[column]))


def at_least(column: str, limit: int) -> Expected:
    """A null is ignored, by this as by all but those about nulls."""

    def meaning(row: Mapping[str, Any]) -> bool:
        return _absent(row[column]) or bool(row[column] >= limit)

    return Expected("expect_column_values_to_be_between", (column,), meaning, {"min_value": limit})


def none_of(column: str, texts: tuple[str, ...]) -> Expected:
    name = "expect_column_values_to_not_be_in_set"
    return Expected(name, (column,), lambda row: row[column] not in texts, {"value_set": texts})


def greater(left: str, right: str) -> Expected:
    """Both missing: ignored. One: it is not greater."""

    def meaning(row: Mapping[str, Any]) -> bool:
        absent = [_absent(row[left]), _absent(row[right])]
        return all(absent) or (not any(absent) and bool(row[left] > row[right]))

    return Expected("expect_column_pair_values_a_to_be_greater_than_b", (left, right), meaning)
