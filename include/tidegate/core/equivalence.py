"""Equivalences of `on: change`: when two values count as the same. One class each.

`bind` returns a comparison of two outputs of one batch; see `reduce.Values` for outputs.
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
"""(last emitted, now, timestamp of each) -> whether they are the same."""


class Equivalence(Protocol):
    """Settings that decide when two outputs are the same to `on: change`; `bind` makes a
    comparison of them.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """The compared columns."""
        ...

    def bind(self, values: Values) -> Same:
        """Return the comparison of two outputs."""
        ...


@dataclass(frozen=True)
class Exact:
    """Compares each column null-safely; NaN equals NaN, 0.0 equals -0.0, and a map's order does not count."""

    columns: tuple[str, ...]

    def bind(self, values: Values) -> Same:
        """Return the comparison of two outputs."""
        fields = [values.field(name) for name in self.columns]
        return lambda old, new, *_: all(equal(read(old), read(new)) for read in fields)


@dataclass(frozen=True)
class Serialized:
    """Compares byte for byte, as JSON with each map sorted by its keys; with `timestamp`, the timestamps,
    too.
    """

    columns: tuple[str, ...]
    timestamp: bool = False

    def bind(self, values: Values) -> Same:
        """Return the comparison of two outputs."""
        read, text = _row_reader(values, self.columns), _row_text(values, self.columns)

        def same(old: Any, new: Any, old_ms: int, new_ms: int) -> bool:
            if self.timestamp and old_ms != new_ms:
                return False
            return text(read(old)) == text(read(new))

        return same


@dataclass(frozen=True)
class Tolerance:
    """The distance that a column may have from the last emitted value: `amount`, or a percentage of that
    value.

    Nothing is rounded: integers and decimals count as they are, a double by its shortest digits. So 0.3 and
    0.4 are within 0.1 of each other.
    """

    column: str
    amount: Decimal
    percent: bool = False

    def accepts(self, old: Any, new: Any) -> bool:
        """Return whether a value is near the last one. Null is only near null, NaN near NaN, an infinity near
        itself.

        Raises ConditionFailed for a value that is no number.
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
    """Near enough in the columns with a tolerance, and exactly equal in the others."""

    tolerances: tuple[Tolerance, ...]
    columns: tuple[str, ...]

    def bind(self, values: Values) -> Same:
        """Return the comparison of two outputs."""
        return self.over(values.field)

    def over(self, field: Callable[[str], Callable[[Any], Any]]) -> Same:
        """Return the comparison of two outputs; `field` returns the reader of a column."""
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
    """Compares by a SQL condition over `old.x` and `new.x`; null means that they differ."""

    condition: Condition
    columns: tuple[str, ...]

    def bind(self, values: Values) -> Same:
        """Return the comparison of two outputs, which raises ConditionFailed if the condition has
        no result.
        """
        read = _row_reader(values, self.columns)
        return lambda old, new, *_: self.condition.evaluate({"old": read(old), "new": read(new)}) is True


@dataclass(frozen=True)
class Function:
    """Compares by a Python function of the user's, `module:function`: of two dicts, to True or False."""

    name: str
    columns: tuple[str, ...]
    digest: str | None = None
    """The digest of its module's source (see `user_function.source_digest`); None: any."""

    def bind(self, values: Values) -> Same:
        """Return the comparison of two outputs. Raises UserFunctionFailed if there is no such function, or it
        fails.
        """
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
    """Return the function that hashes an output: SHA-256, in hex, of its compared columns."""
    read, text = _row_reader(values, equivalence.columns), _row_text(values, equivalence.columns)
    exact = isinstance(equivalence, Exact)
    timestamped = isinstance(equivalence, Serialized) and equivalence.timestamp

    def hashed(output: Any, timestamp: int) -> str:
        row = read(output)
        # 0.0 and -0.0 are equal to `Exact` but have different texts.
        compared = text(unsigned_zero(row) if exact else row)
        return hashlib.sha256(compared + (b"@%d" % timestamp if timestamped else b"")).hexdigest()

    return hashed


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
