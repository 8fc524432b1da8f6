"""Evaluate an expression on one row: its tree becomes one Python function.

The row loop of the kernel needs a verdict on each output before it folds the next record, and outputs of
aggregates exist as Python values only. One call of Arrow costs a hundred times as much as these functions
(decision 72); `expressions.columns` evaluates whole columns.

A tree is a tuple `(operation, *operands)`. The operands are trees, except in these forms: `("literal",
value)` (with a third part if the value does not show the type), `("column", name, field, …)`, `("key", name
or None, type)`, `("field", tree, name)`, `("like", tree, pattern, escape)`, `("is", tree, value)`, `("cast",
type, tree)`, `("fit", type, tree)`, `("call", function, *trees)` and `("case", (condition, result), …,
otherwise)`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from tidegate.expressions import values
from tidegate.expressions.values import CASTS, FUNCTIONS, Unfit, equal, less

Tree = tuple[Any, ...]
Row = Mapping[str, Any]
Part = Callable[[Row], Any]


def compiled(tree: Tree) -> Part:
    """Return the function of a tree. The function raises Unfit if there is no result.

    Example: `compiled(("+", ("column", "a"), ("literal", 1)))({"a": 2})` is 3.
    """
    operation, *operands = tree
    if operation in _FORMS:
        return _FORMS[operation](*operands)
    return _OPERATORS[operation](*map(compiled, operands))


def like_pattern(pattern: str, escape: str) -> str:
    """Return the regular expression of a LIKE. Raises ValueError for a wrong `escape`."""
    parts = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == escape:
            at += 1
            if pattern[at : at + 1] not in ("_", "%", escape):
                raise ValueError(f"{escape!r} has to stand before `%`, `_` or itself")
            parts.append(re.escape(pattern[at]))
        else:
            parts.append({"_": ".", "%": ".*"}.get(character, re.escape(character)))
        at += 1
    return "".join(parts)


# leaves


KEY = "__key"
"""The name of the entry's canonical key in a row."""


def _date(part: str) -> date:
    """Return a key's text as a date. Raises Unfit: Spark writes years that Python does not support."""
    try:
        return date.fromisoformat(part)
    except ValueError:
        raise Unfit(f"{part} is no date of the years 1 to 9999", "Keep it out with `select`.") from None


_KEY_PARTS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
    "string": str,
    "boolean": lambda part: part in (True, "true"),
    "date": _date,
    "decimal": lambda part: Decimal(str(part)),
}
KEY_KINDS = frozenset(_KEY_PARTS)
"""The types of key columns that can be read from a canonical key."""


def _key(name: str | None, kind: str) -> Part:
    """Return the reader of a key column: the key's text, or a field of its JSON object."""
    read = _KEY_PARTS[kind]
    if name is None:
        return lambda row: read(row[KEY])
    # Decimals must stay exact: a float would lose digits.
    return lambda row: read(json.loads(row[KEY], parse_float=Decimal)[name])


def _column(name: str, *fields: str) -> Part:
    if not fields:
        return lambda row: row[name]
    return _field(("column", name, *fields[:-1]), fields[-1])


def _field(tree: Tree, name: str) -> Part:
    struct = compiled(tree)
    return lambda row: None if (value := struct(row)) is None else value[name]


# operators: null where an operand is


def _strict(operation: Callable[..., Any]) -> Callable[[Part, Part], Part]:
    def build(left: Part, right: Part) -> Part:
        def part(row: Row) -> Any:
            a = left(row)
            if a is None:
                return None
            b = right(row)
            return None if b is None else operation(a, b)

        return part

    return build


def _divisor_first(operation: Callable[[Any, Any], Any]) -> Callable[[Part, Part], Part]:
    """Compute the divisor first, as Spark does: if it is null, the dividend cannot fail."""
    swapped = _strict(lambda b, a: operation(a, b))
    return lambda left, right: swapped(right, left)


def _unary(operation: Callable[[Any], Any]) -> Callable[[Part], Part]:
    return lambda operand: lambda row: None if (value := operand(row)) is None else operation(value)


def _connected(decides: bool) -> Callable[..., Part]:
    """Build `and` (which False decides) or `or` (which True decides), with SQL's three values."""

    def build(*operands: Part) -> Part:
        def part(row: Row) -> bool | None:
            result: bool | None = not decides
            for operand in operands:
                value = operand(row)
                if value is decides:
                    return value
                if value is None:
                    # no early end: a later value still decides the whole
                    result = None
            return result

        return part

    return build


