"""The functions of a condition, over values that are never null here. `FUNCTIONS` has one row for each.

To add one: add a row here, and its argument and result types in `tidegate.expressions.calls`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from tidegate.expressions.power import java_pow
from tidegate.expressions.values import (
    Unfit,
    absolute,
    bounded,
    equal,
    number,
    rounded,
    text,
)

# what Spark trims from a text before a cast: the blank and ASCII's control characters
_BLANKS = "".join(map(chr, [*range(33), 127]))
_WHOLE = re.compile(r"[+-]?[0-9]+")
_FRACTION = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?")
_NAMED = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
    "nan": math.nan,
}
_TRUTHS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
_LONG = (-(2**63), 2**63 - 1)


# casts


def to_string(value: Any) -> str:
    """Cast values that have only one text; numbers with a fraction do not. Raises Unfit for others.

    Example: `to_string(True)` is `true`, `to_string(7)` is `7`.
    """
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in (str, int):
        return str(value)
    fix = "Cast whole numbers and booleans only; compare other numbers as numbers."
    raise Unfit(f"{value!r} is not written as text in one way alone", fix)


def to_bigint(value: Any) -> int:
    """Cast to a whole number, without the fraction. Raises Unfit for other texts, and if it
    exceeds 64 bits.
    """
    if type(value) is str:
        stripped = value.strip(_BLANKS)
        if not _WHOLE.fullmatch(stripped):
            raise _not_a(value, "whole number")
        return int(bounded(int(stripped)))
    if type(value) is bool:
        return int(value)
    if type(number(value)) is float and not math.isfinite(value):
        raise _not_a(value, "whole number")
    return int(bounded(int(value)))


def to_double(value: Any) -> float:
    """Cast to the nearest double. Raises Unfit for a text that is not a number."""
    if type(value) is not str:
        return float(value if type(value) is bool else number(value))
    stripped = value.strip(_BLANKS)
    if stripped.lower() in _NAMED:
        return _NAMED[stripped.lower()]
    match = _FRACTION.fullmatch(stripped)
    if not match:
        raise _not_a(value, "number")
    return float(match[1])


def to_boolean(value: Any) -> bool:
    """Cast a number (true if it is not 0) or one of the words for true and false. Raises Unfit for other
    texts.
    """
    if type(value) is not str:
        return value if type(value) is bool else bool(number(value) != 0)
    if (word := value.strip(_BLANKS).lower()) in _TRUTHS:
        return _TRUTHS[word]
    raise _not_a(value, "boolean")


def _not_a(value: Any, what: str) -> Unfit:
    return Unfit(f"{value!r} is not a {what}", "Test it before the cast, for example with `case when`.")


def widened(value: Any) -> float:
    """Return a number as a double, because the other operands are doubles. Raises Unfit."""
    return float(number(value))


# numbers


def _floor(value: Any) -> Any:
    if type(number(value)) is Decimal:
        return value.to_integral_value(ROUND_FLOOR)
    return _saturated(value, math.floor)


def _ceil(value: Any) -> Any:
    if type(number(value)) is Decimal:
        return value.to_integral_value(ROUND_CEILING)
    return _saturated(value, math.ceil)


def _saturated(value: Any, to_whole: Callable[[Any], int]) -> int:
    """Convert a double to a long as the JVM does: NaN is 0, and larger numbers become the limit."""
    if value != value:
        return 0
    least, most = _LONG
    return to_whole(value) if least <= value <= most else (most if value > 0 else least)


def _sqrt(value: Any) -> float:
    value = float(number(value))
    return math.nan if value < 0 else math.sqrt(value)


def _sign(value: Any) -> float:
    value = float(number(value))
    return value if value == 0 or value != value else math.copysign(1.0, value)


def _power(base: Any, exponent: Any) -> float:
    base, exponent = float(number(base)), float(number(exponent))
    # Java gives NaN, where Python, as C, gives 1
    if exponent != exponent or (abs(base) == 1 and math.isinf(exponent)):
        return math.nan
    if not base or not exponent or not math.isfinite(base) or not math.isfinite(exponent):
        return _power_of_limits(base, exponent)
    return math.nan if base < 0 and exponent % 1 else java_pow(base, exponent)


def _power_of_limits(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except ValueError:  # Python refuses 0 to a negative power; Java gives an infinity
        return math.copysign(math.inf, base) if exponent % 2 == 1 else math.inf


def _isnan(value: Any) -> bool:
    return bool(number(value) != value)


# texts and lists


def _concat(*parts: Any) -> str:
    return "".join(map(text, parts))


def _substring(value: Any, start: Any, length: Any = 2**31 - 1) -> str:
    """Count characters from 1 on, or from the end if `start` is below 0."""
    characters = text(value)
    first = start - 1 if start > 0 else len(characters) + start if start < 0 else 0
    # Spark counts in 32 bits, and stops at the limit
    last = min(first + length, 2**31 - 1)
    return characters[max(first, 0) : max(last, 0)] if last > first else ""


def _size(value: Any) -> int:
    if isinstance(value, (list, tuple, dict)):
        return len(value)
    raise Unfit(f"{value!r} has no size", "Use `length(x)` for a text; `size` is of an array or map.")


def _at(array: Any, index: Any) -> Any:
    """Return `array[index]`, counted from 0."""
    if not isinstance(array, (list, tuple)) or type(index) is not int:
        raise Unfit(f"{array!r} has no element {index!r}", "Take elements by their number, out of an array.")
    if 0 <= index < len(array):
        return array[index]
    raise _no_such(array, f"at {index}", "get(xs, i)")


def _get(array: Any, index: Any) -> Any:
    return array[index] if 0 <= index < len(array) else None


def _element_at(array: Any, index: Any) -> Any:
    """Return an element counted from 1, or from the end if `index` is below 0."""
    if 0 < abs(index) <= len(array):
        return array[index - 1 if index > 0 else index]
    raise _no_such(array, f"number {index}", "try_element_at(xs, n)")


def _try_element_at(array: Any, index: Any) -> Any:
    if index == 0:
        raise _no_such(array, "number 0", "try_element_at(xs, n)")
    return _element_at(array, index) if abs(index) <= len(array) else None


def _no_such(array: Any, what: str, fix: str) -> Unfit:
    return Unfit(f"an array of {len(array)} has no element {what}", f"Write `{fix}`, which is null then.")


def _map_value(entries: Any, key: Any) -> Any:
    """Return a map's value; null if it does not have the key."""
    pairs = entries.items() if isinstance(entries, dict) else entries
    return next((value for name, value in pairs if equal(name, key)), None)


