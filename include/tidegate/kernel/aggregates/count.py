"""`count(x)`, and `count(*)`, whose argument is never null."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.aggregates.function import ColumnRule, Function, int64, running_sum
from tidegate.kernel.columns import Keys
from tidegate.kernel.rows import ints, mask


def _count(accumulator: int, _: Any) -> int:
    return accumulator + 1


def _running_count(name: str, keys: Keys) -> pa.Array:
    argument = mask(pc.struct_field(keys.column("value"), name).is_valid())
    stored = ints(pc.struct_field(keys.column("accumulator"), name))
    return pa.array(running_sum(np.where(keys.is_state, stored, argument.astype(np.int64)), keys))


_COUNT = Function(
    _count,
    lambda a, b: a + b,
    int64,
    int64,
    start=int,
    columns=ColumnRule(lambda type_: True, _running_count),
)
FUNCTION = replace(_COUNT, takes_back=replace(_COUNT, retract=lambda accumulator, _: accumulator - 1))