def _same(left: Part, right: Part) -> Part:
    """Compare as `<=>`, which is never null."""

    def part(row: Row) -> bool:
        a, b = left(row), right(row)
        return a is b if a is None or b is None else equal(a, b)

    return part


def _in(operand: Part, *items: Part) -> Part:
    def part(row: Row) -> bool | None:
        value = operand(row)
        if value is None:
            return None
        result: bool | None = False
        for item in items:
            candidate = item(row)
            if candidate is None:
                # a null among the items might be equal: unknown, as in SQL
                result = None
            elif equal(value, candidate):
                return True
        return result

    return part


# choices


def _case(*branches: Tree) -> Part:
    pairs = [(compiled(condition), compiled(result)) for condition, result in branches[:-1]]
    otherwise = compiled(branches[-1])

    def part(row: Row) -> Any:
        for condition, result in pairs:
            if condition(row):
                return result(row)
        return otherwise(row)

    return part


def _coalesce(*operands: Part) -> Part:
    def part(row: Row) -> Any:
        for operand in operands:
            value = operand(row)
            if value is not None:
                return value
        return None

    return part


def _nullif(left: Part, right: Part) -> Part:
    def part(row: Row) -> Any:
        value = left(row)
        if value is None:
            return None
        excluded = right(row)
        return None if excluded is not None and equal(value, excluded) else value

    return part


def _extreme(better: Callable[[Any, Any], bool]) -> Callable[..., Part]:
    """Build `least` and `greatest`, which ignore nulls."""

    def build(*operands: Part) -> Part:
        def part(row: Row) -> Any:
            best = None
            for operand in operands:
                value = operand(row)
                if value is not None and (best is None or better(value, best)):
                    best = value
            return best

        return part

    return build


# functions


def _fit(kind: str, tree: Tree) -> Part:
    """Return the whole number if the type has room for it."""
    operand, limit = compiled(tree), values.LIMITS[kind]

    def part(row: Row) -> Any:
        value = operand(row)
        # tested here too: a call of `values.fit` per row would only be needed for its error
        return value if value is None or -limit <= value < limit else values.fit(value, kind)

    return part


def _like(tree: Tree, pattern: str, escape: str) -> Part:
    # as in SQL, `%` and `_` also match line ends
    matches = re.compile(like_pattern(pattern, escape), re.DOTALL).fullmatch
    return _unary(lambda value: matches(value) is not None)(compiled(tree))


def _is(tree: Tree, expected: bool) -> Part:
    operand = compiled(tree)
    return lambda row: operand(row) is expected


def _call(name: str, *trees: Tree) -> Part:
    function = FUNCTIONS[name]
    operands = [compiled(tree) for tree in trees]
    if name == "isnan":
        # as in Spark, `isnan(null)` is false and not null
        return lambda row: (value := operands[0](row)) is not None and function(value)
    if len(operands) == 1:
        return _unary(function)(operands[0])

    def part(row: Row) -> Any:
        arguments = []
        for operand in operands:
            value = operand(row)
            if value is None:
                return None
            arguments.append(value)
        return function(*arguments)

    return part


_FORMS: dict[str, Callable[..., Part]] = {
    "literal": lambda value, kind=None: lambda row: value,
    "column": _column,
    "key": _key,
    "field": _field,
    "is": _is,
    "like": _like,
    "case": _case,
    "cast": lambda kind, tree: _unary(CASTS[kind])(compiled(tree)),
    "fit": _fit,
    "call": _call,
}
_OPERATORS: dict[str, Callable[..., Part]] = {
    "+": _strict(values.add),
    "-": _strict(values.subtract),
    "*": _strict(values.multiply),
    "/": _divisor_first(values.divide),
    "%": _divisor_first(values.remainder),
    "div": _divisor_first(values.whole_quotient),
    "negative": _unary(values.negate),
    "=": _strict(equal),
    "<>": _strict(lambda a, b: not equal(a, b)),
    "<": _strict(less),
    ">": _strict(lambda a, b: less(b, a)),
    "<=": _strict(lambda a, b: not less(b, a)),
    ">=": _strict(lambda a, b: not less(a, b)),
    "<=>": _same,
    "and": _connected(False),
    "or": _connected(True),
    "not": _unary(lambda value: not value),
    "null": lambda operand: lambda row: operand(row) is None,
    "in": _in,
    "coalesce": _coalesce,
    "nullif": _nullif,
    "least": _extreme(less),
    "greatest": _extreme(lambda value, best: less(best, value)),
}
