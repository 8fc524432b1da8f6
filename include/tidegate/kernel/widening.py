"""Types whose values become those of another type without a loss: so state survives when a column changes.

They are those that Delta's protocol calls widening, except from date to timestamp, which needs a time zone.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

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
