"""Equivalences of `on: change`: when two values count as the same. One class each, with its option in a file.

`bind` returns a comparison of two outputs of one batch; see `values.Values` for outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import cached_property, partial
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import ConditionFailed, UserFunctionFailed
from tidegate.expressions import Condition
from tidegate.kernel import user_function
from tidegate.kernel.compare import any_differs, equal, has_map, ordered, unsigned_zero
from tidegate.kernel.grouping import after_first
from tidegate.kernel.json_text import encoder
from tidegate.kernel.options import Form, HasOptions, option
from tidegate.kernel.strategy import Retype, Sameness
from tidegate.kernel.values import Values

_EXACT = Context(prec=800)
"""Wide enough for the difference of any two doubles, or of two decimals of 38 digits."""

_HUNDRED = Decimal(100)

Columns = tuple[str, ...]


class Equivalence(HasOptions):
    """Settings that decide when two outputs are the same to `on: change`; `bind` makes a
    comparison of them.
    """

    word: ClassVar[str | None] = None
    """What a file writes in place of options."""
    is_exact: ClassVar[bool] = False
    """Whether it compares each column by itself, so that `compare.any_differs` decides, too."""

    def bind(self, values: Values, columns: Columns) -> Sameness:
        """Return the comparison of two outputs in these columns.

        Args:
            values: The values of one Arrow batch.
            columns: The columns that are compared.

        Raises UserFunctionFailed if it calls a function that does not exist.
        """
        raise NotImplementedError

    def text(self, values: Values, columns: Columns) -> Callable[[Any], bytes]:
        """Return the function that writes an output's columns as text: equal outputs have equal texts.

        Args:
            values: The values of one Arrow batch.
            columns: The columns that count.
        """
        read, text = _row_reader(values, columns), _row_text(values, columns)
        return lambda output: text(read(output))

    def decides_columns(self, value: pa.StructType) -> bool:
        """Return whether `leaves` decides values with these columns, and cannot fail."""
        return False

    def leaves(
        self, now: pa.StructArray, has_last: pa.BooleanArray, start: pa.BooleanArray, columns: Columns
    ) -> pa.BooleanArray:
        """Return True where a candidate is emitted; for the arguments see `Emit.emits_latest`.

        Args:
            columns: The columns that are compared.
        """
        raise NotImplementedError

    def retyped(self, retype: Retype, columns: Columns) -> Equivalence:
        """Return the equivalence with its condition typed for the actual columns.

        Args:
            retype: Returns a condition with the types of columns.
            columns: The columns that the stage emits.
        """
        return self

    @property
    def functions(self) -> Mapping[str, str | None]:
        """The user's functions that it calls -> the digest of their source; None before they are planned."""
        return {}

    def with_digests(self) -> Equivalence:
        """Return the equivalence with the present digests of its functions.

        Raises UserFunctionFailed if one cannot be imported.
        """
        return self


@dataclass(frozen=True)
class Exact(Equivalence):
    """Compares each column null-safely; NaN equals NaN, 0.0 equals -0.0, and a map's order does not count."""

    word: ClassVar[str | None] = "exact"
    is_exact: ClassVar[bool] = True

    def bind(self, values: Values, columns: Columns) -> Sameness:
        """Return the comparison of two outputs."""
        fields = [values.field(name) for name in columns]
        return lambda old, new, *_: all(equal(read(old), read(new)) for read in fields)

    def text(self, values: Values, columns: Columns) -> Callable[[Any], bytes]:
        """Return the function that writes an output's columns; 0.0 and -0.0 are equal, and have one text."""
        read, text = _row_reader(values, columns), _row_text(values, columns)
        return lambda output: text(unsigned_zero(read(output)))

    def decides_columns(self, value: pa.StructType) -> bool:
        """Return True: columns of all types can be compared."""
        return True

    def leaves(
        self, now: pa.StructArray, has_last: pa.BooleanArray, start: pa.BooleanArray, columns: Columns
    ) -> pa.BooleanArray:
        """Return True where a value appears, vanishes or differs.

        Equality is transitive, so each candidate is compared with the one before it, emitted or not.
        """
        appears_or_vanishes = pc.xor(now.is_valid(), has_last)
        both_valid = pc.and_(now.is_valid(), has_last)
        differs = any_differs(now.slice(1), now.slice(0, max(len(now) - 1, 0)), columns)
        return pc.or_(appears_or_vanishes, pc.and_(both_valid, after_first(differs, len(now))))


