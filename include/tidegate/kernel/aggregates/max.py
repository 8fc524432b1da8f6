"""`max(x)`: as in Spark, NaN is larger than every number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.aggregates.function import ColumnRule, Function, either, running_extreme, same_type
from tidegate.kernel.columns import Keys


def larger(accumulator: Any, value: Any) -> Any:
    # only NaN differs from itself; once it is the largest, it stays
    if accumulator is None or value != value:
        return value
    return accumulator if accumulator != accumulator or accumulator >= value else value


def _running(name: str, keys: Keys) -> pa.Array:
    # a null counts as the least number, which changes no maximum
    return running_extreme(np.maximum, np.iinfo(np.int64).min, name, keys)


FUNCTION = Function(
    larger,
    either(larger),
    same_type,
    same_type,
    takes="single values",
    repeats=False,
    columns=ColumnRule(pa.types.is_integer, _running),
)
