"""`equal: within`: values are equal if numbers are within a tolerance of the last emitted ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property, partial
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import ConditionFailed
from tidegate.kernel.equality import any_differs, equal
from tidegate.kernel.equivalence import Columns, Equivalence
from tidegate.kernel.options import Form, option
from tidegate.kernel.reduce import Values
from tidegate.kernel.strategy import Sameness

_EXACT = Context(prec=800)
"""Wide enough for the difference of any two doubles, or of two decimals of 38 digits."""

_HUNDRED = Decimal(100)


@dataclass(frozen=True)
class Amount:
    """A tolerance: how far a number may be from the last emitted one, absolutely or in percent of it.

    Nothing is rounded: integers and decimals count as they are, a double by its shortest digits. So 0.3 and
    0.4 are within 0.1 of each other.
    """

    amount: Decimal
    percent: bool = False

    def accepts(self, column: str, old: Any, new: Any) -> bool:
        """Return whether a value is near the last one. Null is only near null, NaN near NaN, an infinity near
        itself.

        Raises ConditionFailed for a value that is no number.
        """
        if equal(old, new):
            return True
        if old is None or new is None:
            return False
        last, now = _exact(column, old), _exact(column, new)
        if not (last.is_finite() and now.is_finite()):
            return False
        difference = _EXACT.subtract(now, last).copy_abs()
        if not self.percent:
            return difference <= self.amount
        # multiplied out, since a division would have to round
        return _EXACT.multiply(difference, _HUNDRED) <= _EXACT.multiply(last.copy_abs(), self.amount)


def _exact(column: str, value: Any) -> Decimal:
    kind = type(value)
    if kind is float:
        return Decimal(repr(value))
    if kind is int or kind is Decimal:
        return Decimal(value)
    fix = "Take `within` for numbers only; other columns are compared exactly."
    raise ConditionFailed(f"The column {column} is {value!r}, which is no number", fix)


@dataclass(frozen=True)
class Within(Equivalence):
    """Values are equal if these columns are within a tolerance, and all other columns are exactly equal."""

    within: Annotated[Mapping[str, Amount], Form("tolerances")] = option(
        "Column: how far from the last emitted number still counts as the same.",
        "within: {price: 0.5, weight: 1%}",
    )

    def bind(self, values: Values, columns: Columns) -> Sameness:
        """Return the comparison of two outputs.

        Raises ConditionFailed, when it compares, if a value with a tolerance is no number.
        """
        return self.same(values.field, columns)

    def same(self, field: Callable[[str], Callable[[Any], Any]], columns: Columns) -> Sameness:
        """Return the comparison of two outputs; `field` returns the reader of a column.

        Args:
            field: Returns the reader of a column.
            columns: The columns without a tolerance are compared exactly.
        """
        tests = dict.fromkeys(columns, equal) | {
            name: partial(amount.accepts, name) for name, amount in self.within.items()
        }
        pairs = [(field(name), test) for name, test in tests.items()]

        def same(old: Any, new: Any, *_: int) -> bool:
            for read, test in pairs:  # noqa: SIM110  # `all` would make a generator for each record
                if not test(read(old), read(new)):
                    return False
            return True

        return same

    def decides_columns(self, value: pa.StructType) -> bool:
        """Return whether the columns with a tolerance are integers or doubles: then no comparison fails."""
        types = [value.field(name).type for name in self.within]
        numbers = (pa.types.is_integer(type_) or pa.types.is_float64(type_) for type_ in types)
        return bool(types) and all(numbers)

    def leaves(
        self, now: pa.StructArray, has_last: pa.BooleanArray, start: pa.BooleanArray, columns: Columns
    ) -> pa.BooleanArray:
        """Return True where a value is away from what its key emitted before; a key's first value counts as
        emitted if it comes from its state.
        """
        compared = _Compared(self, now, columns)
        out = np.zeros(len(now), np.bool_)
        for first, end in pairwise([*pc.indices_nonzero(start).to_pylist(), len(now)]):
            compared.mark(first, end, out)
        return pa.array(out)


_ROUNDING = 1e-14
"""More than the relative distance of a double from its written digits, and than the rounding of a
difference.
"""

_LEAST = 1e-300


class _Compared:
    """The compared columns of `Within`: finds the values that are away from the last emitted one.

    What is emitted depends on what was emitted before, so the values are visited one by one. But a value in
    the middle of the tolerance, or far outside of it, only needs two comparisons of doubles. A value near the
    edge is compared exactly.

     `_near` has the first column with a tolerance as doubles; NaN for null.

    `_run` increases where another column differs from the row before: between two rows with the same number,
    only the tolerance decides.
    """

    def __init__(self, equivalence: Within, values: pa.StructArray, columns: Columns) -> None:
        self._equivalence = equivalence
        self._values = values
        name, self._tolerance = next(iter(equivalence.within.items()))
        self._columns = columns
        self._valid = values.is_valid().to_numpy(zero_copy_only=False).tolist()
        column = pc.struct_field(values, name)
        doubles = pc.fill_null(column.cast(pa.float64(), safe=False), math.nan)
        self._near = doubles.to_numpy().tolist()
        other_columns = tuple({*columns, *equivalence.within} - {name})
        differs = any_differs(values.slice(1), values.slice(0, max(len(values) - 1, 0)), other_columns)
        self._run = [0, *np.cumsum(differs.to_numpy(zero_copy_only=False)).tolist()]

    @cached_property
    def _same(self) -> Sameness:
        return self._equivalence.same(
            lambda name: pc.struct_field(self._values, name).to_pylist().__getitem__, self._columns
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
            # NaN bounds compare false, so that such values fall through to the exact comparison
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


def _band(last: float, tolerance: Amount) -> tuple[float, float, float, float]:
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
