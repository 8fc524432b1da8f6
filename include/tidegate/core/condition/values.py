"""Values of a condition, which are never null here: how they compare, and how numbers are computed.

Integers are Spark's bigint, and where the type is narrower they are made to `fit`; floats are its double,
decimals its decimal. A float beside another number makes that one a float; NaN equals NaN and is larger than
every number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

EXACT = Context(prec=800)
"""Wide enough for every double, and for what two decimals of 38 digits give."""

LIMITS = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}
"""Whole numbers are at least minus this, and below it."""

_DIGITS = 38
_SINGLE = frozenset({int, str, bool, bytes, date, datetime})
_NUMBERS = frozenset({int, float, Decimal})


class Unfit(Exception):
    """There is no result: what happened, and the fix."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


def number(value: Any) -> Any:
    """The number itself."""
    if type(value) in _NUMBERS:
        return value
    raise Unfit(f"{value!r} is not a number", "Compute with numbers; of a text, write `cast(x as double)`.")


def text(value: Any) -> str:
    """The text itself."""
    if type(value) is str:
        return value
    raise Unfit(f"{value!r} is not a text", "Write `cast(x as string)`.")


def truth(value: Any) -> bool:
    """The boolean itself."""
    if value is True or value is False:
        return value
    raise Unfit(f"{value!r} is neither true nor false", "Write a comparison, such as `x > 0`.")


def matched(left: Any, right: Any) -> tuple[Any, Any]:
    """Two values of one type, if they can be compared."""
    left_kind, right_kind = type(left), type(right)
    if left_kind is right_kind and (left_kind in _SINGLE or left_kind in _NUMBERS):
        return left, right
    if left_kind in _NUMBERS and right_kind in _NUMBERS:
        return (float(left), float(right)) if float in (left_kind, right_kind) else (left, right)
    fix = "Compare single values of one kind: numbers with numbers, texts with texts."
    raise Unfit(f"{left!r} and {right!r} cannot be compared", fix)


def equal(left: Any, right: Any) -> bool:
    """As `=`."""
    if type(left) is not type(right) or type(left) not in _SINGLE:
        left, right = matched(left, right)
    return bool(left == right or (left != left and right != right))


def less(left: Any, right: Any) -> bool:
    """As `<`."""
    if type(left) is not type(right) or type(left) not in _SINGLE:
        left, right = matched(left, right)
    if right != right:
        return bool(left == left)
    try:
        return bool(left < right)
    except TypeError:
        fix = "Make both `timestamp`, or both `timestamp_ntz`."
        raise Unfit(f"{left!r} and {right!r} cannot be compared", fix) from None


def unified(values: list[Any]) -> list[Any]:
    """All of one type: floats where one of them is."""
    if any(type(value) is float for value in values):
        return [float(number(value)) for value in values]
    return values


# arithmetic


def fit(number: int, kind: str) -> int:
    """The whole number, if the type has room for it."""
    if -LIMITS[kind] <= number < LIMITS[kind]:
        return number
    wider = "cast(x as double)" if kind == "bigint" else "cast(x as bigint)"
    raise Unfit(f"a whole number is too large for `{kind}`", f"Compute with `{wider}`.")


def bounded(result: Any) -> Any:
    """The result, unless Spark cannot hold it."""
    if type(result) is int:
        return fit(result, "bigint")
    if type(result) is Decimal and result.adjusted() - min(0, int(result.as_tuple().exponent)) >= _DIGITS:
        raise Unfit(f"a decimal has more than {_DIGITS} digits", "Compute with `cast(x as double)`.")
    return result


def _arithmetic(plain: Callable[[Any, Any], Any], on_decimals: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that is `plain` on two whole numbers and on two doubles."""

    def compute(left: Any, right: Any) -> Any:
        if type(left) is float or type(right) is float:
            return plain(float(number(left)), float(number(right)))
        if type(left) is Decimal or type(right) is Decimal:
            return bounded(on_decimals(number(left), number(right)))
        return bounded(plain(number(left), number(right)))

    return compute


add = _arithmetic(lambda a, b: a + b, EXACT.add)
subtract = _arithmetic(lambda a, b: a - b, EXACT.subtract)
multiply = _arithmetic(lambda a, b: a * b, EXACT.multiply)


def _not_zero(divisor: Any) -> Any:
    if number(divisor) == 0:
        raise Unfit("it divides by zero", "Write `x / nullif(y, 0)`, which is null then.")
    return divisor


def divide(left: Any, right: Any) -> float:
    """As `/`: always a double."""
    _not_zero(right)
    if float not in (type(left), type(right)) and Decimal in (type(left), type(right)):
        fix = "Write `cast(x as double) / y`."
        raise Unfit("it divides decimals, whose result Spark rounds by their declared types", fix)
    return float(number(left)) / float(right)


def whole_quotient(left: int, right: int) -> int:
    """As `div`: of whole numbers, without the fraction."""
    _not_zero(right)
    quotient = abs(number(left)) // abs(right)
    return int(bounded(quotient if (left < 0) is (right < 0) else -quotient))


def remainder(left: Any, right: Any) -> Any:
    """As `%`: with the sign of what is divided."""
    _not_zero(right)
    return _remainder(left, right)


def _rest(left: Any, right: Any) -> Any:
    if type(left) is float:
        return math.nan if math.isinf(left) else math.fmod(left, right)
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


_remainder = _arithmetic(_rest, EXACT.remainder)


def negate(value: Any) -> Any:
    """As a minus sign."""
    return EXACT.minus(value) if type(value) is Decimal else bounded(-number(value))


def absolute(value: Any) -> Any:
    """As `abs`."""
    return EXACT.abs(value) if type(value) is Decimal else bounded(abs(number(value)))


def rounded(value: Any, digits: int) -> Any:
    """As `round`: a half goes away from zero, by the digits that the number is written with."""
    kind = type(number(value))
    if kind is int and digits >= 0:
        return value
    if kind is float and not math.isfinite(value):
        return value
    exact = Decimal(repr(value)) if kind is float else Decimal(value)
    if kind is Decimal:
        digits = min(digits, -int(exact.as_tuple().exponent))
    result = exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, EXACT)
    if kind is Decimal:
        return bounded(EXACT.quantize(result, Decimal(1)) if digits < 0 else result)
    return bounded(int(result)) if kind is int else float(result) + 0.0
