"""`top(x, n)`: the n largest values of x, the largest first; `top(x, n, y)`: the x of the records with the n
largest values of y.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import pyarrow as pa

from tidegate.kernel.aggregates.function import BY, CHOSEN, Function, Parameter, chosen_type

_MOST = 1000


def _precedes(value: Any, other: Any) -> bool:
    """Return whether a value is larger; NaN, which differs from itself, is the largest."""
    return bool(other == other and (value != value or value > other))


def _add(size: int, accumulator: list[Any], argument: Any) -> list[Any]:
    by = argument[BY]
    if by is None or (len(accumulator) >= size and not _precedes(by, accumulator[-1][BY])):
        return accumulator
    # behind equal values: of those, the first records count
    place = next((at for at, other in enumerate(accumulator) if _precedes(by, other[BY])), len(accumulator))
    # a new list: a record that cannot be used must leave no trace
    return [*accumulator[:place], argument, *accumulator[place:]][:size]


def _finish(accumulator: list[Any]) -> list[Any]:
    return [item[CHOSEN] for item in accumulator]


def top(size: int) -> Function:
    """Return the function of the `size` largest values."""
    add = partial(_add, size)
    return Function(
        fold=add,
        merge=lambda older, newer: reduce(add, newer, older),
        accumulator_type=lambda argument: pa.list_(argument.type),
        result_type=lambda argument: pa.list_(chosen_type(argument)),
        start=list,
        finish=_finish,
        takes="single values",
        chooses=True,
        parameter=Parameter(
            lambda number: isinstance(number, int) and 1 <= number <= _MOST,
            top,
            f"Write how many, from 1 to {_MOST}: `top(price, 3)`, or `top(name, 3, price)`.",
        ),
    )


FUNCTION = top(3)
