"""`min(x)`: as in Spark, NaN is larger than every number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.aggregates.function import ColumnRule, Function, either, running_extreme, same_type
from tidegate.kernel.columns import Keys


def smaller(accumulator: Any, value: Any) -> Any:
    # NaN, which differs from itself, is the largest: any value replaces it
    if accumulator is None or accumulator != accumulator:
        return value
    return accumulator if value != value or accumulator <= value else value


def _running(name: str, keys: Keys) -> pa.Array:
    # a null counts as the largest number, which changes no minimum
    return running_extreme(np.minimum, np.iinfo(np.int64).max, name, keys)


FUNCTION = Function(
    smaller,
    either(smaller),
    same_type,
    same_type,
    takes="single values",
    repeats=False,
    columns=ColumnRule(pa.types.is_integer, _running),
)
