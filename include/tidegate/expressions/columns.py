"""Evaluate an expression on whole columns with Arrow, with the results of `rows`.

Arrow computes all branches of all rows, so it also fails on what Spark would not compute, and it names no
row. If a row fails, or an operation has no counterpart in Arrow that is exactly Spark's, there is no column,
and the caller evaluates row by row (decision 72).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.expressions.rows import Tree, like_pattern
from tidegate.expressions.values import LIMITS

Column = Any
"""An Arrow array, or an Arrow scalar where a part is constant. Integers are int64, as in `values`."""


class _NoColumn(Exception):
    """There is no exact counterpart in Arrow."""


def column_of(tree: Tree, rows: pa.StructArray) -> pa.Array | None:
    """Return the values of a typed expression; None if they must be computed row by row.

    Args:
        tree: An expression over the fields of `rows`.
        rows: One struct per row; an expression over a null struct has a value that means nothing.

    Example: `column_of(("<", ("column", "n"), ("literal", 3)), pa.array([{"n": 1}]))` is `[true]`.
    """
    try:
        result = _evaluated(tree, rows)
    except (_NoColumn, pa.ArrowException):
        return None
    return result if isinstance(result, pa.Array) else pa.repeat(result, len(rows))


def typed_column(tree: Tree, rows: pa.StructArray, type_: pa.DataType) -> pa.Array | None:
    """Return the values of a typed expression in its own type; None if they must be computed row by row.

    Args:
        tree: An expression over the fields of `rows`.
        rows: One struct per row, none of them null.
        type_: The type of the expression.

    Example: with the type int32, `("column", "n")` of `pa.array([{"n": 1}])` is the column itself as int32.
    """
    # a copy of a column can have any type, also one with which nothing is computed
    is_copy = tree[0] == "column" and len(tree) == 2
    column = rows.field(tree[1]) if is_copy else column_of(tree, rows)
    if column is None or column.type == type_:
        return column
    try:
        return column.cast(type_)
    except pa.ArrowException:
        return None


def _evaluated(tree: Tree, rows: pa.StructArray) -> Column:
    operation, *operands = tree
    if operation == "literal":
        return _plain(pa.scalar(operands[0]))
    if operation == "column":
        return _plain(pc.struct_field(rows, operands))
    if operation == "field":
        return _plain(pc.struct_field(_evaluated(operands[0], rows), operands[1]))
    if operation == "case":
        return _case(rows, *operands)
    if operation in _FORMS:
        return _FORMS[operation](
            *(_evaluated(part, rows) if isinstance(part, tuple) else part for part in operands)
        )
    name, parts = (operands[0], operands[1:]) if operation == "call" else (operation, operands)
    if name not in _OPERATIONS:
        raise _NoColumn
    return _OPERATIONS[name](*(_evaluated(part, rows) for part in parts))


def _plain(column: Column) -> Column:
    """Return integers as int64 and floats as doubles; `fit` checks the widths of integers."""
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.float64()) if pa.types.is_float32(column.type) else column


def _double(column: Column) -> Column:
    # Arrow's double of a decimal is not always the nearest one.
    if pa.types.is_decimal(column.type):
        raise _NoColumn
    return pc.cast(column, pa.float64(), safe=False)


def _whole(column: Column) -> Column:
    """Return doubles without a fraction as int64; there is none if one is NaN or has no room."""
    if not pa.types.is_floating(column.type):
        return column
    # Arrow's own check depends on the processor's conversion of numbers that are too large.
    if pc.any(pc.invert(pc.less(pc.abs(column), float(LIMITS["bigint"])))).as_py():
        raise _NoColumn
    return pc.cast(column, pa.int64())


# comparisons


def _is_nan(column: Column) -> Column:
    return pc.is_nan(column) if pa.types.is_floating(column.type) else pc.and_not(pc.is_null(column), True)


def _equal(left: Column, right: Column) -> Column:
    same = pc.equal(left, right)
    if not pa.types.is_floating(left.type) or not pa.types.is_floating(right.type):
        return same
    return pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))


def _less(left: Column, right: Column) -> Column:
    below = pc.less(left, right)
    if not pa.types.is_floating(left.type) or not pa.types.is_floating(right.type):
        return below
    # NaN is larger than every number
    return pc.or_(below, pc.and_(pc.is_nan(right), pc.invert(pc.is_nan(left))))


def _certain(condition: Column) -> Column:
    return pc.fill_null(condition, False)


def _same(left: Column, right: Column) -> Column:
    return pc.or_(_certain(_equal(left, right)), pc.and_(pc.is_null(left), pc.is_null(right)))


def _in(value: Column, *items: Column) -> Column:
    return reduce(pc.or_kleene, (_equal(value, item) for item in items))


# arithmetic


def _divide(left: Column, right: Column) -> Column:
    return pc.divide_checked(_double(left), _double(right))


def _quotient(left: Column, right: Column) -> Column:
    if not (pa.types.is_int64(left.type) and pa.types.is_int64(right.type)):
        raise _NoColumn
    return pc.divide_checked(left, right)


def _remainder(left: Column, right: Column) -> Column:
    return pc.subtract(left, pc.multiply(_quotient(left, right), right))


def _sign(column: Column) -> Column:
    number = _double(column)
    # Arrow's sign of -0.0 is 0.0
    return pc.if_else(pc.equal(number, 0.0), number, pc.sign(number))


def _integral(compute: Callable[[Column], Column]) -> Callable[[Column], Column]:
    """Build `floor` and `ceil`: of a decimal without room for one digit more, Arrow makes 0."""

    def on_column(column: Column) -> Column:
        if pa.types.is_decimal(column.type):
            raise _NoColumn
        return _whole(compute(column))

    return on_column


def _fit(kind: str, column: Column) -> Column:
    limit = LIMITS[kind]
    if pc.any(pc.or_(pc.less(column, -limit), pc.greater_equal(column, limit))).as_py():
        raise _NoColumn
    return column


def _cast(kind: str, column: Column) -> Column:
    if pa.types.is_decimal(column.type):
        raise _NoColumn
    if kind == "double":
        return _double(column)
    if kind == "boolean":
        return column if pa.types.is_boolean(column.type) else pc.not_equal(column, 0)
    if kind == "string":
        return pc.cast(column, pa.string())
    whole = _whole(pc.trunc(column)) if pa.types.is_floating(column.type) else pc.cast(column, pa.int64())
    return whole if kind == "bigint" else _fit(kind, whole)


# choices


def _case(rows: pa.StructArray, *branches: Tree) -> Column:
    result = _evaluated(branches[-1], rows)
    for condition, chosen in reversed(branches[:-1]):
        result = pc.if_else(_certain(_evaluated(condition, rows)), _evaluated(chosen, rows), result)
    return result


def _nullif(value: Column, excluded: Column) -> Column:
    return pc.if_else(_certain(_equal(value, excluded)), pa.scalar(None, value.type), value)


def _extreme(better: Callable[[Column, Column], Column]) -> Callable[..., Column]:
    """Build `least` and `greatest`, which ignore nulls, and take the first of equal values."""

    def pick(best: Column, value: Column) -> Column:
        only = pc.and_(pc.is_null(best), pc.is_valid(value))
        return pc.if_else(pc.or_(only, _certain(better(value, best))), value, best)

    return lambda *columns: reduce(pick, columns)


# texts, lists and maps


def _ascii(compute: Callable[[Column], Column]) -> Callable[[Column], Column]:
    """Build `lower` and `upper`: beyond ASCII, Arrow maps one character to one, and Spark `ß` to `SS`."""

    def on_column(column: Column) -> Column:
        if not pc.all(pc.string_is_ascii(column)).as_py():
            raise _NoColumn
        return compute(column)

    return on_column


def _by_constant(compute: Callable[[Column, Any], Column]) -> Callable[[Column, Column], Column]:
    """Build an operation whose second operand must be a constant in Arrow."""

    def on_column(column: Column, constant: Column) -> Column:
        if not isinstance(constant, pa.Scalar) or not constant.is_valid:
            raise _NoColumn
        return compute(column, constant.as_py())

    return on_column


def _like(column: Column, pattern: str, escape: str) -> Column:
    return pc.match_substring_regex(column, rf"(?s)\A{like_pattern(pattern, escape)}\z")


_FORMS: dict[str, Callable[..., Column]] = {
    "fit": _fit,
    "cast": _cast,
    "like": _like,
    "is": lambda column, truth: _certain(column if truth else pc.invert(column)),
}
_OPERATIONS: dict[str, Callable[..., Column]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": _divide,
    "%": _remainder,
    "div": _quotient,
    "negative": pc.negate_checked,
    "abs": pc.abs_checked,
    "widened": _double,
    "=": _equal,
    "<>": lambda left, right: pc.invert(_equal(left, right)),
    "<": _less,
    ">": lambda left, right: _less(right, left),
    "<=": lambda left, right: pc.invert(_less(right, left)),
    ">=": lambda left, right: pc.invert(_less(left, right)),
    "<=>": _same,
    "and": lambda *columns: reduce(pc.and_kleene, columns),
    "or": lambda *columns: reduce(pc.or_kleene, columns),
    "not": pc.invert,
    "null": pc.is_null,
    "in": _in,
    "coalesce": pc.coalesce,
    "nullif": _nullif,
    "least": _extreme(_less),
    "greatest": _extreme(lambda value, best: _less(best, value)),
    "isnan": lambda column: _certain(_is_nan(column)),
    "sqrt": lambda column: pc.sqrt(_double(column)),
    "sign": _sign,
    "floor": _integral(pc.floor),
    "ceil": _integral(pc.ceil),
    "length": lambda column: pc.cast(pc.utf8_length(column), pa.int64()),
    "lower": _ascii(pc.ascii_lower),
    "upper": _ascii(pc.ascii_upper),
    "trim": lambda column: pc.utf8_trim(column, " "),
    "concat": lambda *columns: pc.binary_join_element_wise(*columns, ""),
    "startswith": _by_constant(pc.starts_with),
    "endswith": _by_constant(pc.ends_with),
    "contains": _by_constant(pc.match_substring),
    "size": lambda column: pc.cast(pc.list_value_length(column), pa.int64()),
    "at": _by_constant(lambda column, index: _plain(pc.list_element(column, index))),
    "of_key": _by_constant(lambda column, key: _plain(pc.map_lookup(column, key, "first"))),
}
"""Operation or function -> the same on whole columns. What is not here is computed row by row."""
