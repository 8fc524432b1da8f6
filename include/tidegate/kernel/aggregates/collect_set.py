"""`collect_set(x)`: each argument once, in the order in which each came first."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable
from typing import Any

from tidegate.kernel.aggregates.collect_list import list_type
from tidegate.kernel.aggregates.function import Function
from tidegate.kernel.equality import identity

Distinct = dict[Hashable, Any]
"""Values by their identity, in the order in which each came first."""


def _add(accumulator: Distinct, value: Any) -> Distinct:
    # a dict keeps the order of insertion, and the first of equal values
    accumulator.setdefault(identity(value), value)
    return accumulator


def _distinct(values: Iterable[Any]) -> Distinct:
    return functools.reduce(_add, values, {})


def _values(accumulator: Distinct) -> list[Any]:
    return list(accumulator.values())


FUNCTION = Function(
    fold=_add,
    merge=lambda older, newer: functools.reduce(_add, newer.values(), dict(older)),
    accumulator_type=list_type,
    result_type=list_type,
    start=dict,
    finish=_values,
    dump=_values,
    load=_distinct,
    repeats=False,
)
