"""`avg(x)`."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidegate.kernel.aggregates.function import Function
from tidegate.kernel.aggregates.sum import EXACT, add, fits, merged_sum, sum_type, taking_back


def _average_fits(argument: pa.Field) -> Callable[[Any], bool] | None:
    total_fits, result_fits = fits(sum_type(argument)), fits(_average_type(argument))
    if total_fits is None:
        return None
    # the sum has to fit, too: state stores it in place of the average
    if result_fits is None:
        return lambda accumulator: total_fits(accumulator[0])
    return lambda accumulator: total_fits(accumulator[0]) and result_fits(_average(accumulator))


def _average(accumulator: Any) -> Any:
    total, count = accumulator
    if not count:
        return None
    # also of whole numbers the average is a double, as in Spark
    if not isinstance(total, decimal.Decimal):
        return total / count
    # as in Spark: four digits more than the argument has, and a half is rounded away from zero
    digits = -int(total.as_tuple().exponent)
    unit = decimal.Decimal(1).scaleb(-min(38, digits + 4))
    return EXACT.divide(total, count).quantize(unit, decimal.ROUND_HALF_UP, EXACT)


def _average_type(argument: pa.Field) -> pa.DataType:
    type_ = argument.type
    if not pa.types.is_decimal(type_):
        return pa.float64()
    scale = min(38, type_.scale + 4)
    return pa.decimal128(min(38, type_.precision + 4), scale)


_AVERAGE = Function(
    fold=lambda accumulator, value: (add(accumulator[0], value), accumulator[1] + 1),
    merge=lambda a, b: (merged_sum(a[0], b[0]), a[1] + b[1]),
    accumulator_type=lambda argument: pa.struct([("sum", sum_type(argument)), ("count", pa.int64())]),
    result_type=_average_type,
    start=lambda: (None, 0),
    finish=_average,
    dump=lambda accumulator: {"sum": accumulator[0], "count": accumulator[1]},
    load=lambda accumulator: (accumulator["sum"], accumulator["count"]),
    fits=_average_fits,
    takes="numbers",
)
FUNCTION = replace(_AVERAGE, takes_back=taking_back(_AVERAGE, _average))
