"""When two values are the same to `on: change`. One small unit per way.

`bind` gives a comparison of two outputs of one batch; see `reduce.Values` for what an output is.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tidegate.core.compare import equal
from tidegate.core.condition import Condition
from tidegate.core.reduce import Values
from tidegate.core.serialize import serialize
from tidegate.errors import ConditionFailed, UserFunctionFailed

Same = Callable[[Any, Any, int, int], bool]
"""(last emitted, now, timestamp of that, timestamp of this) -> whether they are the same."""


class Equivalence(Protocol):
    """A way to compare."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are looked at."""
        ...

    def bind(self, values: Values) -> Same:
        """The comparison of two outputs."""
        ...


@dataclass(frozen=True)
class Exact:
    """Null-safe equality of each column; NaN is NaN, and 0.0 is -0.0."""

    columns: tuple[str, ...]

    def bind(self, values: Values) -> Same:
        """The comparison of two outputs."""
        fields = [values.field(name) for name in self.columns]
        return lambda old, new, *_: all(equal(read(old), read(new)) for read in fields)


@dataclass(frozen=True)
class Serialized:
    """Byte for byte, as JSON; with `timestamp`, that too."""

    columns: tuple[str, ...]
    timestamp: bool = False

    def bind(self, values: Values) -> Same:
        """The comparison of two outputs."""
        read = _row_reader(values, self.columns)

        def same(old: Any, new: Any, old_ms: int, new_ms: int) -> bool:
            if self.timestamp and old_ms != new_ms:
                return False
            return serialize(read(old)) == serialize(read(new))

        return same


@dataclass(frozen=True)
class Tolerance:
    """How far a column may be from the last emitted value: `amount`, or, as `percent`, so much of that."""

    column: str
    amount: float
    percent: bool = False

    def accepts(self, old: Any, new: Any) -> bool:
        """Null is near nothing but null, NaN nothing but NaN."""
        if old is None or new is None or old != old or new != new:
            return equal(old, new)
        if old == new:
            return True
        try:
            difference = abs(float(new) - float(old))
        except (TypeError, ValueError):
            fix = "Take `within` for numbers only; other columns are compared exactly."
            raise ConditionFailed(f"The column {self.column} is {new!r}, which is no number", fix) from None
        return difference <= (abs(float(old)) * self.amount / 100 if self.percent else self.amount)


@dataclass(frozen=True)
class Within:
    """Near enough in the columns that have a tolerance, and exactly equal in the others."""

    tolerances: tuple[Tolerance, ...]
    columns: tuple[str, ...]

    def bind(self, values: Values) -> Same:
        """The comparison of two outputs."""
        tests = dict.fromkeys(self.columns, equal) | {each.column: each.accepts for each in self.tolerances}
        pairs = [(values.field(name), test) for name, test in tests.items()]

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

    def bind(self, values: Values) -> Same:
        """The comparison of two outputs. Raises UserFunctionFailed when there is no such function."""
        function = self._load()
        read = _row_reader(values, self.columns)

        def same(old: Any, new: Any, *_: int) -> bool:
            try:
                answer = function(read(old), read(new))
            except Exception as error:
                raise self._failed(f"raised {type(error).__name__}: {error}") from error
            if not isinstance(answer, bool):
                raise self._failed(f"gave {answer!r}, which is neither True nor False")
            return answer

        return same

    def _load(self) -> Callable[[Any, Any], Any]:
        module, _, name = self.name.partition(":")
        try:
            found = getattr(importlib.import_module(module), name)
        except Exception as error:
            raise self._failed(f"cannot be imported: {type(error).__name__}: {error}") from error
        if not callable(found):
            raise self._failed("is not a function")
        return found  # type: ignore[no-any-return]  # it was found by name

    def _failed(self, how: str) -> UserFunctionFailed:
        return UserFunctionFailed(
            f"The function {self.name} {how}", "Correct it and run again; nothing is lost."
        )


def digest(equivalence: Equivalence, values: Values) -> Callable[[Any, int], str]:
    """What stands for an output that is remembered as a hash: SHA-256, in hex, of its compared columns."""
    read = _row_reader(values, equivalence.columns)
    exact = isinstance(equivalence, Exact)
    timestamped = isinstance(equivalence, Serialized) and equivalence.timestamp

    def of(output: Any, timestamp: int) -> str:
        row = read(output)
        text = serialize(_unsigned_zero(row) if exact else row)
        return hashlib.sha256(text + (b"@%d" % timestamp if timestamped else b"")).hexdigest()

    return of


def _unsigned_zero(value: Any) -> Any:
    """The value with every -0.0 as 0.0: they are equal, so they must have one hash."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {name: _unsigned_zero(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_unsigned_zero(each) for each in value]
    return value


def _row_reader(values: Values, columns: tuple[str, ...]) -> Callable[[Any], dict[str, Any]]:
    fields = [(name, values.field(name)) for name in columns]
    return lambda output: {name: read(output) for name, read in fields}
