"""Values of an expression, which are never null here: how they compare, and how numbers are computed.

Integers are Spark's bigint; `fit` checks narrower types. Floats are its double, decimals its decimal. A float
beside another number turns that number into a float; NaN equals NaN and is larger than every number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
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


def _to_whole(kind: str) -> Callable[[Any], int]:
    """Return the cast to an integer type, without the fraction; NaN and numbers beyond the type fail."""

    def cast(value: Any) -> int:
        if type(value) is float and not math.isfinite(value):
            raise Unfit(f"{value!r} is not a whole number", "Test it before the cast, with `case when`.")
        return fit(int(value), kind)

    return cast


def _to_string(value: Any) -> str:
    return str(value) if type(value) is not bool else "true" if value else "false"


CASTS: dict[str, Callable[[Any], Any]] = {
    "string": _to_string,
    "double": float,
    "boolean": lambda value: value != 0,
    **{kind: _to_whole(kind) for kind in LIMITS},
}
"""Type -> the cast of a number or a boolean to it."""


def _integral(to_whole: Callable[[Any], int], rounding: str) -> Callable[[Any], Any]:
    """Return `floor` or `ceil`: of doubles a long, as the JVM converts it; of decimals a decimal."""
    limit = LIMITS["bigint"]

    def compute(value: Any) -> Any:
        if type(value) is Decimal:
            return value.to_integral_value(rounding)
        if value != value:
            return 0
        return to_whole(value) if -limit <= value < limit else limit - 1 if value > 0 else -limit

    return compute


def _round(value: Any, digits: int = 0) -> Any:
    """Round a half away from zero: a double by its shortest text, as the JVM does."""
    if type(value) is int or value != value or value in (math.inf, -math.inf):
        return value
    exact = value if type(value) is Decimal else Decimal(repr(value))
    if -int(exact.as_tuple().exponent) > digits:
        exact = exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, EXACT)
    # the JVM's decimals have no -0
    return exact if type(value) is Decimal else float(exact) + 0.0


def _sqrt(value: Any) -> float:
    return math.nan if value < 0 else math.sqrt(value)


def _sign(value: Any) -> float:
    number = float(value)
    return number if number == 0 or number != number else math.copysign(1.0, number)


def _substring(value: str, start: int, length: int = 2**31 - 1) -> str:
    """Count characters from 1 on, or from the end if `start` is below 0."""
    first = start - 1 if start > 0 else len(value) + start if start < 0 else 0
    # Spark counts in 32 bits, and stops at the limit
    last = min(first + length, 2**31 - 1)
    return value[max(first, 0) : max(last, 0)] if last > first else ""


def _at(array: Any, index: int) -> Any:
    """Return `array[index]`, counted from 0."""
    if 0 <= index < len(array):
        return array[index]
    what = f"an array of {len(array)} has no element at {index}"
    raise Unfit(what, "Write `get(xs, i)`, which is null then.")


def _of_key(entries: Any, key: Any) -> Any:
    """Return a map's value; null if it does not have the key."""
    pairs = entries.items() if isinstance(entries, dict) else entries
    return next((value for name, value in pairs if equal(name, key)), None)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": absolute,
    "floor": _integral(math.floor, ROUND_FLOOR),
    "ceil": _integral(math.ceil, ROUND_CEILING),
    "round": _round,
    "sqrt": _sqrt,
    "sign": _sign,
    "isnan": lambda value: value != value,
    "length": len,
    "lower": str.lower,
    "upper": str.upper,
    "trim": lambda value: value.strip(" "),
    "concat": lambda *parts: "".join(parts),
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": str.__contains__,
    "substring": _substring,
    "size": len,
    "at": _at,
    "get": lambda array, index: array[index] if 0 <= index < len(array) else None,
    "of_key": _of_key,
    "widened": float,
}
"""Name -> function. The result is null if an argument is null, except of `isnan`, which is false then."""
