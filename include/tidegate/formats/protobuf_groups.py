"""Skip Protobuf's groups one by one. They are deprecated, so their speed does not matter."""

from __future__ import annotations

from tidegate.formats.wire import Cursor, Ints, Wire

_MOST_NESTED = 100


class _NoField(Exception):
    """The bytes are not a field."""


def skip_groups(wire: Wire, cursor: Cursor, groups: Ints, numbers: Ints, path: str) -> None:
    """Move the cursor behind the groups that begin at these places.

    Args:
        groups: Indexes into the cursor.
        numbers: The field numbers of the groups; a group ends with its own number.
    """
    for place in groups.tolist():
        end = int(cursor.ends[place])
        try:
            cursor.at[place] = _behind(wire, int(cursor.at[place]), end, int(numbers[place]))
        except _NoField:
            wire.fault(cursor.rows[[place]], "A group does not end", path)
            cursor.at[place] = end


def _behind(wire: Wire, at: int, end: int, number: int) -> int:
    """Return the end of the group whose tag is before `at`. Raises _NoField if the group does not end."""
    # a list instead of recursion: a group's depth is up to the record, not to the stack
    open_groups = [number]
    while open_groups:
        tag, at = _varint(wire, at, end)
        number, written = tag >> 3, tag & 7
        if not number or len(open_groups) > _MOST_NESTED:
            raise _NoField
        if written == 0:
            _, at = _varint(wire, at, end)
        elif written == 2:
            size, at = _varint(wire, at, end)
            at += size
        elif written in (1, 5):
            at += 8 if written == 1 else 4
        elif written == 3:
            open_groups.append(number)
        elif written != 4 or open_groups.pop() != number:
            raise _NoField
        if at > end:
            raise _NoField
    return at


def _varint(wire: Wire, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = int(wire.data[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _NoField
