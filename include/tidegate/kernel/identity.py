"""Hashable values that are the same exactly if two values are equal (`compare.equal`), for use in sets."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

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
