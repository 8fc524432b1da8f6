"""Null-safe comparison, of Arrow arrays row by row and of Python values: null equals null, NaN equals NaN."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def differs(left: pa.Array, right: pa.Array) -> pa.BooleanArray:
    """True where the two values are not the same. Never null."""
    if pa.types.is_struct(left.type):
        unequal = _any_field_differs(left, right)
    elif pa.types.is_nested(left.type):
        return pc.invert(pa.array(map(equal, left.to_pylist(), right.to_pylist()), pa.bool_()))
    elif pa.types.is_null(left.type):
        return pa.repeat(False, len(left))
    else:
        unequal = pc.not_equal(left, right)
        if pa.types.is_floating(left.type):
            both_nan = pc.and_(pc.is_nan(left), pc.is_nan(right))
            unequal = pc.and_not(unequal, both_nan)
    if not left.null_count and not right.null_count:
        return unequal
    return pc.if_else(
        pc.and_(left.is_valid(), right.is_valid()), unequal, pc.xor(left.is_valid(), right.is_valid())
    )


def any_differs(left: pa.StructArray, right: pa.StructArray, names: tuple[str, ...]) -> pa.BooleanArray:
    """True where any of the named fields is not the same in the two structs, whatever their own validity."""
    result = pa.repeat(False, len(left))
    for name in names:
        result = pc.or_(result, differs(left.field(name), right.field(name)))
    return result


def _any_field_differs(left: pa.StructArray, right: pa.StructArray) -> pa.BooleanArray:
    return any_differs(left, right, tuple(field.name for field in left.type))


def equal(left: Any, right: Any) -> bool:
    """Null-safe equality of Python values; NaN is NaN, also inside of lists, maps and structs."""
    if left is right or left == right:
        return True
    if isinstance(left, float) and isinstance(right, float):
        return left != left and right != right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(left[name], right[name]) for name in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(equal, left, right))
    return False
