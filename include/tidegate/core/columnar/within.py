"""`change` within a tolerance, on whole columns: find the values that are away from the last emitted one.

What is emitted depends on what was emitted before, so the values are visited one by one. But a value in the
middle of the tolerance, or far outside of it, only needs two comparisons of doubles. A value near the edge is
compared exactly, by `Within`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.compare import any_differs
from tidegate.core.equivalence import Same, Tolerance, Within

_ROUNDING = 1e-14
"""More than the relative distance of a double from its written digits, and than the rounding of a
difference.
"""
_LEAST = 1e-300


def suits(equivalence: Within, value: pa.StructType) -> bool:
    """Return whether the columns with a tolerance are integers or doubles: then no comparison fails."""
    types = [value.field(tolerance.column).type for tolerance in equivalence.tolerances]
    return bool(types) and all(pa.types.is_integer(type_) or pa.types.is_float64(type_) for type_ in types)


def leaves_tolerance(equivalence: Within, values: pa.StructArray, starts: Sequence[int]) -> pa.BooleanArray:
    """Return True where a value is emitted after what its key emitted before.

    `starts` has the first row of each key. A key's first value counts as emitted if it comes from its state;
    null is a deletion.
    """
    columns = _Compared(equivalence, values)
    out = np.zeros(len(values), np.bool_)
    for start, end in pairwise([*starts, len(values)]):
        columns.mark(start, end, out)
    return pa.array(out)


class _Compared:
    """The compared columns. `_near` has the first column with a tolerance as doubles; NaN for null.

    `_run` increases where another column differs from the row before: between two rows with the same number,
    only the tolerance decides.
    """

    def __init__(self, equivalence: Within, values: pa.StructArray) -> None:
        self._equivalence = equivalence
        self._values = values
        self._tolerance = equivalence.tolerances[0]
        self._valid = values.is_valid().to_numpy(zero_copy_only=False).tolist()
        column = pc.struct_field(values, self._tolerance.column)
        doubles = pc.fill_null(column.cast(pa.float64(), safe=False), math.nan)
        self._near = doubles.to_numpy().tolist()
        compared = {*equivalence.columns, *(tolerance.column for tolerance in equivalence.tolerances)}
        other_columns = tuple(compared - {self._tolerance.column})
        differs = any_differs(values.slice(1), values.slice(0, max(len(values) - 1, 0)), other_columns)
        self._run = [0, *np.cumsum(differs.to_numpy(zero_copy_only=False)).tolist()]

    @cached_property
    def _same(self) -> Same:
        return self._equivalence.over(
            lambda name: pc.struct_field(self._values, name).to_pylist().__getitem__
        )

    def mark(self, start: int, end: int, out: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        """Set `out` at the rows of a key, `start` to before `end`, that are emitted; `out[start]` if it has a
        value.
        """
        near, runs = self._near, self._run
        last, run = start, runs[start]
        out[start] = self._valid[start]
        below, low, high, above = _band(near[start], self._tolerance)
        for row in range(start + 1, end):
            value = near[row]
            if low <= value <= high and runs[row] == run:
                continue
            if not (value < below or value > above) and not self._differs(last, row):
                continue
            out[row] = True
            last, run = row, runs[row]
            below, low, high, above = _band(value, self._tolerance)

    def _differs(self, last: int, row: int) -> bool:
        """Compare two rows exactly."""
        if self._valid[last] and self._valid[row]:
            return not self._same(last, row, 0, 0)
        return self._valid[last] is not self._valid[row]


def _band(last: float, tolerance: Tolerance) -> tuple[float, float, float, float]:
    """Return the bounds (below, low, high, above) around the last value.

    Values below `below` or above `above` are away from it, values from `low` to `high` are not; others need
    an exact comparison. All are NaN, which compares false, if doubles cannot decide.
    """
    amount = float(tolerance.amount)
    if tolerance.percent:
        amount *= abs(last) / 100
    edge = _ROUNDING * (abs(last) + amount) + _LEAST
    below, above = last - amount - edge, last + amount + edge
    if not (math.isfinite(below) and math.isfinite(above)):
        return math.nan, math.nan, math.nan, math.nan
    return below, last - amount + edge, last + amount - edge, above