@dataclass(frozen=True)
class Bytes(Equivalence):
    """Compares byte for byte, as JSON with each map sorted by its keys."""

    word: ClassVar[str | None] = "bytes"

    def bind(self, values: Values, columns: Columns) -> Sameness:
        """Return the comparison of two outputs."""
        text = self.text(values, columns)
        return lambda old, new, *_: text(old) == text(new)


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


@dataclass(frozen=True)
class SqlEqual(Equivalence):
    """Values are equal if a condition over `old.x` and `new.x` is true; null means that they differ."""

    sql: Annotated[Condition, Form("comparison")] = option(
        "A condition over `old.x` and `new.x`; if it is true, the values are equal.",
        'sql: "abs(old.price - new.price) < 0.5"',
    )

    def bind(self, values: Values, columns: Columns) -> Sameness:
        """Return the comparison of two outputs, which raises ConditionFailed if the condition has
        no result.
        """
        read = _row_reader(values, columns)
        return lambda old, new, *_: self.sql.evaluate({"old": read(old), "new": read(new)}) is True

    def retyped(self, retype: Retype, columns: Columns) -> Equivalence:
        """Return the equivalence with its condition typed for the actual columns."""
        return replace(self, sql=retype(self.sql, columns))


@dataclass(frozen=True)
class PythonEqual(Equivalence):
    """Values are equal if a Python function, called with both values as dicts, returns True."""

    python: Annotated[str, Form("function")] = option(
        "`module:function` of two dicts, in a module that TIDEGATE_PYTHON_MODULES lists.",
        'python: "shop.compare:same"',
    )
    digest: str | None = None
    """The digest of its module's source when the pipeline was planned; None before."""

    def bind(self, values: Values, columns: Columns) -> Sameness:
        """Return the comparison of two outputs. Raises UserFunctionFailed if there is no such function, or it
        fails.
        """
        function = user_function.load(self.python, self.digest)
        read = _row_reader(values, columns, maps_ordered=True)

        def same(old: Any, new: Any, *_: int) -> bool:
            try:
                answer = function(read(old), read(new))
            # the user's code can raise anything, and it is the record that must be named
            except Exception as error:
                raise self._failed(f"raised {type(error).__name__}: {error}") from error
            # an accidental return value, such as None or a number, must not suppress records
            if not isinstance(answer, bool):
                raise self._failed(f"gave {answer!r}, which is neither True nor False")
            return answer

        return same

    @property
    def functions(self) -> Mapping[str, str | None]:
        """The function, with its digest."""
        return {self.python: self.digest}

    def with_digests(self) -> Equivalence:
        """Return the equivalence with the present digest. Raises UserFunctionFailed if it cannot be
        imported.
        """
        return replace(self, digest=user_function.source_digest(self.python))

    def _failed(self, how: str) -> UserFunctionFailed:
        return UserFunctionFailed(
            f"The function {self.python} {how}", "Correct it and run again; nothing is lost."
        )


EQUIVALENCES: tuple[type[Equivalence], ...] = (Exact, Bytes, Within, SqlEqual, PythonEqual)
"""The equivalences: a word, or a mapping whose first option names it."""


def _row_reader(
    values: Values, columns: tuple[str, ...], maps_ordered: bool = False
) -> Callable[[Any], dict[str, Any]]:
    """Return the reader of an output's compared columns; `maps_ordered`: equal maps are equal
    lists of pairs.
    """
    fields = [
        (name, values.field(name), ordered if maps_ordered and has_map(values.type_of(name)) else _as_is)
        for name in columns
    ]
    return lambda output: {name: form(read(output)) for name, read, form in fields}


def _as_is(value: Any) -> Any:
    return value


def _row_text(values: Values, columns: tuple[str, ...]) -> Callable[[dict[str, Any]], bytes]:
    """Return the function that writes the compared columns as JSON text, the same for equal maps."""
    encode = encoder(pa.struct([(name, values.type_of(name)) for name in columns]), ordered=True)
    return lambda row: encode(row).encode()


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
