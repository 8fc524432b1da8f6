"""Which values are equal, null-safely (NaN equals NaN, too), and which types hold the same values.

A map's entries have no order. Arrow gives a map as a list of (key, value) tuples, and no other type as a list
of tuples: so a map is distinguished from an array here.

The types of which values become those of another type without a loss are those that Delta's protocol calls
widening, except from date to timestamp, which needs a time zone.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt


def differs(left: pa.Array, right: pa.Array) -> pa.BooleanArray:
    """Return True where two values are not the same; never null.

    Example: `differs([1, None, nan], [1, 2, nan])` is `[False, True, False]`.
    """
    if pa.types.is_struct(left.type):
        unequal = _any_field_differs(left, right)
    elif pa.types.is_nested(left.type):
        # Arrow has no comparison of lists and maps.
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
    """Return True where any of the named fields differs between the two structs, whatever their
    own validity.

    Args:
        names: The fields that are compared.
    """
    result = pa.repeat(False, len(left))
    for name in names:
        result = pc.or_(result, differs(left.field(name), right.field(name)))
    return result


def _any_field_differs(left: pa.StructArray, right: pa.StructArray) -> pa.BooleanArray:
    return any_differs(left, right, tuple(field.name for field in left.type))


def equal(left: Any, right: Any) -> bool:
    """Return whether two Python values are equal; null and NaN equal themselves, and a map's order does not
    count.

    Example: the maps `[("a", 1), ("b", 2)]` and `[("b", 2), ("a", 1)]` are equal, `[1, 2]` and `[2, 1]` not.
    """
    # decides most pairs; what follows is for NaN, and for maps inside of other values
    if left is right or left == right:
        return True
    if isinstance(left, float) and isinstance(right, float):
        return left != left and right != right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(left[name], right[name]) for name in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        if len(left) != len(right):
            return False
        if _is_map(left) and _is_map(right):
            # entries have no order, so they are compared as sets
            return identity(left) == identity(right)
        return all(map(equal, left, right))
    return False


def ordered(value: Any) -> Any:
    """Return the value with the entries of every map in it in one order, the same for equal maps.

    The order itself has no meaning.

    Example: `ordered([("b", 1), ("a", 2)])` is `[("a", 2), ("b", 1)]`.
    """
    if isinstance(value, dict):
        return {name: ordered(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(ordered, value))
    if isinstance(value, list):
        parts = list(map(ordered, value))
        return _by_key(parts) if _is_map(parts) else parts
    return value


def unsigned_zero(value: Any) -> Any:
    """Return the value with every -0.0 in it as 0.0: they are equal, so they must have one text
    and one hash.

    Example: `unsigned_zero({"x": -0.0})` is `{"x": 0.0}`.
    """
    if isinstance(value, float):
        # -0.0 + 0.0 is 0.0
        return value + 0.0
    if isinstance(value, dict):
        return {name: unsigned_zero(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(unsigned_zero, value))
    return value


def _is_map(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], tuple)


def _by_key(entries: list[Any]) -> list[Any]:
    """Return a map's entries by the text of their keys: keys of every type have one, structs included."""
    return sorted(entries, key=lambda entry: repr(unsigned_zero(entry[0])))


def has_map(type_: pa.DataType) -> bool:
    """Return whether a value of this type can contain a map.

    Example: it is True for a list of maps.
    """
    return pa.types.is_map(type_) or any(
        has_map(type_.field(number).type) for number in range(type_.num_fields)
    )


# stands for every NaN: NaN itself differs from NaN in a set
_NAN = object()


def identity(value: Any) -> Hashable:
    """Return a hashable form of a value; NaN equals NaN, and a map's entries have no order.

    Arrow gives a map as a list of (key, value) tuples, and an array's items never as tuples.
    """
    if isinstance(value, float):
        return value if value == value else _NAN
    if isinstance(value, dict):
        return frozenset((name, identity(part)) for name, part in value.items())
    if isinstance(value, (list, tuple)):
        parts = [identity(part) for part in value]
        is_map = isinstance(value, list) and bool(value) and isinstance(value[0], tuple)
        return frozenset(parts) if is_map else tuple(parts)
    return value  # type: ignore[no-any-return]  # all other values of Arrow are hashable


_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
"""The digits of whole numbers, narrowest type first."""


# a double has 53 bits for digits, and so no room for each int64
_DOUBLE_HOLDS = (pa.int8(), pa.int16(), pa.int32(), pa.float32())


def widens(before: pa.DataType, after: pa.DataType) -> bool:
    """Return whether each number of one type is exactly a number of the other. Every type widens to itself.

    Whole numbers widen to longer ones, to decimals with room for them, and up to 32 bits to doubles; float to
    double; decimals to others with as many digits before the point, and behind it. A column that was always
    null has the null type, which widens to any type. For nested types see `fits`.

    Example: `widens(pa.int32(), pa.float64())` is True, `widens(pa.int64(), pa.float64())` is False.
    """
    if before == after or pt.is_null(before):
        return True
    if before in _DIGITS and after in _DIGITS:
        return _DIGITS[before] < _DIGITS[after]
    if pt.is_decimal(after) and (before in _DIGITS or pt.is_decimal(before)):
        digits, scale = _decimal_digits(before)
        return bool(scale <= after.scale and digits - scale <= after.precision - after.scale)
    return after == pa.float64() and before in _DOUBLE_HOLDS


def fits(before: pa.DataType, after: pa.DataType) -> bool:
    """Return whether values of one type can be read as the other, also inside of structs, arrays and maps.

    A struct's fields are matched by name: new fields are null, and removed fields are left out.

    Example: a struct with `a int` fits one with `a bigint` and a new `b`.
    """
    if pt.is_struct(before) and pt.is_struct(after):
        stored = {field.name: field.type for field in before}
        return all(fits(stored.get(field.name, field.type), field.type) for field in after)
    if pt.is_list(before) and pt.is_list(after):
        return fits(before.value_type, after.value_type)
    if pt.is_map(before) and pt.is_map(after):
        return fits(before.key_type, after.key_type) and fits(before.item_type, after.item_type)
    return widens(before, after)


def keeps_text(before: pa.DataType, after: pa.DataType) -> bool:
    """Return whether equal values of both types also have the same JSON text, of which hashes are made.

    Example: it is True from int32 to int64, and False from int32 to double.
    """
    if before == after or pt.is_null(before):
        return True
    if pt.is_list(before) and pt.is_list(after):
        return keeps_text(before.value_type, after.value_type)
    if pt.is_map(before) and pt.is_map(after):
        return keeps_text(before.key_type, after.key_type) and keeps_text(before.item_type, after.item_type)
    if pt.is_struct(before) and pt.is_struct(after) and before.num_fields == after.num_fields:
        pairs = zip(before, after, strict=True)
        return all(old.name == new.name and keeps_text(old.type, new.type) for old, new in pairs)
    # 1 is written `1` as an integer and `1.0` as a double: another text, another hash
    if pt.is_nested(before) or not widens(before, after) or after == pa.float64():
        return False
    return after in _DIGITS or _decimal_digits(before)[1] == after.scale


def _decimal_digits(type_: pa.DataType) -> tuple[int, int]:
    """Return the digits in all, and behind the point, of a decimal or a whole number."""
    return (type_.precision, type_.scale) if pt.is_decimal(type_) else (_DIGITS[type_], 0)
