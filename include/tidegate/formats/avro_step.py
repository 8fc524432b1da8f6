"""Skip Avro values one by one, which is faster if few records have very many items.

This module reports no faults: if it raises NotPlain, the caller skips the value with `avro_skip`, which does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tidegate.schemas.avro import AvroType

Step = Callable[[memoryview, int, int], int]
"""(bytes, position of a value, end of its record) -> the position behind the value. Raises NotPlain."""

_MOST_NESTED = 100


class NotPlain(Exception):
    """The value cannot be read, or is nested too deep."""


class PlainSteps:
    """The ways to skip one value of each type."""

    def __init__(self) -> None:
        self._steps: dict[AvroType, Step] = {}
        self._depth = 0

    def for_type(self, type_: AvroType) -> Step:
        """Return the way to skip one value of a type, which can contain itself."""
        if type_ not in self._steps:
            # a forward reference, for types that contain themselves; only these count their depth
            self._steps[type_] = partial(self._deeper, type_)
            self._steps[type_] = self._made(type_)
        return self._steps[type_]

    def _deeper(self, type_: AvroType, data: memoryview, at: int, end: int) -> int:
        """Skip a value of a type inside of itself, which can be nested without end."""
        self._depth += 1
        try:
            if self._depth > _MOST_NESTED:
                raise NotPlain
            return self._steps[type_](data, at, end)
        finally:
            self._depth -= 1

    def _made(self, type_: AvroType) -> Step:
        if type_.kind == "record":
            return partial(_record, [self.for_type(field.type) for field in type_.fields])
        if type_.kind == "union":
            return partial(_union, [self.for_type(branch) for branch in type_.types])
        if type_.kind == "array":
            return partial(_items, self.for_type(type_.items))
        if type_.kind == "map":
            return partial(_items, entry_step(self.for_type(type_.items)))
        size = {"null": 0, "boolean": 1, "float": 4, "double": 8, "fixed": type_.size}.get(type_.kind)
        if size is not None:
            return partial(_fixed, size)
        return _sized if type_.kind in ("bytes", "string") else _number


def entry_step(item: Step) -> Step:
    """Return the way to skip an entry of a map: its key and its value.

    Args:
        item: Skips the value.
    """
    return partial(_record, [_sized, item])


def _number(data: memoryview, at: int, end: int) -> int:
    while at < end:
        at += 1
        if data[at - 1] < 0x80:
            return at
    raise NotPlain


def _long(data: memoryview, at: int, end: int) -> tuple[int, int]:
    behind = _number(data, at, end)
    if behind - at > 9:
        raise NotPlain
    value = 0
    for place in range(behind - 1, at - 1, -1):
        value = value << 7 | data[place] & 0x7F
    return value >> 1 ^ -(value & 1), behind


def _fixed(size: int, data: memoryview, at: int, end: int) -> int:
    if at + size > end:
        raise NotPlain
    return at + size


def _sized(data: memoryview, at: int, end: int) -> int:
    size, at = _long(data, at, end)
    if not 0 <= size <= end - at:
        raise NotPlain
    return at + size


def _record(fields: Sequence[Step], data: memoryview, at: int, end: int) -> int:
    for step in fields:
        at = step(data, at, end)
    return at


def _union(branches: Sequence[Step], data: memoryview, at: int, end: int) -> int:
    number, at = _long(data, at, end)
    if not 0 <= number < len(branches):
        raise NotPlain
    return branches[number](data, at, end)


def _items(item: Step, data: memoryview, at: int, end: int) -> int:
    while True:
        count, at = _long(data, at, end)
        # after a negative count, a block has its size in bytes
        if count < 0:
            _, at = _long(data, at, end)
        if abs(count) > end - at:
            raise NotPlain
        if not count:
            return at
        for _ in range(abs(count)):
            at = item(data, at, end)
