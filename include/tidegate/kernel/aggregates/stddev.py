"""`stddev(x)`: the sample standard deviation, the square root of `variance(x)`."""

from __future__ import annotations

import math
from dataclasses import replace

from tidegate.kernel.aggregates.variance import FUNCTION as VARIANCE
from tidegate.kernel.aggregates.variance import Moments, variance


def _deviation(moments: Moments) -> float | None:
    squared = variance(moments)
    return None if squared is None else math.sqrt(squared)


FUNCTION = replace(VARIANCE, finish=_deviation)
