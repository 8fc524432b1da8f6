"""Values: how records fold into one, when two are equal, and how they are written."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from operator import add, sub, truediv
from typing import Any

from tests.kernel.model.grammar import Aggregate, Formula, Settings
from tests.kernel.model.records import Value


@dataclass(frozen=True)
class Folded:
    """A record that is part of an entry's value: what the stage selects of it, and its timestamp."""

    value: Value
    timestamp: int


def selected(settings: Settings, value: Value) -> Value:
    """Return the part of a record that the stage uses: its `select` columns, or each aggregate's argument."""
    if value is None:
        return None
    if settings.reduce == "aggregates":
        return {aggregate.name: _argument(aggregate, value) for aggregate in settings.aggregates}
    if settings.select is None:
        return dict(value)
    return {name: value.get(column) for name, column in settings.select.items()}


def _argument(aggregate: Aggregate, value: Mapping[str, Any]) -> Any:
    return True if aggregate.argument == "*" else value.get(aggregate.argument)


def fold(settings: Settings, folded: Sequence[Folded]) -> Value:
    """The value of the records, from the first one on."""
    if settings.reduce == "latest":
        # Quote: `latest`: the newest record's `select` columns
        return folded[-1].value
    if settings.reduce == "collect":
        # Quote: {"events": [the records' select columns, in order, since the last flush]}
        return {"events": [item.value for item in folded]}
    values = [item.value for item in folded if item.value is not None]
    results = {
        aggregate.name: _AGGREGATES[aggregate.function](
            # Quote: nulls are ignored by all but count(*)
            [value[aggregate.name] for value in values if value[aggregate.name] is not None]
        )
        for aggregate in settings.aggregates
    }
    return {
        name: results[meaning] if isinstance(meaning, str) else _computed(meaning, results)
        for name, meaning in settings.emitted.items()
    }


def _computed(formula: Formula, results: Mapping[str, Any]) -> Any:
    left, right = results[formula.left], results[formula.right]
    return None if left is None or right is None else _OPERATORS[formula.operator](left, right)


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "/": truediv}


def _sum(values: list[Any]) -> Any:
    """Quote: sum -> null if no non-null value"""
    if not values:
        return None
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _least(values: list[Any]) -> Any:
    return min(values, key=_rank) if values else None


def _greatest(values: list[Any]) -> Any:
    return max(values, key=_rank) if values else None


def _rank(value: Any) -> tuple[bool, Any]:
    """NaN comes after every number, as everywhere in Spark."""
    return (True, 0) if is_nan(value) else (False, value)


def _distinct(values: list[Any]) -> list[Any]:
    """Quote: collect_set: distinct non-null values in order of first appearance"""
    distinct: list[Any] = []
    for value in values:
        if not any(same(value, other) for other in distinct):
            distinct.append(value)
    return distinct


_AGGREGATES: dict[str, Callable[[list[Any]], Any]] = {
    "count": len,
    "sum": _sum,
    "min": _least,
    "max": _greatest,
    "avg": lambda values: _sum(values) / len(values) if values else None,
    # Quote: first/last NON-NULL value in order
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "collect_list": list,
    "collect_set": _distinct,
    "bool_and": lambda values: all(values) if values else None,
    "bool_or": lambda values: any(values) if values else None,
    "median": lambda values: float(statistics.median(values)) if values else None,
    "approx_count_distinct": lambda values: len(_distinct(values)),
    "count distinct": lambda values: len(_distinct(values)),
}


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def same(old: Any, new: Any) -> bool:
    """Quote: exact (null-safe, NaN = NaN, 0.0 = -0.0); Equality is by value: a map's order does not count

    A map is a list of pairs, as Arrow gives it; its keys are texts here.
    """
    if is_map(old) and is_map(new):
        return same(dict(old), dict(new))
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(same(old[name], new[name]) for name in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(same, old, new))
    if is_nan(old) or is_nan(new):
        return is_nan(old) and is_nan(new)
    return bool(old == new)


def is_map(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, tuple) for entry in value)


def serialized(value: Any) -> bytes:
    """Quote: compact JSON, UTF-8, nulls included, each map in the order of its keys; NaN is a text"""
    if is_map(value) and value:
        return serialized(dict(sorted(value)))
    if isinstance(value, dict):
        return b"{" + b",".join(serialized(name) + b":" + serialized(value[name]) for name in value) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(serialized, value)) + b"]"
    if isinstance(value, Decimal):
        return str(value).encode()
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps({"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")).encode()
    return json.dumps(value, ensure_ascii=False).encode()


def equivalent(
    settings: Settings, old: Mapping[str, Any], new: Mapping[str, Any], timestamps: tuple[int, int]
) -> bool:
    """Whether `change` takes a new value for the old one; `timestamps` are those of the two emissions."""
    equal = settings.emit.get("equal", "exact")
    if settings.equivalent is not None:
        # Quote: `sql: "<boolean over old.x, new.x>"` · `python: "module:function"`
        return settings.equivalent(old, new) is True
    names = [name for name in new if _compared(settings, name)]
    if equal == "bytes":
        # Quote: the serialized value; with `timestamp: true` the timestamp too
        if settings.emit.get("timestamp") and timestamps[0] != timestamps[1]:
            return False
        return serialized({name: old[name] for name in names}) == serialized(
            {name: new[name] for name in names}
        )
    tolerances = equal["within"] if isinstance(equal, dict) else {}
    return all(
        _near(old[name], new[name], tolerances[name]) if name in tolerances else same(old[name], new[name])
        for name in names
    )


def _compared(settings: Settings, name: str) -> bool:
    """Quote: `columns:`/`ignore:` restrict what is compared"""
    return name in settings.emit.get("columns", [name]) and name not in settings.emit.get("ignore", [])


def _near(old: Any, new: Any, tolerance: Any) -> bool:
    """Quote: |new-old| <= tolerance, percent of |old|; null equals only null, NaN only NaN. Decimals and
    integers are compared exactly, never as floats. A percentage of an infinite value is no tolerance: any
    other value is a change.

    A double has the digits that it is written with.
    """
    if same(old, new):
        return True
    if not (is_finite(old) and is_finite(new)):
        return False
    last, now = Fraction(str(old)), Fraction(str(new))
    if isinstance(tolerance, str):
        return abs(now - last) <= abs(last) * Fraction(tolerance.rstrip("%")) / 100
    return abs(now - last) <= Fraction(str(tolerance))


def is_finite(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))
