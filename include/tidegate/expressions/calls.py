"""The functions that a condition may call: the types of their arguments and results.

To add a function, add a row to `_PLAIN` here, and to `tidegate.expressions.functions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, timezone

from tidegate.expressions.functions import FUNCTIONS
from tidegate.expressions.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    INTEGERS,
    STRING,
    Type,
    Typed,
    Unfitting,
    comparable,
    constant,
    decimal,
    digits,
    fitted,
    group,
    integer_constant,
    united,
)
from tidegate.expressions.values import Unfit, fit

# Name: the kinds of its arguments, and the type of its result; None: the type of the argument.
_PLAIN: dict[str, tuple[tuple[str, ...], Type | None]] = {
    "abs": (("number",), None),
    "sqrt": (("number",), DOUBLE),
    "pow": (("number", "number"), DOUBLE),
    "sign": (("number",), DOUBLE),
    "isnan": (("number",), BOOLEAN),
    "length": (("string",), INT),
    "lower": (("string",), STRING),
    "upper": (("string",), STRING),
    "trim": (("string",), STRING),
    "startswith": (("string", "string"), BOOLEAN),
    "endswith": (("string", "string"), BOOLEAN),
    "contains": (("string", "string"), BOOLEAN),
    "size": (("nested",), INT),
}
_ALIASES = {
    "char_length": "length",
    "substr": "substring",
    "power": "pow",
    "nvl": "coalesce",
    "ifnull": "coalesce",
}
_MANY = 1000
_NUMBERS = {
    **{name: (len(takes), len(takes)) for name, (takes, _) in _PLAIN.items()},
    **dict.fromkeys(("nullif", "nvl", "ifnull", "array_contains"), (2, 2)),
    **dict.fromkeys(("floor", "ceil", "isnull", "isnotnull", "char_length"), (1, 1)),
    **dict.fromkeys(("least", "greatest"), (2, _MANY)),
    **dict.fromkeys(("if", "nvl2"), (3, 3)),
    **dict.fromkeys(("coalesce", "concat"), (1, _MANY)),
    "power": (2, 2),
    **dict.fromkeys(("substring", "substr"), (2, 3)),
    **dict.fromkeys(("get", "element_at", "try_element_at", "regexp_like"), (2, 2)),
    "round": (1, 2),
}
NAMES = tuple(sorted(_NUMBERS))
"""Every function that a condition may call, besides `cast`."""


def require_number_of_arguments(name: str, count: int) -> None:
    """Raise Unfitting if a function cannot take so many arguments.

    Example: `require_number_of_arguments("substring", 1)` raises Unfitting, since it takes 2 or 3.
    """
    least, most = _NUMBERS[name]
    if not least <= count <= most:
        allowed = (
            str(least) if least == most else f"{least} or more" if most == _MANY else f"{least} or {most}"
        )
        raise Unfitting(f"`{name}` takes {allowed} arguments, not {count}", "Write as many.")


def call(name: str, operands: list[Typed]) -> Typed:
    """Return the call of a function with the right number of arguments.

    Raises Unfitting if types do not fit.

    Example: `call("length", [constant("abc")])` has the type `int`.
    """
    name = _ALIASES.get(name, name)
    if name in _OWN:
        return _OWN[name](operands)
    takes, gives = _PLAIN[name]
    for kind, operand in zip(takes, operands, strict=True):
        _require(name, kind, operand)
    return fitted(("call", name, *(operand.tree for operand in operands)), gives or operands[0].type)


def cast(operand: Typed, to: str) -> Typed:
    """Return a cast to string, a whole number, double or boolean.

    Raises Unfitting for other casts, and where Spark's result cannot be reproduced exactly.
    """
    if to in INTEGERS and to != "bigint":
        # One cast to 64 bits, then a check of the range, gives Spark's result and its overflow error.
        return _narrowed(cast(operand, "bigint"), Type(to, to))
    result = {"string": STRING, "bigint": BIGINT, "double": DOUBLE, "boolean": BOOLEAN}[to]
    kind = operand.type.kind if operand.type else None
    if group(operand.type) not in ("number", "string", "boolean", None):
        fix = "Compute it in `select`."
        raise Unfitting(f"a condition cannot cast {operand.type and operand.type.text} to {to}", fix)
    if to == "string":
        _require_one_spelling(operand, kind)
    tree = ("call", f"to_{to}", operand.tree)
    # Folded now: the mistake of a constant that does not fit shows at load, and not in a batch.
    if operand.tree[0] == "literal" and group(operand.type) == "number":
        try:
            value = FUNCTIONS[f"to_{to}"](operand.tree[1])
            return integer_constant(value, to) if to in INTEGERS else constant(value)
        except Unfit as unfit:
            raise Unfitting(unfit.what, unfit.fix) from None
    return Typed(tree, result)


def _narrowed(operand: Typed, to: Type) -> Typed:
    if operand.tree[0] != "literal" or operand.tree[1] is None:
        return fitted(operand.tree, to)
    try:
        return integer_constant(fit(operand.tree[1], to.kind), to.kind)
    except Unfit as unfit:
        raise Unfitting(unfit.what, unfit.fix) from None


_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[ T]([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)


def instant(written: str, kind: str) -> Typed:
    """Return a constant of the kind `date`, `timestamp` or `timestamp_ntz`. Raises Unfitting if it is not
    one.

    Example: `instant("2026-01-31 10:30:00", "timestamp")`
    """
    parts = _TIME.fullmatch(written)
    day, time, zone = parts.groups() if parts else (None, None, None)
    with suppress(ValueError, OverflowError):  # OverflowError: in UTC the year is not one of 1 to 9999
        if kind == "date" and day and not time:
            return constant(date.fromisoformat(day))
        if kind != "date" and day and (zone is None or kind == "timestamp"):
            form = "%Y-%m-%d %H:%M:%S.%f" if time and "." in time else "%Y-%m-%d %H:%M:%S"
            value = datetime.strptime(f"{day} {time or '00:00:00'}", form)
            if kind == "timestamp":
                value = datetime.fromisoformat(f"{value.isoformat()}{(zone or 'Z').replace('Z', '+00:00')}")
                value = value.astimezone(timezone.utc)
            return constant(value)
    example = "2026-01-31" if kind == "date" else "2026-01-31 10:30:00"
    raise Unfitting(f"{written!r} is not a {kind} here", f"Write it as in `{kind}'{example}'`.")


def element(outer: Typed, index: Typed) -> Typed:
    """Return `outer[index]`, for an array (from 0 on) or a map. Raises Unfitting for other types.

    Args:
        outer: The array or the map.
        index: The position from 0 on, or the key.
    """
    if outer.type is not None and outer.type.kind == "map":
        # Only the type of the stand-in counts.
        comparable(Typed(("column",), outer.type.parts[0]), index)
        return Typed(("call", "of_key", outer.tree, index.tree), outer.type.parts[1])
    return _array_element("at", outer, index)


def _array_element(function: str, array: Typed, index: Typed) -> Typed:
    if array.type is not None and array.type.kind != "array":
        fix = "Write `s.field` for a struct's field, `m['key']` for a map's value."
        raise Unfitting(f"an element by its number is taken out of {array.type.text}", fix)
    if array.type is not None:
        _require_whole("an array's element", index)
    tree = ("call", function, array.tree, index.tree)
    return Typed(tree, array.type.parts[0] if array.type else None)


def field(outer: Typed, name: str) -> Typed:
    """Return a field of a struct. Raises Unfitting if there is no such field."""
    if outer.type is None:
        return Typed(("field", outer.tree, name), None)
    # Spark finds fields without regard to case; the value's own spelling is used to read it.
    fields = {inner.lower(): (inner, type_) for inner, type_ in outer.type.fields}
    if name.lower() not in fields:
        raise Unfitting(f"the field `{name}` is taken out of {outer.type.text}", "Name a field of a struct.")
    inner, type_ = fields[name.lower()]
    return Typed(("field", outer.tree, inner), type_)


def _require_whole(what: str, operand: Typed) -> None:
    kind = operand.type.kind if operand.type else None
    if kind not in (None, "void", "tinyint", "smallint", "int"):
        raise Unfitting(
            f"the number of {what} is {operand.type and operand.type.text}", "Write `cast(n as int)`."
        )


def _require_one_spelling(operand: Typed, kind: str | None) -> None:
    """Raise Unfitting for a cast to text of a type with several spellings, such as a number with a
    fraction.
    """
    if kind in (*INTEGERS, "string", "boolean", "void"):
        return
    # The type is known when the batch has its columns, and this check runs again.
    if kind is None and operand.tree[0] == "column":
        return
    what = "a number with a fraction" if kind else "what may be a number with a fraction"
    raise Unfitting(f"{what} is cast to string", "Compute the text in `select`, or compare numbers.")


def _require(name: str, kind: str, operand: Typed) -> None:
    if group(operand.type) not in (kind, None) or (operand.type and operand.type.kind == "struct"):
        words = {"number": "a number", "string": "a text", "nested": "an array or map"}
        message = f"`{name}` takes {words[kind]}, not {operand.type and operand.type.text}"
        raise Unfitting(message, "Give it what it takes; `cast(x as string)` makes a text of a whole number.")


# functions whose types depend on their arguments


def _concat(operands: list[Typed]) -> Typed:
    for operand in operands:
        _require("concat", "string", operand)
    return Typed(("call", "concat", *(operand.tree for operand in operands)), STRING)


def _coalesce(operands: list[Typed]) -> Typed:
    alike, type_ = united(operands)
    return Typed(("coalesce", *(operand.tree for operand in alike)), type_)


def _extreme(name: str) -> Callable[[list[Typed]], Typed]:
    def read(operands: list[Typed]) -> Typed:
        alike, type_ = united(operands)
        if group(type_) == "nested":
            raise Unfitting(f"`{name}` takes single values", "Compare fields or elements.")
        return Typed((name, *(operand.tree for operand in alike)), type_)

    return read


def _nullif(operands: list[Typed]) -> Typed:
    comparable(*operands)
    return Typed(("nullif", *(operand.tree for operand in operands)), operands[0].type)


def _nvl2(operands: list[Typed]) -> Typed:
    alike, type_ = united(operands[1:])
    not_null = ("not", ("null", operands[0].tree))
    return Typed(("case", (not_null, alike[0].tree), alike[1].tree), type_)


def _isnull(operands: list[Typed]) -> Typed:
    return Typed(("null", operands[0].tree), BOOLEAN)


def _isnotnull(operands: list[Typed]) -> Typed:
    return Typed(("not", ("null", operands[0].tree)), BOOLEAN)


def _array_contains(operands: list[Typed]) -> Typed:
    array, value = operands
    if array.type and array.type.kind != "array":
        raise Unfitting(f"`array_contains` takes an array, not {array.type.text}", "Write `x in (…)`.")
    element = array.type.parts[0] if array.type else None
    comparable(Typed(("column",), element), value)
    return Typed(("call", "array_contains", array.tree, value.tree), BOOLEAN)


def _substring(operands: list[Typed]) -> Typed:
    _require("substring", "string", operands[0])
    for operand in operands[1:]:
        _require_whole("a text's character", operand)
    return Typed(("call", "substring", *(operand.tree for operand in operands)), STRING)


def _element(name: str) -> Callable[[list[Typed]], Typed]:
    """Return the reader of `get`, `element_at` or `try_element_at`, for arrays."""
    return lambda operands: _array_element(name, *operands)


def _round(operands: list[Typed]) -> Typed:
    _require("round", "number", operands[0])
    places = operands[1].tree[1] if len(operands) > 1 and operands[1].tree[0] == "literal" else None
    # Constant: the type of the result depends on it. `type()`, because True is an int for `isinstance`.
    if len(operands) > 1 and (type(places) is not int or not -38 <= places <= 38):
        raise Unfitting("`round` needs a whole number of places", "Write for example `round(x, 2)`.")
    if operands[0].type and operands[0].type.kind == "float":
        raise Unfitting("`round` rounds float, which has half of a double's digits", "Use a double.")
    type_ = operands[0].type
    if type_ and type_.kind == "decimal":
        size, scale = digits(operands[0])
        # Spark's type of `round(decimal, places)`: one digit more, because rounding can carry.
        new_scale = max(0, min(scale, places or 0))
        type_ = decimal(min(38, size - scale + 1 + new_scale), new_scale)
    return fitted(("call", "round", *(operand.tree for operand in operands)), type_)


def _integral(name: str) -> Callable[[list[Typed]], Typed]:
    """Return the reader of `floor` or `ceil`: the result is a bigint, or a decimal if the argument is one."""

    def read(operands: list[Typed]) -> Typed:
        _require(name, "number", operands[0])
        type_ = operands[0].type
        if type_ and type_.kind == "decimal":
            size, scale = digits(operands[0])
            # One digit more for a carry, which needs a fraction.
            type_ = decimal(min(38, size - scale + (scale > 0)), 0)
        elif type_:
            type_ = BIGINT
        return Typed(("call", name, operands[0].tree), type_)

    return read


_OWN: dict[str, Callable[[list[Typed]], Typed]] = {
    "concat": _concat,
    "coalesce": _coalesce,
    "least": _extreme("least"),
    "greatest": _extreme("greatest"),
    "nullif": _nullif,
    "nvl2": _nvl2,
    "isnull": _isnull,
    "isnotnull": _isnotnull,
    "array_contains": _array_contains,
    "round": _round,
    "substring": _substring,
    **{name: _element(name) for name in ("get", "element_at", "try_element_at")},
    "floor": _integral("floor"),
    "ceil": _integral("ceil"),
}
