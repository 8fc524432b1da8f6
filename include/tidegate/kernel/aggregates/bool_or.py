"""`bool_or(x)`: whether any argument is true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.kernel.aggregates.function import ColumnRule, Function, either, running_boolean, same_type
from tidegate.kernel.columns import Keys


def _any(accumulator: Any, value: bool) -> bool:
    return value if accumulator is None else accumulator or value


def _running(name: str, keys: Keys) -> pa.Array:
    return running_boolean(np.logical_or, False, name, keys)


FUNCTION = Function(
    _any,
    either(_any),
    same_type,
    same_type,
    takes="booleans",
    columns=ColumnRule(pa.types.is_boolean, _running),
)
