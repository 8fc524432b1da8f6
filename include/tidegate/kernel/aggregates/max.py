"""`max(x)`: as in Spark, NaN is larger than every number."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.kernel.aggregates.function import extreme


def larger(accumulator: Any, value: Any) -> Any:
    # only NaN differs from itself; once it is the largest, it stays
    if accumulator is None or value != value:
        return value
    return accumulator if accumulator != accumulator or accumulator >= value else value


FUNCTION = extreme(larger, np.maximum, np.iinfo(np.int64).min)
