"""`count(distinct x)`: the number of different arguments. The state has each of them once."""

from __future__ import annotations

from dataclasses import replace

from tidegate.kernel.aggregates.collect_set import FUNCTION as COLLECT_SET
from tidegate.kernel.aggregates.function import int64

FUNCTION = replace(COLLECT_SET, result_type=int64, finish=len)
