"""`variance(x)`: the sample variance, a double, null of fewer than two arguments.

The accumulator has the number of arguments, their mean, and the sum of the squares of their distances from
it, which Spark updates by the same formulas: the result does not suffer from large numbers that differ
little.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from tidegate.kernel.aggregates.function import Function


class Moments(NamedTuple):
    """The number of arguments, their mean, and the sum of the squares of their distances from it."""

    number: int = 0
    mean: float = 0.0
    squares: float = 0.0


def add(moments: Moments, value: Any) -> Moments:
    number = moments.number + 1
    distance = float(value) - moments.mean
    step = distance / number
    return Moments(number, moments.mean + step, moments.squares + distance * (distance - step))


def merged(older: Moments, newer: Moments) -> Moments:
    number = older.number + newer.number
    if not older.number or not newer.number:
        return older if older.number else newer
    distance = newer.mean - older.mean
    step = distance / number
    squares = older.squares + newer.squares + distance * step * older.number * newer.number
    return Moments(number, older.mean + step * newer.number, squares)


def variance(moments: Moments) -> float | None:
    """Return the sample variance; None of fewer than two arguments.

    Example: of 1, 2 and 3 it is 1.0.
    """
    return moments.squares / (moments.number - 1) if moments.number > 1 else None


def moments_type(_: pa.Field) -> pa.DataType:
    return pa.struct([("number", pa.int64()), ("mean", pa.float64()), ("squares", pa.float64())])


def double(_: pa.Field) -> pa.DataType:
    return pa.float64()


def stored(moments: Moments) -> dict[str, Any]:
    return moments._asdict()


def loaded(columns: dict[str, Any]) -> Moments:
    return Moments(**columns)


FUNCTION = Function(add, merged, moments_type, double, Moments, variance, stored, loaded, takes="numbers")
