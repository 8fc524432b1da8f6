"""Give an expression the types of its columns, by Spark's rules: find what does not fit, and add conversions.

The same pass runs when a file is read, where types may be unknown, and when a batch has its columns. A plan
stores only the tree: the meaning of names and operators was fixed when the text was read, and the text is not
read again. What the pass has added (`fit`, `widened`) it removes and adds again for other types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate.expressions.rows import KEY_KINDS, Tree
from tidegate.expressions.types import (
    ANY,
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    STRING,
    ColumnTypes,
    Type,
    Typed,
    Unfitting,
    arithmetic,
    column_type,
    comparable,
    constant,
    decimal,
    digits,
    fitted,
    group,
    integer_constant,
    united,
)
from tidegate.expressions.values import CASTS, LIMITS, Unfit

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
_ARITHMETIC = ("+", "-", "*", "/", "%", "div")
_WORDS = {"number": "a number", "string": "a text", "nested": "an array or map"}
_PLAIN: dict[str, tuple[tuple[str, ...], Type | None]] = {
    "abs": (("number",), None),
    "sqrt": (("number",), DOUBLE),
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
"""Function: the kinds of its arguments, and the type of its result; None: the type of the argument."""


def typed_expression(
    tree: Tree, columns: ColumnTypes | None, keys: ColumnTypes, condition: bool = False
) -> tuple[Typed, list[Unfitting]]:
    """Return an expression with its type, and all mistakes; a part with a mistake becomes null.

    Args:
        tree: A tree as it was read, or as a plan stores it.
        columns: The types of the columns; None if they could not be read.
        keys: The types of the key's columns.
        condition: Whether the result must be boolean.
    """
    typing = _Typing(columns, keys)
    typed = typing.boolean(tree, "the condition") if condition else typing.typed(tree)
    return typed, typing.mistakes


def typed_condition(tree: Tree, columns: ColumnTypes, keys: ColumnTypes) -> Tree:
    """Return the tree of a condition for these types of emitted columns and key columns.

    Raises Unfitting if the types do not fit the condition.

    Args:
        tree: The tree, as a plan stores it.
        columns: The types of the emitted columns and, with windows, of the window's columns.
        keys: The types of the key's columns.
    """
    typed, mistakes = typed_expression(tree, columns, keys, condition=True)
    if mistakes:
        raise mistakes[0]
    return typed.tree


class _Typing:
    """Types a tree: a method for each operation."""

    def __init__(self, columns: ColumnTypes | None, keys: ColumnTypes) -> None:
        self._columns = columns
        self._keys = keys
        self.mistakes: list[Unfitting] = []

    def typed(self, tree: Tree) -> Typed:
        """Return a part of the tree with its type; a part with a mistake is null."""
        operation, *operands = tree
        try:
            return OPERATIONS[operation](self, *operands)
        except Unfitting as mistake:
            self.mistakes.append(mistake)
            # Null of an unknown type fits everywhere, so one mistake causes no others.
            return Typed(("literal", None), None)

    def boolean(self, tree: Tree, label: str) -> Typed:
        """Return a part that must be boolean, which a mistake calls `label`."""
        operand = self.typed(tree)
        if group(operand.type) not in ("boolean", None):
            what = f"{label} is {operand.type and operand.type.text}, neither true nor false"
            self.mistakes.append(Unfitting(what, "Write a comparison, such as `total > 0`."))
        return operand

    def refused(self, message: str, fix: str) -> Typed:
        raise Unfitting(message, fix)

    # leaves

    def literal(self, value: Any, kind: str | None = None) -> Typed:
        return constant(value) if kind is None else integer_constant(value, kind)

    def column(self, *path: str) -> Typed:
        lowered = {name.lower() for name in (*(self._columns or ()), *self._keys)}
        if self._columns is not None and path[0].lower() not in lowered:
            raise Unfitting(f"the column `{path[0]}` does not exist", "Name a column that is emitted.")
        (name,), type_ = column_type([path[0]], self._columns)
        # A key's column has no fields, so a longer path is of the value.
        if len(path) == 1 and (key := self._key_column(name)) is not None:
            return key
        typed = _without_any(Typed(("column", name), type_))
        for field in path[1:]:
            typed = _field(typed, field)
        return typed

    def _key_column(self, name: str) -> Typed | None:
        """Return a column of the key, read from the key itself; None if it is a column of the value."""
        # If both have the name, the value's column is meant.
        if name.lower() in {column.lower() for column in self._columns or ()}:
            return None
        key = next((key for key in self._keys if key.lower() == name.lower()), None)
        return None if key is None else self.key(key, "string")

    def key(self, name: str | None, _: str) -> Typed:
        name = next(iter(self._keys), None) if name is None else name
        if name is None or name not in self._keys:
            raise Unfitting(f"the key column `{name or 'key'}` does not exist", "Name a column of the key.")
        type_ = self._keys[name]
        if type_ is not None and type_.kind not in KEY_KINDS:
            raise Unfitting(f"the key column `{name}` is {type_.text}", "Emit it: name it in the value, too.")
        kind = type_.kind if type_ else "string"
        return Typed(("key", name if len(self._keys) > 1 else None, kind), type_)

    def field(self, tree: Tree, name: str) -> Typed:
        return _field(self.typed(tree), name)

    # operators

    def arithmetic(self, operator: str, left: Tree, right: Tree) -> Typed:
        return arithmetic(operator, self.typed(left), self.typed(right))

    def compared(self, operator: str, left: Tree, right: Tree) -> Typed:
        operands = comparable(self.typed(left), self.typed(right))
        return Typed((operator, *(operand.tree for operand in operands)), BOOLEAN)

    def negative(self, tree: Tree) -> Typed:
        operand = self.typed(tree)
        if group(operand.type) not in ("number", None):
            raise Unfitting("a minus stands before what is not a number", "Write `cast(x as bigint)`.")
        return fitted(("negative", operand.tree), operand.type)

    def connected(self, name: str, *trees: Tree) -> Typed:
        operands = [self.boolean(tree, f"a side of `{name}`").tree for tree in trees]
        return Typed((name, *operands), BOOLEAN)

    def negation(self, tree: Tree) -> Typed:
        return Typed(("not", self.boolean(tree, "what `not` stands before").tree), BOOLEAN)

    def null(self, tree: Tree) -> Typed:
        return Typed(("null", self.typed(tree).tree), BOOLEAN)

    def is_(self, tree: Tree, truth: bool) -> Typed:
        return Typed(("is", self.boolean(tree, "what stands before `is`").tree, truth), BOOLEAN)

    def contained(self, *trees: Tree) -> Typed:
        items = [self.typed(tree) for tree in trees]
        for item in items[1:]:
            comparable(items[0], item)
        return Typed(("in", *(item.tree for item in united(items)[0])), BOOLEAN)

    def like(self, tree: Tree, *pattern: str) -> Typed:
        operand = self.typed(tree)
        if group(operand.type) not in ("string", None):
            what = f"`like` is of texts, not of {operand.type and operand.type.text}"
            raise Unfitting(what, "Compare it with `=`.")
        return Typed(("like", operand.tree, *pattern), BOOLEAN)

    # choices

    def case(self, *branches: Tree) -> Typed:
        *pairs, otherwise = branches
        conditions = [self.boolean(condition, "what `when` or `if` tests").tree for condition, _ in pairs]
        results = [self.typed(result) for result in (*(pair[1] for pair in pairs), otherwise)]
        (*alike, last), type_ = united(results)
        chosen = [(condition, result.tree) for condition, result in zip(conditions, alike, strict=True)]
        return Typed(("case", *chosen, last.tree), type_)

    def coalesce(self, *trees: Tree) -> Typed:
        alike, type_ = united([self.typed(tree) for tree in trees])
        return Typed(("coalesce", *(operand.tree for operand in alike)), type_)

    def extreme(self, name: str, *trees: Tree) -> Typed:
        alike, type_ = united([self.typed(tree) for tree in trees])
        if group(type_) == "nested":
            raise Unfitting(f"`{name}` takes single values", "Compare fields or elements.")
        return Typed((name, *(operand.tree for operand in alike)), type_)

    def nullif(self, *trees: Tree) -> Typed:
        value, excluded = map(self.typed, trees)
        comparable(value, excluded)
        return Typed(("nullif", value.tree, excluded.tree), value.type)

    # casts and functions

    def fit(self, _: str, tree: Tree) -> Typed:
        # The rules add it again if the new types need it.
        return self.typed(tree)

    def cast(self, to: str, tree: Tree) -> Typed:
        operand = self.typed(tree)
        kind = operand.type.kind if operand.type else None
        result = Type(to, to)
        if group(operand.type) not in ("number", "boolean", None, to):
            what = f"a condition cannot cast {operand.type and operand.type.text} to {to}"
            raise Unfitting(what, "Compute it in `select`.")
        # Numbers with a fraction have several spellings; an unknown type is known, and checked, at the batch.
        fraction = kind in ("float", "double", "decimal") or (kind is None and operand.tree[0] != "column")
        if to == "string" and fraction:
            what = f"what {'is' if kind else 'may be'} a number with a fraction is cast to string"
            raise Unfitting(what, "Compute the text in `select`, or compare numbers.")
        if operand.tree[0] != "literal" or group(operand.type) != "number":
            return Typed(("cast", to, operand.tree), result)
        # Folded now: the mistake of a constant that does not fit shows at load, and not in a batch.
        try:
            value = CASTS[to](operand.tree[1])
        except Unfit as unfit:
            raise Unfitting(unfit.what, unfit.fix) from None
        return integer_constant(value, to) if to in LIMITS else constant(value)

    def call(self, name: str, *trees: Tree) -> Typed:
        if name == "widened":  # a conversion that this pass has added; it is added again if types need it
            return self.typed(trees[0])
        operands = [self.typed(tree) for tree in trees]
        if name in _OWN:
            return _OWN[name](name, operands)
        takes, gives = _PLAIN[name]
        for kind, operand in zip(takes, operands, strict=True):
            _require(name, kind, operand)
        return fitted(("call", name, *(operand.tree for operand in operands)), gives or operands[0].type)


def _without_any(operand: Typed) -> Typed:
    return Typed(operand.tree, None) if operand.type and operand.type.kind == ANY.kind else operand


def _field(outer: Typed, name: str) -> Typed:
    """Return a field of a struct, or the value of a map. Raises Unfitting if there is none."""
    if outer.type is not None and outer.type.kind == "map":
        return Typed(("call", "of_key", outer.tree, ("literal", name)), outer.type.parts[1])
    # Spark finds fields without regard to case; the value's own spelling is used to read it.
    fields = {inner.lower(): (inner, type_) for inner, type_ in (outer.type.fields if outer.type else ())}
    if outer.type is not None and name.lower() not in fields:
        what = f"the field `{name}` is taken out of {outer.type.text}"
        raise Unfitting(what, "Name a field of a struct.")
    inner, type_ = fields.get(name.lower(), (name, None))
    path = outer.tree if outer.tree[0] == "column" else ("field", outer.tree)
    return _without_any(Typed((*path, inner), type_))


def _require(name: str, kind: str, operand: Typed) -> None:
    if group(operand.type) not in (kind, None) or (operand.type and operand.type.kind == "struct"):
        message = f"`{name}` takes {_WORDS[kind]}, not {operand.type and operand.type.text}"
        raise Unfitting(message, "Give it what it takes; `cast(x as string)` makes a text of a whole number.")


def _require_whole(what: str, operand: Typed) -> None:
    if operand.type is not None and operand.type.kind not in ("void", "tinyint", "smallint", "int"):
        raise Unfitting(f"the number of {what} is {operand.type.text}", "Write `cast(n as int)`.")


def _concat(name: str, operands: list[Typed]) -> Typed:
    for operand in operands:
        _require(name, "string", operand)
    return Typed(("call", name, *(operand.tree for operand in operands)), STRING)


def _substring(name: str, operands: list[Typed]) -> Typed:
    _require(name, "string", operands[0])
    for operand in operands[1:]:
        _require_whole("a text's character", operand)
    return Typed(("call", name, *(operand.tree for operand in operands)), STRING)


def _element(name: str, operands: list[Typed]) -> Typed:
    """Type `xs[0]`, `m['key']` or `get(xs, 0)`."""
    outer, index = operands
    if outer.type is None:
        return Typed(("call", name, outer.tree, index.tree), None)
    if outer.type.kind == "map" and name != "get":
        comparable(Typed(("column",), outer.type.parts[0]), index)  # of the stand-in only the type counts
        return Typed(("call", "of_key", outer.tree, index.tree), outer.type.parts[1])
    if outer.type.kind != "array":
        fix = "Write `s.field` for a struct's field, `m['key']` for a map's value."
        raise Unfitting(f"an element by its number is taken out of {outer.type.text}", fix)
    _require_whole("an array's element", index)
    return Typed(("call", "get" if name == "get" else "at", outer.tree, index.tree), outer.type.parts[0])


def _integral(name: str, operands: list[Typed]) -> Typed:
    """Type `floor` or `ceil`: the result is a bigint, or a decimal if the argument is one."""
    _require(name, "number", operands[0])
    type_ = operands[0].type
    if type_ and type_.kind == "decimal":
        size, scale = digits(operands[0])
        # One digit more for a carry, which needs a fraction.
        type_ = decimal(min(38, size - scale + (scale > 0)), 0)
    elif type_:
        type_ = BIGINT
    return Typed(("call", name, operands[0].tree), type_)


def _round(name: str, operands: list[Typed]) -> Typed:
    """Type `round(x)` or `round(x, n)` with a constant n; a decimal keeps the digits that are left."""
    _require(name, "number", operands[0])
    type_ = operands[0].type
    count = operands[1].tree[1] if len(operands) > 1 and operands[1].tree[0] == "literal" else 0
    if len(operands) > 1 and (operands[1].tree[0] != "literal" or type(count) is not int or count < 0):
        raise Unfitting("the digits of `round` are no constant", "Write a number, such as `round(x, 2)`.")
    if type_ and type_.kind == "float":
        raise Unfitting("`round` computes with float", "Write `cast(x as double)`.")
    if type_ and type_.kind == "decimal":
        size, scale = digits(operands[0])
        remaining = min(scale, count)
        # One digit more for a carry.
        type_ = decimal(min(38, size - scale + 1 + remaining), remaining)
    return Typed(("call", name, *(operand.tree for operand in operands)), type_)


_OWN: dict[str, Callable[[str, list[Typed]], Typed]] = {
    "concat": _concat,
    "substring": _substring,
    "round": _round,
    **dict.fromkeys(("at", "of_key", "get"), _element),
    **dict.fromkeys(("floor", "ceil"), _integral),
}


def _operation(method: Callable[..., Typed], operation: str) -> Callable[..., Typed]:
    """Return a method that several operations share, with the operation as its first argument."""
    return lambda typing, *operands: method(typing, operation, *operands)


OPERATIONS: dict[str, Callable[..., Typed]] = {
    "refused": _Typing.refused,
    "literal": _Typing.literal,
    "column": _Typing.column,
    "key": _Typing.key,
    "field": _Typing.field,
    **{name: _operation(_Typing.arithmetic, name) for name in _ARITHMETIC},
    **{name: _operation(_Typing.compared, name) for name in _COMPARISONS},
    **{name: _operation(_Typing.connected, name) for name in ("and", "or")},
    "negative": _Typing.negative,
    "not": _Typing.negation,
    "null": _Typing.null,
    "is": _Typing.is_,
    "in": _Typing.contained,
    "like": _Typing.like,
    "case": _Typing.case,
    "coalesce": _Typing.coalesce,
    **{name: _operation(_Typing.extreme, name) for name in ("least", "greatest")},
    "nullif": _Typing.nullif,
    "fit": _Typing.fit,
    "cast": _Typing.cast,
    "call": _Typing.call,
}
"""Every operation of `tidegate.expressions.rows`, and `refused` for a part that no condition can have."""
