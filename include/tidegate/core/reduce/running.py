"""Running aggregates on whole columns: the result after every record, if that is exact and cannot fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.columnar.keys import Floats, Ints, Keys, Mask, accumulated, ints, mask

if TYPE_CHECKING:  # which call this
    from tidegate.core.reduce.aggregates import Aggregate, Aggregates

_LIMIT = 2.0**62
"""A sum whose parts add up to less than this in doubles fits into 64 bits, however they are rounded."""


def suits(aggregates: Aggregates, value: pa.StructType) -> bool:
    """Return whether this module supports all of the functions, for records with these columns."""
    return all(_suits(aggregate, value) for aggregate in aggregates)


def _suits(aggregate: Aggregate, value: pa.StructType) -> bool:
    type_ = value.field(aggregate.name).type
    if aggregate.function in ("count", "count_all"):
        return True
    is_integer = pa.types.is_integer(type_)
    return (aggregate.function in ("min", "max") and is_integer) or (
        aggregate.function == "sum" and (is_integer or pa.types.is_float64(type_))
    )


def may_overflow(aggregates: Aggregates, keys: Keys) -> Mask:
    """Return the rows of keys in which a sum of whole numbers could exceed 64 bits."""
    rows = np.zeros(keys.rows.num_rows, np.bool_)
    for aggregate in aggregates:
        argument = keys.column("value").field(aggregate.name)
        if aggregate.function == "sum" and pa.types.is_integer(argument.type):
            sizes = np.abs(_arguments(aggregate, keys, _sum_argument)[0].astype(np.float64))
            if sizes.sum() >= _LIMIT:
                rows |= (np.add.reduceat(sizes, keys.first) >= _LIMIT)[keys.number]
    return rows


def folded(aggregates: Aggregates, keys: Keys, type_: pa.StructType) -> pa.StructArray:
    """Return the results after each row, as structs of `type_`; a state row counts as its stored
    accumulator.
    """
    columns = [
        _FUNCTIONS[aggregate.function](aggregate, keys).cast(type_.field(aggregate.name).type)
        for aggregate in aggregates
    ]
    return pa.StructArray.from_arrays(columns, names=[aggregate.name for aggregate in aggregates])


Numbers = npt.NDArray[np.generic]


def _arguments(
    aggregate: Aggregate, keys: Keys, number: Callable[[pa.Array], Numbers]
) -> tuple[Numbers, Mask]:
    """Return per row the record's argument, or the state row's stored accumulator; and whether it has one."""
    argument = pc.struct_field(keys.column("value"), aggregate.name)
    stored = pc.struct_field(keys.column("accumulator"), aggregate.name)
    numbers = np.where(keys.is_state, number(stored), number(argument))
    return numbers, np.where(keys.is_state, mask(stored.is_valid()), mask(argument.is_valid()))


def _running(numbers: Ints, keys: Keys) -> Ints:
    """Return sums from each key's first row on. The sum over all rows may wrap around; differences stay
    right.
    """
    sums = np.cumsum(numbers)
    before = (sums - numbers)[keys.first]
    return sums - before[keys.number]


def _null_until_argument(result: Numbers, has_argument: Mask, keys: Keys) -> pa.Array:
    """Return the results, null before a key's first argument that is not null."""
    return pa.array(result, mask=_running(has_argument.astype(np.int64), keys) == 0)


def _count(aggregate: Aggregate, keys: Keys) -> pa.Array:
    argument = mask(pc.struct_field(keys.column("value"), aggregate.name).is_valid())
    stored = ints(pc.struct_field(keys.column("accumulator"), aggregate.name))
    return pa.array(_running(np.where(keys.is_state, stored, argument.astype(np.int64)), keys))


def _sum(aggregate: Aggregate, keys: Keys) -> pa.Array:
    numbers, has_argument = _arguments(aggregate, keys, _sum_argument)
    if numbers.dtype == np.int64:
        return _null_until_argument(_running(numbers.astype(np.int64), keys), has_argument, keys)
    return _null_until_argument(accumulated(np.add, numbers, keys), has_argument, keys)


def _sum_argument(column: pa.Array) -> Ints | Floats:
    """Return arguments with null replaced by zero: for doubles by -0.0, since -0.0 + 0.0 is 0.0."""
    if pa.types.is_integer(column.type):
        return ints(column)
    return pc.fill_null(column, -0.0).to_numpy()  # type: ignore[no-any-return]


def _min(aggregate: Aggregate, keys: Keys) -> pa.Array:
    numbers, has_argument = _arguments(aggregate, keys, ints)
    return _null_until_argument(
        accumulated(np.minimum, np.where(has_argument, numbers, np.iinfo(np.int64).max), keys),
        has_argument,
        keys,
    )


def _max(aggregate: Aggregate, keys: Keys) -> pa.Array:
    numbers, has_argument = _arguments(aggregate, keys, ints)
    return _null_until_argument(
        accumulated(np.maximum, np.where(has_argument, numbers, np.iinfo(np.int64).min), keys),
        has_argument,
        keys,
    )


_FUNCTIONS = {"count": _count, "count_all": _count, "sum": _sum, "min": _min, "max": _max}
"""What is not here, or of another type, goes record by record (`reduce.functions`)."""
