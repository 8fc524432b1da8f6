"""`collect_list(x)`: the arguments in the order of the records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidegate.kernel.aggregates.function import Function


def _append(accumulator: list[Any], value: Any) -> list[Any]:
    # in place: a copy per record would make a key's cost quadratic; `AggregateValues.undo` cuts the list
    accumulator.append(value)
    return accumulator


def list_type(argument: pa.Field) -> pa.DataType:
    return pa.list_(argument.type)


FUNCTION = Function(_append, lambda a, b: a + b, list_type, list_type, start=list, finish=list, load=list)
