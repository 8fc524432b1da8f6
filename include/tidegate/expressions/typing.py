"""Type a compiled condition again, for other types of columns than it was compiled with.

A file alone does not tell all types, and a plan stores only the compiled tree. The operations that types add
to a tree (`fit`, `widened`) are removed and added again by the same rules as when the text was read. The
meaning of names and operators was fixed then, and the text is not read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate.expressions import Tree
from tidegate.expressions import calls as functions
from tidegate.expressions.rows import KEY_KINDS
from tidegate.expressions.types import (
    BOOLEAN,
    ColumnTypes,
    Typed,
    Unfitting,
    arithmetic,
    column_type,
    comparable,
    constant,
    fitted,
    group,
    integer_constant,
    united,
)

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
_ARITHMETIC = ("+", "-", "*", "/", "%", "div")
_FUNCTIONS = ("coalesce", "nullif", "least", "greatest")
_CAST = "to_"
_ELEMENTS = ("at", "of_key")


def typed_condition(tree: Tree, columns: ColumnTypes, keys: ColumnTypes) -> Tree:
    """Return the tree of a condition for these types of emitted columns and key columns.

    Raises Unfitting if the types do not fit the condition.

    Args:
        tree: The compiled tree, as a plan stores it.
        columns: The types of the emitted columns and, with windows, of the window's columns.
        keys: The types of the key's columns.
    """
    return _Types(columns, keys).boolean(tree, "the condition").tree


def column(path: list[str], columns: ColumnTypes | None, keys: ColumnTypes) -> Typed:
    """Return a column or field of the value, or else a column of the key.

    Raises Unfitting if it cannot be used.
    """
    names, type_ = column_type(path, columns)
    # A key's column has no fields, so a longer path is of the value.
    if len(names) == 1 and (key := _key(names[0], columns, keys)) is not None:
        return key
    return Typed(("column", *names), None if type_ and type_.kind == "any" else type_)


def require_boolean(operand: Typed, label: str) -> None:
    """Raise Unfitting, which calls the operand `label`, if the operand is certainly not boolean."""
    if group(operand.type) not in ("boolean", None):
        what = f"{label} is {operand.type and operand.type.text}, neither true nor false"
        raise Unfitting(what, "Write a comparison, such as `total > 0`.")


def compared(operator: str, left: Typed, right: Typed) -> Typed:
    """Return a comparison. Raises Unfitting if both sides cannot be compared.

    Example: `compared("<", Typed(("column", "n"), INT), constant(1.5))`
    """
    left, right = comparable(left, right)
    return Typed((operator, left.tree, right.tree), BOOLEAN)


def contained(items: list[Typed]) -> Typed:
    """Return the test whether the first item is equal to one of the rest.

    Raises Unfitting if types do not fit.
    """
    for item in items[1:]:
        comparable(items[0], item)
    return Typed(("in", *(item.tree for item in united(items)[0])), BOOLEAN)


def choice(conditions: list[Tree], results: list[Typed]) -> Typed:
    """Return a CASE: the result of the first condition that is true, otherwise the last result.

    Raises Unfitting if the results have no common type.
    """
    alike, type_ = united(results)
    branches = [(condition, result.tree) for condition, result in zip(conditions, alike, strict=False)]
    return Typed(("case", *branches, alike[-1].tree), type_)


def negated(operand: Typed) -> Typed:
    """Return the negative of an operand that is not a constant. Raises Unfitting if it is not a number."""
    if group(operand.type) not in ("number", None):
        raise Unfitting("a minus stands before what is not a number", "Write `cast(x as bigint)`.")
    return fitted(("negative", operand.tree), operand.type)


def require_text(operand: Typed, name: str) -> None:
    """Raise Unfitting if the operand of `like` or `rlike` (`name`) is certainly not a text."""
    if group(operand.type) not in ("string", None):
        what = f"`{name}` is of texts, not of {operand.type and operand.type.text}"
        raise Unfitting(what, "Compare it with `=`.")


def _key(name: str, columns: ColumnTypes | None, keys: ColumnTypes) -> Typed | None:
    """Return a column of the key, read from the key itself; None if it is a column of the value."""
    key = next((key for key in keys if key.lower() == name.lower()), None)
    # If both have the name, the value's column is meant, as when the text was read.
    if key is None or name.lower() in {column.lower() for column in columns or ()}:
        return None
    type_ = keys[key]
    if type_ is not None and type_.kind not in KEY_KINDS:
        raise Unfitting(f"the key column `{key}` is {type_.text}", "Emit it: name it in the value, too.")
    return Typed(("key", key if len(keys) > 1 else None, type_.kind if type_ else "string"), type_)


class _Types:
    """Types a tree: a method for each operation."""

    def __init__(self, columns: ColumnTypes, keys: ColumnTypes) -> None:
        self._columns = columns
        self._keys = keys

    def typed(self, tree: Tree) -> Typed:
        """Return a part of the tree with its type."""
        operation, *operands = tree
        return OPERATIONS[operation](self, *operands)

    def boolean(self, tree: Tree, label: str) -> Typed:
        operand = self.typed(tree)
        require_boolean(operand, label)
        return operand

    # leaves

    def literal(self, value: Any, kind: str | None = None) -> Typed:
        return constant(value) if kind is None else integer_constant(value, kind)

    def column(self, *path: str) -> Typed:
        lowered = {name.lower() for name in (*self._columns, *self._keys)}
        if path[0].lower() not in lowered:
            raise Unfitting(f"the column `{path[0]}` does not exist", "Name a column that is emitted.")
        return column(list(path), self._columns, self._keys)

    def key(self, name: str | None, _: str) -> Typed:
        name = next(iter(self._keys), None) if name is None else name
        key = None if name is None else _key(name, None, self._keys)
        if key is None:
            raise Unfitting(f"the key column `{name or 'key'}` does not exist", "Name a column of the key.")
        return key

    # what types add

    def fit(self, kind: str, tree: Tree) -> Typed:
        # A narrowed cast is stored as `fit` around a cast to bigint, and becomes one cast again.
        is_cast = tree[:2] == ("call", f"{_CAST}bigint")
        return functions.cast(self.typed(tree[2]), kind) if is_cast else self.typed(tree)

    # operators

    def arithmetic(self, operator: str, left: Tree, right: Tree) -> Typed:
        return arithmetic(operator, self.typed(left), self.typed(right))

    def compared(self, operator: str, left: Tree, right: Tree) -> Typed:
        return compared(operator, self.typed(left), self.typed(right))

    def negative(self, tree: Tree) -> Typed:
        return negated(self.typed(tree))

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
        return contained([self.typed(tree) for tree in trees])

    def pattern(self, name: str, tree: Tree, *pattern: str) -> Typed:
        operand = self.typed(tree)
        require_text(operand, name)
        return Typed((name, operand.tree, *pattern), BOOLEAN)

    # choices and calls

    def case(self, *branches: Tree) -> Typed:
        *pairs, otherwise = branches
        conditions = [self.boolean(condition, "what `when` stands before").tree for condition, _ in pairs]
        return choice(
            conditions, [self.typed(result) for result in (*(pair[1] for pair in pairs), otherwise)]
        )

    def field(self, tree: Tree, name: str) -> Typed:
        return functions.field(self.typed(tree), name)

    def function(self, name: str, *trees: Tree) -> Typed:
        return functions.call(name, [self.typed(tree) for tree in trees])

    def call(self, name: str, *trees: Tree) -> Typed:
        # A conversion that types have added; the rules add it again if the new types need it.
        if name == "widened":
            return self.typed(trees[0])
        if name.startswith(_CAST):
            return functions.cast(self.typed(trees[0]), name.removeprefix(_CAST))
        if name in _ELEMENTS:
            return functions.element(self.typed(trees[0]), self.typed(trees[1]))
        return self.function(name, *trees)


def _operation(method: Callable[..., Typed], operation: str) -> Callable[..., Typed]:
    """Return a method that several operations share, with the operation as its first argument."""
    return lambda types, *operands: method(types, operation, *operands)


OPERATIONS: dict[str, Callable[..., Typed]] = {
    "literal": _Types.literal,
    "column": _Types.column,
    "key": _Types.key,
    "fit": _Types.fit,
    **{name: _operation(_Types.arithmetic, name) for name in _ARITHMETIC},
    **{name: _operation(_Types.compared, name) for name in _COMPARISONS},
    **{name: _operation(_Types.connected, name) for name in ("and", "or")},
    **{name: _operation(_Types.pattern, name) for name in ("like", "rlike")},
    **{name: _operation(_Types.function, name) for name in _FUNCTIONS},
    "negative": _Types.negative,
    "not": _Types.negation,
    "null": _Types.null,
    "is": _Types.is_,
    "in": _Types.contained,
    "case": _Types.case,
    "field": _Types.field,
    "call": _Types.call,
}
"""Every operation of `tidegate.expressions.rows`."""
