"""`bool_and(x)`: whether all arguments are true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.aggregates.function import ColumnRule, Function, either, running_boolean, same_type
from tidegate.kernel.columns import Keys


def _both(accumulator: Any, value: bool) -> bool:
    return value if accumulator is None else accumulator and value


def _running(name: str, keys: Keys) -> pa.Array:
    return running_boolean(np.logical_and, True, name, keys)


FUNCTION = Function(
    _both,
    either(_both),
    same_type,
    same_type,
    takes="booleans",
    columns=ColumnRule(pa.types.is_boolean, _running),
)
