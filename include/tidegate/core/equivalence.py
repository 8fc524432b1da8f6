"""When two values are the same to `on: change`. One small unit per way.

`bind` gives a comparison of two outputs of one batch; see `reduce.Values` for what an output is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Protocol

import pyarrow as pa

from tidegate.core import user_function
from tidegate.core.compare import equal, has_map, ordered, unsigned_zero
from tidegate.core.condition import Condition
from tidegate.core.json_text import encoder
from tidegate.core.reduce import Values
from tidegate.errors import ConditionFailed, UserFunctionFailed

_EXACT = Context(prec=800)
"""Wide enough for the difference of any two doubles, or of two decimals of 38 digits."""

_HUNDRED = Decimal(100)

Same = Callable[[Any, Any, int, int], bool]
"""(last emitted, now, timestamp of that, timestamp of this) -> whether they are the same."""


class Equivalence(Protocol):
    """When two outputs are the same to `on: change`: settings, which `bind` makes a comparison of."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are looked at."""
        ...

    def bind(self, values: Values) -> Same:
        """The comparison of two outputs."""
        ...


@dataclass(frozen=True)
class Exact:
    """Null-safe equality of each column; NaN is NaN, 0.0 is -0.0, and a map's order does not count."""

    columns: tuple[str, ...]

    def bind(self, values: Values) -> Same:
        """The comparison of two outputs."""
        fields = [values.field(name) for name in self.columns]
        return lambda old, new, *_: all(equal(read(old), read(new)) for read in fields)


@dataclass(frozen=True)
class Serialized:
    """Byte for byte, as JSON with each map in the order of its keys; with `timestamp`, that too."""

    columns: tuple[str, ...]
    timestamp: bool = False

    def bind(self, values: Values) -> Same:
        """The comparison of two outputs."""
        read, text = _row_reader(values, self.columns), _row_text(values, self.columns)

        def same(old: Any, new: Any, old_ms: int, new_ms: int) -> bool:
            if self.timestamp and old_ms != new_ms:
                return False
            return text(read(old)) == text(read(new))

        return same


@dataclass(frozen=True)
class Tolerance:
    """How far a column may be from the last emitted value: `amount`, or, as `percent`, so much of that.

    Nothing is rounded: integers and decimals count as they are, a double by the digits that it is written
    with, the fewest that are no other double's. So 0.3 and 0.4 are within 0.1 of each other.
    """

    column: str
    amount: Decimal
    percent: bool = False

    def accepts(self, old: Any, new: Any) -> bool:
        """Null is near nothing but null, NaN nothing but NaN, an infinite value nothing but itself.

        Raises ConditionFailed for what is no number.
        """
        if equal(old, new):
            return True
        if old is None or new is None:
            return False
        last, now = self._exact(old), self._exact(new)
        if not (last.is_finite() and now.is_finite()):
            return False
        difference = _EXACT.subtract(now, last).copy_abs()
        if not self.percent:
            return difference <= self.amount
        return _EXACT.multiply(difference, _HUNDRED) <= _EXACT.multiply(last.copy_abs(), self.amount)

    def _exact(self, value: Any) -> Decimal:
        kind = type(value)
        if kind is float:
            return Decimal(repr(value))
        if kind is int or kind is Decimal:
            return Decimal(value)
        fix = "Take `within` for numbers only; other columns are compared exactly."
        raise ConditionFailed(f"The column {self.column} is {value!r}, which is no number", fix)


@dataclass(frozen=True)
class Within:
    """Near enough in the columns that have a tolerance, and exactly equal in the others."""

    tolerances: tuple[Tolerance, ...]
    columns: tuple[str, ...]

    def bind(self, values: Values) -> Same:
        """The comparison of two outputs."""
        return self.over(values.field)

    def over(self, field: Callable[[str], Callable[[Any], Any]]) -> Same:
        """The comparison of two outputs of which `field` gives the reader of a column."""
        tests = dict.fromkeys(self.columns, equal) | {
            tolerance.column: tolerance.accepts for tolerance in self.tolerances
        }
        pairs = [(field(name), test) for name, test in tests.items()]

        def same(old: Any, new: Any, *_: int) -> bool:
            for read, test in pairs:  # noqa: SIM110  # `all` would make a generator for each record
                if not test(read(old), read(new)):
                    return False
            return True

        return same


@dataclass(frozen=True)
class Satisfies:
    """A SQL condition over `old.x` and `new.x`; null is not the same."""

    condition: Condition
    columns: tuple[str, ...]

    def bind(self, values: Values) -> Same:
        """The comparison of two outputs."""
        read = _row_reader(values, self.columns)
        return lambda old, new, *_: self.condition.evaluate({"old": read(old), "new": read(new)}) is True


@dataclass(frozen=True)
class Function:
    """A Python function of the user's, `module:function`: of two dicts, to True or False."""

    name: str
    columns: tuple[str, ...]
    digest: str | None = None
    """Of its module's source, see `user_function.source_digest`; None: any."""

    def bind(self, values: Values) -> Same:
        """The comparison of two outputs. Raises UserFunctionFailed when there is no such function."""
        function = user_function.load(self.name, self.digest)
        read = _row_reader(values, self.columns, maps_ordered=True)

        def same(old: Any, new: Any, *_: int) -> bool:
            try:
                answer = function(read(old), read(new))
            except Exception as error:
                raise self._failed(f"raised {type(error).__name__}: {error}") from error
            if not isinstance(answer, bool):
                raise self._failed(f"gave {answer!r}, which is neither True nor False")
            return answer

        return same

    def _failed(self, how: str) -> UserFunctionFailed:
        return UserFunctionFailed(
            f"The function {self.name} {how}", "Correct it and run again; nothing is lost."
        )


def digest(equivalence: Equivalence, values: Values) -> Callable[[Any, int], str]:
    """What stands for an output that is remembered as a hash: SHA-256, in hex, of its compared columns."""
    read, text = _row_reader(values, equivalence.columns), _row_text(values, equivalence.columns)
    exact = isinstance(equivalence, Exact)
    timestamped = isinstance(equivalence, Serialized) and equivalence.timestamp

    def hashed(output: Any, timestamp: int) -> str:
        row = read(output)
        compared = text(unsigned_zero(row) if exact else row)
        return hashlib.sha256(compared + (b"@%d" % timestamp if timestamped else b"")).hexdigest()

    return hashed


def _row_reader(
    values: Values, columns: tuple[str, ...], maps_ordered: bool = False
) -> Callable[[Any], dict[str, Any]]:
    """The compared columns of an output; `maps_ordered`: equal maps come as equal lists of pairs."""
    fields = [
        (name, values.field(name), ordered if maps_ordered and has_map(values.type_of(name)) else _as_is)
        for name in columns
    ]
    return lambda output: {name: form(read(output)) for name, read, form in fields}


def _as_is(value: Any) -> Any:
    return value


def _row_text(values: Values, columns: tuple[str, ...]) -> Callable[[dict[str, Any]], bytes]:
    """The compared columns as JSON text, the same for equal maps."""
    encode = encoder(pa.struct([(name, values.type_of(name)) for name in columns]), ordered=True)
    return lambda row: encode(row).encode()
