"""What the column rules of several aggregates need: running sums, and results that begin with null."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns import Keys, accumulated
from tidegate.kernel.rows import Ints, Mask, ints, mask

Numbers = npt.NDArray[np.generic]


def arguments(name: str, keys: Keys, number: Callable[[pa.Array], Numbers]) -> tuple[Numbers, Mask]:
    """Return per row the record's argument, or the state row's stored accumulator; and whether it has one.

    Args:
        name: The aggregate, and with it its record column.
        number: Returns a column as numbers, with a number in place of null.
    """
    argument = pc.struct_field(keys.column("value"), name)
    stored = pc.struct_field(keys.column("accumulator"), name)
    numbers = np.where(keys.is_state, number(stored), number(argument))
    return numbers, np.where(keys.is_state, mask(stored.is_valid()), mask(argument.is_valid()))


def running_sum(numbers: Ints, keys: Keys) -> Ints:
    """Return sums from each key's first row on. The sum over all rows may wrap around; differences stay
    right.

    Example: numbers 1, 2, 3 of two keys, the second with the last row only, give 1, 3, 3.
    """
    # one sum over all keys, instead of a loop over keys
    sums = np.cumsum(numbers)
    # what the rows of all earlier keys have added
    before = (sums - numbers)[keys.first]
    return sums - before[keys.number]


def null_until_argument(result: Numbers, has_argument: Mask, keys: Keys) -> pa.Array:
    """Return the results, null before a key's first argument that is not null.

    Args:
        result: The result after each row.
        has_argument: Per row, whether it has an argument that is not null.
    """
    return pa.array(result, mask=running_sum(has_argument.astype(np.int64), keys) == 0)


def running_extreme(pick: np.ufunc, null: int, name: str, keys: Keys) -> pa.Array:
    """Return the largest or smallest whole number of each key so far, null before its first argument.

    Args:
        pick: `np.maximum` or `np.minimum`.
        null: The number that stands for a null argument.
        name: The aggregate, and with it its record column.
    """
    numbers, has_argument = arguments(name, keys, ints)
    extremes = accumulated(pick, np.where(has_argument, numbers, null), keys)
    return null_until_argument(extremes, has_argument, keys)
