"""`min(x)`: as in Spark, NaN is larger than every number."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.kernel.aggregates.function import extreme


def smaller(accumulator: Any, value: Any) -> Any:
    # NaN, which differs from itself, is the largest: any value replaces it
    if accumulator is None or accumulator != accumulator:
        return value
    return accumulator if value != value or accumulator <= value else value


FUNCTION = extreme(smaller, np.minimum, np.iinfo(np.int64).max)
