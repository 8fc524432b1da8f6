"""Skip Avro values that no column needs, and locate the items of arrays and maps.

There are two ways to skip: a value of all records at once, or values one by one, which is faster if few
records have very many items. The second reports no faults: if it raises NotPlain, the first one reads the
value again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from tidegate.formats.avro.schema import AvroType
from tidegate.formats.wire import EARLY_END, Cursor, Ints, Wire

Begun: TypeAlias = list[tuple[Ints, Ints]]
"""Indexes into a cursor, and the position at which an item of each begins."""
_FEW, _MANY = 32, 32
"""At most `_FEW` records with at least `_MANY` items are read item by item, which is faster for them."""
Skip = Callable[[Wire, Cursor], None]
"""Moves a cursor behind a value."""
MOST_NESTED = 100
"""The allowed depth of records within records of their own type, in fields that no column needs."""
Step = Callable[[memoryview, int, int], int]
"""(bytes, position of a value, end of its record) -> the position behind the value. Raises NotPlain."""


class NotPlain(Exception):
    """The value cannot be read, or is nested too deep."""


@dataclass(frozen=True)
class Passage:
    """The two ways to skip an item: for all records at once, or one by one."""

    skip: Skip
    step: Step


class Passages:
    """The passages of each type of a writer. Each type is visited once, so types can contain themselves."""

    def __init__(self) -> None:
        self._made: dict[AvroType, Passage] = {}
        self._depth = 0

    def for_type(self, type_: AvroType, path: str) -> Passage:
        """Return the passage of a type. `path` names the first value of the type in faults.

        Args:
            path: Such as `$.items`.
        """
        if type_ not in self._made:
            # a forward reference, for types that contain themselves; only these count their depth
            self._made[type_] = Passage(
                lambda wire, cursor: self._made[type_].skip(wire, cursor), partial(self._deeper, type_)
            )
            self._made[type_] = self._make(type_, path)
        return self._made[type_]

    def for_items(self, type_: AvroType, path: str) -> Passage:
        """Return the passage of an item of an array, or of an entry of a map: its key and its value."""
        item = self.for_type(type_.items, f"{path}[...]")
        if type_.kind == "array":
            return item
        return Passage(partial(_skip_entry, item.skip, path), partial(_step_record, [_step_sized, item.step]))

    def _deeper(self, type_: AvroType, data: memoryview, at: int, end: int) -> int:
        """Skip a value of a type inside of itself, which can be nested without end."""
        self._depth += 1
        try:
            if self._depth > MOST_NESTED:
                raise NotPlain
            return self._made[type_].step(data, at, end)
        finally:
            self._depth -= 1

    def _make(self, type_: AvroType, path: str) -> Passage:
        if type_.kind == "record":
            fields = [self.for_type(field.type, f"{path}.{field.name}") for field in type_.fields]
            skips, steps = [field.skip for field in fields], [field.step for field in fields]
            return Passage(partial(_skip_record, skips, path), partial(_step_record, steps))
        if type_.kind == "union":
            branches = [self.for_type(branch, path) for branch in type_.types]
            skips, steps = [branch.skip for branch in branches], [branch.step for branch in branches]
            return Passage(partial(_skip_union, skips, path), partial(_step_union, steps))
        if type_.kind in ("array", "map"):
            item = self.for_items(type_, path)
            # items without bytes are not visited: a block of 2^60 nulls takes a few bytes only
            visited = item.skip if type_.kind == "map" or _takes_bytes(type_.items) else None
            return Passage(partial(_skip_items, visited, path), partial(_step_items, item.step))
        return _scalar_passage(type_, path)


def _scalar_passage(type_: AvroType, path: str) -> Passage:
    size = {"null": 0, "boolean": 1, "float": 4, "double": 8, "fixed": type_.size}.get(type_.kind)
    if size is not None:
        return Passage(lambda wire, cursor: _none(wire.spans(cursor, size, path)), partial(_step_over, size))
    if type_.kind in ("bytes", "string"):
        return Passage(
            lambda wire, cursor: _none(wire.spans(cursor, wire.longs(cursor, path), path)), _step_sized
        )
    return Passage(lambda wire, cursor: _none(wire.varints(cursor, path)), _step_number)


def _none(value: object) -> None:
    """Ignore a value."""


def _skip_record(fields: list[Skip], path: str, wire: Wire, cursor: Cursor) -> None:
    wire.depth += 1
    if wire.depth > MOST_NESTED:
        wire.fault(cursor.rows, f"It is nested more than {MOST_NESTED} deep", path)
        # at the end nothing is left to read, so the recursion stops here
        cursor.at[:] = cursor.ends
    else:
        for skip in fields:
            skip(wire, cursor)
    wire.depth -= 1


def _skip_union(branches: list[Skip], path: str, wire: Wire, cursor: Cursor) -> None:
    for number, places in branch_places(wire, cursor, len(branches), path):
        part = cursor.part(places)
        branches[number](wire, part)
        cursor.put(places, part)


def _skip_entry(item: Skip, path: str, wire: Wire, cursor: Cursor) -> None:
    wire.spans(cursor, wire.longs(cursor, path), path)
    item(wire, cursor)


def branch_places(wire: Wire, cursor: Cursor, branches: int, path: str) -> list[tuple[int, Ints]]:
    """Return the branches of a union that occur, each with the indexes of its values.

    A value of a branch that does not exist is a fault, and belongs to no branch.

    Args:
        cursor: It is moved behind the numbers of branches.
        branches: How many the union has.
    """
    numbers = wire.longs(cursor, path)
    wrong = (numbers < 0) | (numbers >= branches)
    if wrong.any():
        wire.fault(cursor.rows[wrong], "A union has no such branch", path)
        numbers = np.where(wrong, -1, numbers)
    return [(number, np.flatnonzero(numbers == number)) for number in range(branches) if number in numbers]


def _takes_bytes(type_: AvroType) -> bool:
    """Return whether each value of a type has at least one byte: all but null, and records of only nulls."""
    if type_.kind == "record":
        return any(_takes_bytes(field.type) for field in type_.fields)
    return type_.kind != "null"


def _skip_items(item: Skip | None, path: str, wire: Wire, cursor: Cursor) -> None:
    _Walk(wire, cursor, item, path).run()


def item_places(wire: Wire, cursor: Cursor, item: Passage, path: str) -> tuple[Ints, Cursor]:
    """Return the number of items of each array or map, and a cursor at the beginning of each item, in
    order.

    The items are skipped once, the n-th item of all records together, so that the caller can then read all
    items at once. The cursor is moved behind them.

    Args:
        cursor: The beginnings of arrays or maps.
        item: Skips an item.
    """
    begun: Begun = []
    _Walk(wire, cursor, item.skip, path, begun, item.step).run()
    if not begun:
        nothing = np.zeros(0, np.int64)
        return np.zeros(len(cursor), np.int64), Cursor(nothing, nothing, nothing)
    places, at = (np.concatenate(parts) for parts in zip(*begun, strict=True))
    # items were collected round by round; a stable sort puts each record's items together, in order
    order = np.argsort(places, kind="stable")
    places = places[order]
    items = Cursor(cursor.rows[places], at[order], cursor.ends[places])
    return np.bincount(places, minlength=len(cursor)), items


@dataclass
class _Walk:
    """Skips the items of arrays or maps.

    Args:
        skip: Skips an item; None for items without bytes.
        begun: Collects the beginnings of items; None if they are not needed.
        step: Skips one item of one record.
    """

    wire: Wire
    cursor: Cursor
    skip: Skip | None
    path: str
    begun: Begun | None = None
    step: Step | None = None

    def run(self) -> None:
        """Skip all blocks, up to the empty block that ends an array or map."""
        places = np.arange(len(self.cursor))
        while len(places):
            # only records whose array or map goes on
            part = self.cursor.part(places)
            counts = self._counts(part)
            self.cursor.put(places, part)
            places, counts = places[counts > 0], counts[counts > 0]
            if self.skip is not None:
                self._block(self.skip, places, counts)

    def _counts(self, part: Cursor) -> Ints:
        """Return the number of items in the next block."""
        counts = self.wire.longs(part, self.path)
        sized = np.flatnonzero(counts < 0)  # after a negative count, a block has its size in bytes
        if len(sized):
            sizes = part.part(sized)
            self.wire.varints(sizes, self.path)
            part.put(sized, sizes)
            counts = np.abs(counts)
        # abs() of the smallest integer is negative; and a huge count must not reserve memory
        impossible = counts < 0
        if self.skip is not None:
            impossible |= counts > part.ends - part.at
        if impossible.any():
            self.wire.fault(part.rows[impossible], "There are more items than bytes", self.path)
            part.at[impossible] = part.ends[impossible]
            counts = np.where(impossible, 0, counts)
        return counts

    def _block(self, skip: Skip, places: Ints, left: Ints) -> None:
        """Skip the n-th items of all records together, until no record has items left."""
        tried_steps = False
        while len(places):
            if not tried_steps and len(places) <= _FEW and left.max() >= _MANY:
                left, tried_steps = self._step_on(places, left), True
                places, left = places[left > 0], left[left > 0]
                continue
            part = self.cursor.part(places)
            if self.begun is not None:
                self.begun.append((places, part.at.copy()))
            skip(self.wire, part)
            self.cursor.put(places, part)
            left = left - 1
            # a record at its end can have no further item, so a wrong count ends here
            going_on = (left > 0) & (part.at < part.ends)
            if not going_on.all():
                short = (left > 0) & ~going_on
                self.wire.fault(part.rows[short], EARLY_END, self.path)
                places, left = places[going_on], left[going_on]

    def _step_on(self, places: Ints, left: Ints) -> Ints:
        """Skip items one by one while they are plain. Return how many items each record has left."""
        if self.step is None or self.begun is None:
            return left
        left = left.copy()
        data = self.wire.data.data
        for number, place in enumerate(places.tolist()):
            at, end = int(self.cursor.at[place]), int(self.cursor.ends[place])
            starts = []
            try:
                for _ in range(int(left[number])):
                    behind = self.step(data, at, end)
                    starts.append(at)
                    at = behind
            except NotPlain:
                pass  # `_block` skips the rest, and records the fault
            self.begun.append((np.full(len(starts), place), np.array(starts, np.int64)))
            self.cursor.at[place] = at
            left[number] -= len(starts)
        return left


def _step_number(data: memoryview, at: int, end: int) -> int:
    while at < end:
        at += 1
        if data[at - 1] < 0x80:
            return at
    raise NotPlain


def _long(data: memoryview, at: int, end: int) -> tuple[int, int]:
    behind = _step_number(data, at, end)
    if behind - at > 9:
        raise NotPlain
    value = 0
    for place in range(behind - 1, at - 1, -1):
        value = value << 7 | data[place] & 0x7F
    return value >> 1 ^ -(value & 1), behind


def _step_over(size: int, data: memoryview, at: int, end: int) -> int:
    if at + size > end:
        raise NotPlain
    return at + size


def _step_sized(data: memoryview, at: int, end: int) -> int:
    size, at = _long(data, at, end)
    if not 0 <= size <= end - at:
        raise NotPlain
    return at + size


def _step_record(fields: Sequence[Step], data: memoryview, at: int, end: int) -> int:
    for step in fields:
        at = step(data, at, end)
    return at


def _step_union(branches: Sequence[Step], data: memoryview, at: int, end: int) -> int:
    number, at = _long(data, at, end)
    if not 0 <= number < len(branches):
        raise NotPlain
    return branches[number](data, at, end)


def _step_items(item: Step, data: memoryview, at: int, end: int) -> int:
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
