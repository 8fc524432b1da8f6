"""Find dates and instants outside of the years 1 to 9999: Spark computes with them, but few readers accept
them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# days from 1970 to 0001-01-01 and to 9999-12-31
_DAYS = (-719_162, 2_932_896)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_SECONDS_OF_DAY = 86_400


def beyond_calendar(values: pa.Array) -> pa.BooleanArray | None:
    """Return True for each value that contains a date or timestamp outside of the years 1 to 9999, however
    deep.

    Returns None if there is none, which is found without a loop over the values.

    Example: days 0 and 3,000,000 since 1970 give `[False, True]`, day 0 alone gives None.
    """
    outside = _outside(values)
    return outside if outside is not None and pc.any(outside).as_py() else None


def _outside(values: pa.Array) -> pa.BooleanArray | None:
    """Return True, False or null per value; None for types without dates."""
    type_ = values.type
    if pa.types.is_date32(type_):
        return _beside(values.cast(pa.int32()), *_DAYS)
    if pa.types.is_timestamp(type_):
        unit = _PER_SECOND[type_.unit]
        least, most = _DAYS[0] * _SECONDS_OF_DAY * unit, (_DAYS[1] + 1) * _SECONDS_OF_DAY * unit - 1
        return _beside(values.cast(pa.int64()), least, most)
    if pa.types.is_struct(type_):
        return _either([_outside(pc.struct_field(values, [at])) for at in range(type_.num_fields)])
    if pa.types.is_list(type_):
        return _in_lists(values, _outside(pc.list_flatten(values)))
    if pa.types.is_map(type_):
        # as a list of entries: Arrow has no kernel that flattens a map
        entry = pa.struct([type_.key_field, type_.item_field])
        return _outside(values.cast(pa.list_(pa.field("entries", entry, nullable=False))))
    return None


def _beside(numbers: pa.Array, least: int, most: int) -> pa.BooleanArray:
    return pc.or_(pc.less(numbers, least), pc.greater(numbers, most))


def _either(parts: list[pa.BooleanArray | None]) -> pa.BooleanArray | None:
    result: pa.BooleanArray | None = None
    for part in parts:
        if part is not None:
            # `or` with null is null, which would hide what the other part has
            part = pc.fill_null(part, False)
            result = part if result is None else pc.or_(result, part)
    return result


def _in_lists(lists: pa.Array, elements: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """Return True for each list that contains such an element."""
    if elements is None:
        return None
    places = pc.list_parent_indices(lists).filter(pc.fill_null(elements, False))
    mask = np.zeros(len(lists), dtype=bool)
    mask[places.to_numpy(zero_copy_only=False)] = True
    return pa.array(mask)
