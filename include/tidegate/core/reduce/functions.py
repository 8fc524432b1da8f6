"""The aggregate functions: how each starts, folds, merges and finishes, and its types, which are Spark's.

To add one: add a `Function` here, and its name to the grammar (`spec`).
"""

from __future__ import annotations

import decimal
import functools
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.core.identity import identity

# Spark's widest decimal has 38 digits; a sum of them may need more while it is folded.
_EXACT = decimal.Context(prec=80)


def _same(value: Any) -> Any:
    return value


def _same_type(argument: pa.Field) -> pa.DataType:
    return argument.type


def _unlimited(argument: pa.Field) -> None:
    return None


@dataclass(frozen=True)
class Function:
    """An aggregate function. `fold(accumulator, argument)` gets no null arguments; `start` makes an empty
    accumulator.
    """

    fold: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any]
    accumulator_type: Callable[[pa.Field], pa.DataType]
    result_type: Callable[[pa.Field], pa.DataType]
    start: Callable[[], Any] = lambda: None
    finish: Callable[[Any], Any] = _same
    dump: Callable[[Any], Any] = _same
    """Returns the accumulator in the form that Arrow takes."""
    load: Callable[[Any], Any] = _same
    """Returns the accumulator from the form that Arrow gives."""
    fits: Callable[[pa.Field], Callable[[Any], bool] | None] = _unlimited
    """Returns a test whether an accumulator and its result fit into their types; None if all do."""

    @property
    def is_accumulator_result(self) -> bool:
        """Whether the accumulator is the result."""
        return self.finish is _same


# sum, avg


def _sum(total: Any, value: Any) -> Any:
    if total is None:
        return value
    return _EXACT.add(total, value) if isinstance(value, decimal.Decimal) else total + value


def _merged_sum(older: Any, newer: Any) -> Any:
    return older if newer is None else _sum(older, newer)


def _sum_type(argument: pa.Field) -> pa.DataType:
    type_ = argument.type
    if pa.types.is_decimal(type_):
        return pa.decimal128(min(38, type_.precision + 10), type_.scale)
    return pa.float64() if pa.types.is_floating(type_) else pa.int64()


def _fits(type_: pa.DataType) -> Callable[[Any], bool] | None:
    """Return a test whether a number, or none, fits into a type; None if every number does."""
    if pa.types.is_decimal(type_):
        limit = decimal.Decimal(1).scaleb(type_.precision - type_.scale)
        return lambda number: number is None or number.copy_abs() < limit  # abs() rounds to 28 digits
    if pa.types.is_integer(type_):
        return lambda number: number is None or -(2**63) <= number < 2**63
    return None


def _sum_fits(argument: pa.Field) -> Callable[[Any], bool] | None:
    return _fits(_sum_type(argument))


def _average_fits(argument: pa.Field) -> Callable[[Any], bool] | None:
    total_fits, fits = _fits(_sum_type(argument)), _fits(_average_type(argument))
    if total_fits is None:
        return None
    if fits is None:
        return lambda accumulator: total_fits(accumulator[0])
    return lambda accumulator: total_fits(accumulator[0]) and fits(_average(accumulator))


def _average(accumulator: Any) -> Any:
    total, count = accumulator
    if not count:
        return None
    if not isinstance(total, decimal.Decimal):
        return total / count
    digits = -int(total.as_tuple().exponent)
    unit = decimal.Decimal(1).scaleb(-min(38, digits + 4))
    return _EXACT.divide(total, count).quantize(unit, decimal.ROUND_HALF_UP, _EXACT)


def _average_type(argument: pa.Field) -> pa.DataType:
    type_ = argument.type
    if not pa.types.is_decimal(type_):
        return pa.float64()
    scale = min(38, type_.scale + 4)
    return pa.decimal128(min(38, type_.precision + 4), scale)


def _average_accumulator(argument: pa.Field) -> pa.DataType:
    return pa.struct([("sum", _sum_type(argument)), ("count", pa.int64())])


# min, max: as in Spark, NaN is larger than every number


def _larger(accumulator: Any, value: Any) -> Any:
    if accumulator is None or value != value:
        return value
    return accumulator if accumulator != accumulator or accumulator >= value else value


def _smaller(accumulator: Any, value: Any) -> Any:
    if accumulator is None or accumulator != accumulator:
        return value
    return accumulator if value != value or accumulator <= value else value


def _either(pick: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda older, newer: older if newer is None else pick(older, newer)


# first, last, collected


def _first(accumulator: Any, value: Any) -> Any:
    return value if accumulator is None else accumulator


def _last(accumulator: Any, value: Any) -> Any:
    return value


def _append(accumulator: list[Any], value: Any) -> list[Any]:
    accumulator.append(value)
    return accumulator


Distinct = dict[Hashable, Any]
"""Values by their identity, in the order in which each came first."""


def _add(accumulator: Distinct, value: Any) -> Distinct:
    accumulator.setdefault(identity(value), value)
    return accumulator


def _distinct(values: Iterable[Any]) -> Distinct:
    return functools.reduce(_add, values, {})


def _values(accumulator: Distinct) -> list[Any]:
    return list(accumulator.values())


def _list_type(argument: pa.Field) -> pa.DataType:
    return pa.list_(argument.type)


def _count(accumulator: int, _: Any) -> int:
    return accumulator + 1


def _int64(_: pa.Field) -> pa.DataType:
    return pa.int64()


_counted = Function(_count, lambda a, b: a + b, _int64, _int64, start=int)

FUNCTIONS = {
    "count_all": _counted,
    "count": _counted,
    "sum": Function(_sum, _merged_sum, _sum_type, _sum_type, fits=_sum_fits),
    "avg": Function(
        fold=lambda accumulator, value: (_sum(accumulator[0], value), accumulator[1] + 1),
        merge=lambda a, b: (_merged_sum(a[0], b[0]), a[1] + b[1]),
        accumulator_type=_average_accumulator,
        result_type=_average_type,
        start=lambda: (None, 0),
        finish=_average,
        dump=lambda accumulator: {"sum": accumulator[0], "count": accumulator[1]},
        load=lambda accumulator: (accumulator["sum"], accumulator["count"]),
        fits=_average_fits,
    ),
    "min": Function(_smaller, _either(_smaller), _same_type, _same_type),
    "max": Function(_larger, _either(_larger), _same_type, _same_type),
    "first": Function(_first, _either(_first), _same_type, _same_type),
    "last": Function(_last, _either(_last), _same_type, _same_type),
    "collect_list": Function(
        _append, lambda a, b: a + b, _list_type, _list_type, start=list, finish=list, load=list
    ),
    "collect_set": Function(
        fold=_add,
        merge=lambda older, newer: functools.reduce(_add, newer.values(), dict(older)),
        accumulator_type=_list_type,
        result_type=_list_type,
        start=dict,
        finish=_values,
        dump=_values,
        load=_distinct,
    ),
}
"""Name -> function. `count_all` is `count(*)`."""
