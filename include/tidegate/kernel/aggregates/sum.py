"""`sum(x)`."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.aggregates.function import (
    ColumnRule,
    Function,
    arguments,
    null_until_argument,
    running_sum,
)
from tidegate.kernel.aggregates.retraction import EXACT_SUM, ExactSum
from tidegate.kernel.columns import Keys, accumulated
from tidegate.kernel.rows import Floats, Ints, Mask, ints

# Spark's widest decimal has 38 digits; a sum of them may need more while it is folded.
EXACT = decimal.Context(prec=80)
_LIMIT = 2.0**62
"""A sum whose parts add up to less than this in doubles fits into 64 bits, however they are rounded."""


def add(total: Any, value: Any) -> Any:
    if total is None:
        return value
    # Python's integers do not wrap around, so `fits` sees a sum that 64 bits cannot hold
    return EXACT.add(total, value) if isinstance(value, decimal.Decimal) else total + value


def merged_sum(older: Any, newer: Any) -> Any:
    return older if newer is None else add(older, newer)


def sum_type(argument: pa.Field) -> pa.DataType:
    type_ = argument.type
    if pa.types.is_decimal(type_):
        # as in Spark: a sum has ten digits more than its argument
        return pa.decimal128(min(38, type_.precision + 10), type_.scale)
    return pa.float64() if pa.types.is_floating(type_) else pa.int64()


def fits(type_: pa.DataType) -> Callable[[Any], bool] | None:
    """Return a test whether a number, or none, fits into a type; None if every number does.

    Example: `fits(pa.int64())(2**63)` is False; `fits(pa.float64())` is None.
    """
    if pa.types.is_decimal(type_):
        limit = decimal.Decimal(1).scaleb(type_.precision - type_.scale)
        return lambda number: number is None or number.copy_abs() < limit  # abs() rounds to 28 digits
    if pa.types.is_integer(type_):
        return lambda number: number is None or -(2**63) <= number < 2**63
    return None


def _sum_fits(argument: pa.Field) -> Callable[[Any], bool] | None:
    return fits(sum_type(argument))


def _running(name: str, keys: Keys) -> pa.Array:
    numbers, has_argument = arguments(name, keys, _argument)
    # doubles are added key by key: how they are rounded depends on the order
    if numbers.dtype == np.int64:
        return null_until_argument(running_sum(numbers.astype(np.int64), keys), has_argument, keys)
    return null_until_argument(accumulated(np.add, numbers, keys), has_argument, keys)


def _argument(column: pa.Array) -> Ints | Floats:
    """Return arguments with null replaced by zero: for doubles by -0.0, since -0.0 + 0.0 is 0.0."""
    if pa.types.is_integer(column.type):
        return ints(column)
    return pc.fill_null(column, -0.0).to_numpy()  # type: ignore[no-any-return]


def _may_overflow(name: str, keys: Keys) -> Mask | None:
    """Return the rows of keys in which a sum of whole numbers could exceed 64 bits."""
    if not pa.types.is_integer(keys.column("value").field(name).type):
        return None
    # as doubles, which do not wrap around; from 2^62 to 2^63 there is room for how they are rounded
    sizes = np.abs(arguments(name, keys, _argument)[0].astype(np.float64))
    if sizes.sum() < _LIMIT:
        return None
    rows: Mask = (np.add.reduceat(sizes, keys.first) >= _LIMIT)[keys.number]
    return rows


def _suits(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_float64(type_))


_SUM = Function(
    add,
    merged_sum,
    sum_type,
    sum_type,
    fits=_sum_fits,
    takes="numbers",
    columns=ColumnRule(_suits, _running, _may_overflow),
)


# taking values back


def _adding(number: int) -> Callable[[Any, Any], Any]:
    """Return the function that adds an argument, or with -1 takes it back."""

    def change(accumulator: Any, value: Any) -> Any:
        if isinstance(value, float):
            return (accumulator or ExactSum()).add(value, number)
        total, count = accumulator or (None, 0)
        if number < 0:
            value = value.copy_negate() if isinstance(value, decimal.Decimal) else -value
        return add(total, value), count + number

    return change


def total_and_number(accumulator: Any) -> tuple[Any, int]:
    """Return the sum and the number of the arguments."""
    if isinstance(accumulator, ExactSum):
        return accumulator.total, accumulator.number
    return accumulator or (None, 0)


def _dumped(accumulator: Any) -> Any:
    if isinstance(accumulator, ExactSum):
        return accumulator.stored()
    return None if accumulator is None else {"sum": accumulator[0], "count": accumulator[1]}


def _loaded(stored: Any) -> Any:
    if stored is None:
        return None
    return ExactSum(**stored) if "parts" in stored else (stored["sum"], stored["count"])


def _total_type(argument: pa.Field) -> pa.DataType:
    if pa.types.is_floating(argument.type):
        return EXACT_SUM
    return pa.struct([("sum", sum_type(argument)), ("count", pa.int64())])


def _total_fits(argument: pa.Field) -> Callable[[Any], bool] | None:
    test = _sum_fits(argument)
    return test and (lambda accumulator: test(total_and_number(accumulator)[0]))


def taking_back(function: Function, finish: Callable[[tuple[Any, int]], Any]) -> Function:
    """Return a function of sum and number that can take arguments back.

    Args:
        function: The function that cannot, with the same result.
        finish: Computes the result.
    """
    return replace(
        function,
        fold=_adding(1),
        retract=_adding(-1),
        accumulator_type=_total_type,
        start=lambda: None,
        finish=lambda accumulator: finish(total_and_number(accumulator)),
        dump=_dumped,
        load=_loaded,
        fits=_total_fits,
        columns=None,
    )


FUNCTION = replace(_SUM, takes_back=taking_back(_SUM, lambda sum_: sum_[0] if sum_[1] else None))
