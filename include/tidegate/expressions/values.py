"""Values of an expression, which are never null here: how they compare, and how numbers are computed.

Integers are Spark's bigint; `fit` checks narrower types. Floats are its double, decimals its decimal. A float
beside another number turns that number into a float; NaN equals NaN and is larger than every number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

EXACT = Context(prec=800)
"""Wide enough for every double, and for results of two decimals of 38 digits."""

LIMITS = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}
"""Type -> the limit: whole numbers are at least minus the limit, and below it."""

_DIGITS = 38


class Unfit(Exception):
    """There is no result: `what` happened, and the `fix`."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


def _matched(left: Any, right: Any) -> tuple[Any, Any]:
    """Return two numbers as Spark compares them: as doubles if one is a double; Python compares exactly."""
    return (float(left), float(right)) if float in (type(left), type(right)) else (left, right)


def equal(left: Any, right: Any) -> bool:
    """Compare as `=`."""
    if type(left) is not type(right):
        left, right = _matched(left, right)
    # only NaN differs from itself, and in Spark NaN equals NaN
    return bool(left == right or (left != left and right != right))


def less(left: Any, right: Any) -> bool:
    """Compare as `<`. Texts compare by code points, which is the order of their bytes in UTF-8."""
    if type(left) is not type(right):
        left, right = _matched(left, right)
    return bool(left == left if right != right else left < right)


def fit(number: int, kind: str) -> int:
    """Return the whole number. Raises Unfit if the type has no room for it."""
    if -LIMITS[kind] <= number < LIMITS[kind]:
        return number
    wider = "cast(x as double)" if kind == "bigint" else "cast(x as bigint)"
    raise Unfit(f"a whole number is too large for `{kind}`", f"Compute with `{wider}`.")


def bounded(result: Any) -> Any:
    """Return the result. Raises Unfit if Spark's type has no room for it."""
    if type(result) is int:
        return fit(result, "bigint")
    if type(result) is Decimal and result.adjusted() - min(0, int(result.as_tuple().exponent)) >= _DIGITS:
        raise Unfit(f"a decimal has more than {_DIGITS} digits", "Compute with `cast(x as double)`.")
    return result


def _arithmetic(plain: Callable[[Any, Any], Any], on_decimals: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation that is `plain` on two whole numbers and on two doubles."""

    def compute(left: Any, right: Any) -> Any:
        if type(left) is float or type(right) is float:
            return plain(float(left), float(right))
        if type(left) is Decimal or type(right) is Decimal:
            return bounded(on_decimals(left, right))
        return bounded(plain(left, right))

    return compute


add = _arithmetic(lambda a, b: a + b, EXACT.add)
subtract = _arithmetic(lambda a, b: a - b, EXACT.subtract)
multiply = _arithmetic(lambda a, b: a * b, EXACT.multiply)


def _not_zero(divisor: Any) -> Any:
    if divisor == 0:
        raise Unfit("it divides by zero", "Write `x / nullif(y, 0)`, which is null then.")
    return divisor


def divide(left: Any, right: Any) -> float:
    """Compute `/`, which is always a double. Raises Unfit for a divisor of 0."""
    return float(left) / float(_not_zero(right))


def whole_quotient(left: int, right: int) -> int:
    """Compute `div` of whole numbers, without the fraction. Raises Unfit for a divisor of 0."""
    # Python's // rounds down, SQL's `div` towards zero
    quotient = abs(left) // abs(_not_zero(right))
    return int(bounded(quotient if (left < 0) is (right < 0) else -quotient))


def remainder(left: Any, right: Any) -> Any:
    """Compute `%`, with the sign of the dividend. Raises Unfit for a divisor of 0."""
    return _remainder(left, _not_zero(right))


def _rest(left: Any, right: Any) -> Any:
    if type(left) is float:
        # math.fmod raises an error for an infinite dividend
        return math.nan if math.isinf(left) else math.fmod(left, right)
    # Python's % has the sign of the divisor, SQL's that of the dividend
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


_remainder = _arithmetic(_rest, EXACT.remainder)


def negate(value: Any) -> Any:
    """Compute unary minus. Raises Unfit on overflow."""
    return EXACT.minus(value) if type(value) is Decimal else bounded(-value)


def absolute(value: Any) -> Any:
    """Compute `abs`. Raises Unfit on overflow."""
    return EXACT.abs(value) if type(value) is Decimal else bounded(abs(value))
