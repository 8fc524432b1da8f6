"""`count(distinct x)`: the number of different arguments. The state has each of them once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidegate.kernel.aggregates.collect_set import FUNCTION as COLLECT_SET
from tidegate.kernel.aggregates.function import Function


def _int64(_: pa.Field) -> pa.DataType:
    return pa.int64()


def _number(accumulator: Any) -> int:
    return len(accumulator)


FUNCTION = Function(
    fold=COLLECT_SET.fold,
    merge=COLLECT_SET.merge,
    accumulator_type=COLLECT_SET.accumulator_type,
    result_type=_int64,
    start=COLLECT_SET.start,
    finish=_number,
    dump=COLLECT_SET.dump,
    load=COLLECT_SET.load,
)
