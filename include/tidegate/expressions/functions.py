"""The functions and casts of an expression, on values that are never null: one row for each.

To add one, add a row here, its types in `expressions.typing`, its name in `model.condition` and, if Arrow
computes exactly the same, its form on whole columns in `expressions.columns`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any

from tidegate.expressions.values import EXACT, LIMITS, Unfit, absolute, equal, fit


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