def _array_contains(array: Any, value: Any) -> bool | None:
    if not isinstance(array, (list, tuple)):
        raise Unfit(f"{array!r} is not an array", "Write `x in (…)`, or `contains(x, y)` for a text.")
    if any(element is not None and equal(element, value) for element in array):
        return True
    # a null element might be equal: unknown, as in SQL
    return None if any(element is None for element in array) else False


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": absolute,
    "round": lambda value, digits=0: rounded(value, digits),
    "floor": _floor,
    "ceil": _ceil,
    "sqrt": _sqrt,
    "pow": _power,
    "sign": _sign,
    "length": lambda value: len(text(value)),
    "lower": lambda value: text(value).lower(),
    "upper": lambda value: text(value).upper(),
    "trim": lambda value: text(value).strip(" "),
    "concat": _concat,
    "startswith": lambda value, part: text(value).startswith(text(part)),
    "endswith": lambda value, part: text(value).endswith(text(part)),
    "contains": lambda value, part: text(part) in text(value),
    "size": _size,
    "substring": _substring,
    "at": _at,
    "get": _get,
    "element_at": _element_at,
    "try_element_at": _try_element_at,
    "of_key": _map_value,
    "array_contains": _array_contains,
    "to_string": to_string,
    "to_bigint": to_bigint,
    "to_double": to_double,
    "to_boolean": to_boolean,
    "widened": widened,
    "isnan": _isnan,
}
"""Name -> function. The result is null if an argument is null; exceptions are in `compiler`."""
