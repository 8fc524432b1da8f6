"""Values of a condition, which are never null here: how they compare, and how numbers are computed.

Integers are Spark's bigint; `fit` checks narrower types. Floats are its double, decimals its decimal. A float
beside another number turns that number into a float; NaN equals NaN and is larger than every number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

EXACT = Context(prec=800)
"""Wide enough for every double, and for results of two decimals of 38 digits."""

LIMITS = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}
"""Type -> the limit: whole numbers are at least minus the limit, and below it."""

_DIGITS = 38
_SINGLE = frozenset({int, str, bool, bytes, date, datetime})
_NUMBERS = frozenset({int, float, Decimal})


class Unfit(Exception):
    """There is no result: `what` happened, and the `fix`."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


def number(value: Any) -> Any:
    """Return the number. Raises Unfit if the value is no number."""
    if type(value) in _NUMBERS:
        return value
    raise Unfit(f"{value!r} is not a number", "Compute with numbers; of a text, write `cast(x as double)`.")


def text(value: Any) -> str:
    """Return the text. Raises Unfit if the value is no text."""
    if type(value) is str:
        return value
    raise Unfit(f"{value!r} is not a text", "Write `cast(x as string)`.")


def truth(value: Any) -> bool:
    """Return the boolean. Raises Unfit if the value is no boolean."""
    if value is True or value is False:
        return value
    raise Unfit(f"{value!r} is neither true nor false", "Write a comparison, such as `x > 0`.")


def matched(left: Any, right: Any) -> tuple[Any, Any]:
    """Return two values as one type. Raises Unfit if they cannot be compared."""
    left_kind, right_kind = type(left), type(right)
    # exact types: Python's bool is also an int, and a datetime also a date
    if left_kind is right_kind and (left_kind in _SINGLE or left_kind in _NUMBERS):
        return left, right
    if left_kind in _NUMBERS and right_kind in _NUMBERS:
        return (float(left), float(right)) if float in (left_kind, right_kind) else (left, right)
    fix = "Compare single values of one kind: numbers with numbers, texts with texts."
    raise Unfit(f"{left!r} and {right!r} cannot be compared", fix)


def equal(left: Any, right: Any) -> bool:
    """Compare as `=`. Raises Unfit if the values cannot be compared."""
    if type(left) is not type(right) or type(left) not in _SINGLE:
        left, right = matched(left, right)
    # only NaN differs from itself, and in Spark NaN equals NaN
    return bool(left == right or (left != left and right != right))


def less(left: Any, right: Any) -> bool:
    """Compare as `<`. Raises Unfit if the values cannot be compared."""
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
    """Return all values as one type: floats if one of them is a float. Raises Unfit for a value that is no
    number.
    """
    if any(type(value) is float for value in values):
        return [float(number(value)) for value in values]
    return values


# arithmetic


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
    """Compute `/`, which is always a double. Raises Unfit for a divisor of 0, and for decimals."""
    _not_zero(right)
    if float not in (type(left), type(right)) and Decimal in (type(left), type(right)):
        fix = "Write `cast(x as double) / y`."
        raise Unfit("it divides decimals, whose result Spark rounds by their declared types", fix)
    return float(number(left)) / float(right)


def whole_quotient(left: int, right: int) -> int:
    """Compute `div` of whole numbers, without the fraction. Raises Unfit for a divisor of 0."""
    _not_zero(right)
    # Python's // rounds down, SQL's `div` towards zero
    quotient = abs(number(left)) // abs(right)
    return int(bounded(quotient if (left < 0) is (right < 0) else -quotient))


def remainder(left: Any, right: Any) -> Any:
    """Compute `%`, with the sign of the dividend. Raises Unfit for a divisor of 0."""
    _not_zero(right)
    return _remainder(left, right)


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
    return EXACT.minus(value) if type(value) is Decimal else bounded(-number(value))


def absolute(value: Any) -> Any:
    """Compute `abs`. Raises Unfit on overflow."""
    return EXACT.abs(value) if type(value) is Decimal else bounded(abs(number(value)))


def rounded(value: Any, digits: int) -> Any:
    """Compute `round`: a half is rounded away from zero, by the digits that the number is written with.

    Example: `rounded(2.675, 2)` is 2.68. Raises Unfit if the value is no number, or the result is too large.
    """
    kind = type(number(value))
    if kind is int and digits >= 0:
        return value
    if kind is float and not math.isfinite(value):
        return value
    # Spark rounds a double by its shortest digits: 2.675 becomes 2.68, although its binary value is below it.
    exact = Decimal(repr(value)) if kind is float else Decimal(value)
    if kind is Decimal:
        digits = min(digits, -int(exact.as_tuple().exponent))
    result = exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, EXACT)
    if kind is Decimal:
        return bounded(EXACT.quantize(result, Decimal(1)) if digits < 0 else result)
    return bounded(int(result)) if kind is int else float(result) + 0.0
