"""Read Protobuf messages side by side into the columns that a pipeline needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.formats import binary
from tidegate.formats.protobuf.fields import (
    GROUP,
    SIZED,
    Numbers,
    Spans,
    column_of_numbers,
    is_number,
    names_of,
    skip,
    wire_type,
)
from tidegate.formats.protobuf.schema import ProtoEnum, ProtoField
from tidegate.formats.wire import Cursor, Ints, ValueOrigin, Wire

_LARGEST_NUMBER = 2**29 - 1
_FEW = 32
"""With at most so many messages, repeated fields are read one by one."""
_MOST_NESTED = 100


@dataclass(frozen=True)
class FieldPlan:
    """The plan for reading one field.

    Args:
        place: The index of its column; None if the field is read only for its oneof or its presence.
        message: The plan of its message, if it is one.
        enum: The enum, if its names are needed.
        closed: The numbers of a closed enum.
        rivals: The field numbers of the other members of its oneof.
    """

    field: ProtoField
    place: int | None
    type: pa.DataType
    path: str
    message: MessagePlan | None = None
    enum: ProtoEnum | None = None
    closed: tuple[int, ...] | None = None
    rivals: tuple[int, ...] = ()


@dataclass(frozen=True)
class MessagePlan:
    """The plan for reading a message.

    Args:
        fields: In any order.
        form: `struct`, `wrapper` (of one value), `timestamp`, or `entry` (of a map).
        missing: The indexes of columns that the message does not have.
    """

    fields: tuple[FieldPlan, ...]
    type: pa.DataType
    form: str = "struct"
    missing: tuple[int, ...] = ()


def read_messages(wire: Wire, cursor: Cursor, plan: MessagePlan, path: str) -> list[pa.Array]:
    """Return a column for each field with a place, with one row for each position of the cursor.

    Args:
        cursor: The beginnings and ends of messages in the wire.
        path: The message's path, for faults.

    Faults are recorded in the wire; nothing is raised on the content of records.
    """
    return _columns(wire, cursor.rows, plan, _collect(wire, cursor, plan, path))


def _columns(
    wire: Wire, rows: Ints, plan: MessagePlan, collected: dict[int, Numbers | Spans]
) -> list[pa.Array]:
    columns: dict[int, pa.Array] = {}
    for field in plan.fields:
        _check_required(wire, rows, field, collected[field.field.number])
        if field.place is not None:
            columns[field.place] = _column(wire, rows, field, collected[field.field.number])
    for place in plan.missing:
        columns[place] = pa.nulls(len(rows), plan.type.field(place).type)
    return [columns[place] for place in range(len(columns))]


# collecting


def _collect(wire: Wire, cursor: Cursor, plan: MessagePlan, path: str) -> dict[int, Numbers | Spans]:
    """Return the occurrences of each field: field number -> values.

    Fields are searched in the order in which writers usually write them, so that one round is usually enough.
    """
    collectors: dict[int, Numbers | Spans] = {
        field.field.number: Numbers(field.field.kind, field.path, field.closed)
        if is_number(field.field.kind)
        else Spans(field.path)
        for field in plan.fields
    }
    tags = _Tags(wire, cursor, path)
    planned = np.array(sorted(collectors), np.int64)
    while True:
        for field in plan.fields:
            # a single field is taken once per round; a repeated one as long as it follows itself
            while len(places := tags.at(field.field.number)):
                _take(tags, field, collectors, places)
                if not field.field.is_repeated:
                    break
        places = np.flatnonzero(tags.numbers)
        if not len(places):
            return collectors
        unknown = places[~np.isin(tags.numbers[places], planned)]
        if len(unknown):
            tags.skip(unknown)


class _Tags:
    """The number and the wire type of the next field at each position; the number 0 stands for the end."""

    def __init__(self, wire: Wire, cursor: Cursor, path: str) -> None:
        self.wire, self.cursor, self._path = wire, cursor, path
        self.numbers = np.zeros(len(cursor), np.int64)
        self.types = np.zeros(len(cursor), np.int64)
        self.read(np.arange(len(cursor)))

    def at(self, number: int) -> Ints:
        """Return the positions whose next field has this number.

        Args:
            number: A field number; 0 stands for the end of a message.
        """
        return np.flatnonzero(self.numbers == number)

    def read(self, places: Ints) -> None:
        """Read the next tags at these positions.

        Args:
            places: Indexes into the cursor, which is moved behind the tags.
        """
        cursor = self.cursor
        more = cursor.at[places] < cursor.ends[places]
        if not more.all():
            self.numbers[places[~more]] = 0
            places = places[more]
        part = cursor.part(places)
        tags = self.wire.varints(part, self._path).view(np.int64)
        numbers = tags >> 3
        wrong = (numbers <= 0) | (numbers > _LARGEST_NUMBER)
        if wrong.any():
            self.wire.fault(part.rows[wrong], "Expected a field", self._path)
            part.at[wrong] = part.ends[wrong]
            numbers = np.where(wrong, 0, numbers)
        self.numbers[places], self.types[places] = numbers, tags & 7
        cursor.put(places, part)

    def skip(self, places: Ints) -> None:
        """Skip the next fields at these positions."""
        part = self.cursor.part(places)
        types = self.types[places]
        groups = np.flatnonzero(types == GROUP)
        if len(groups):
            skip_groups(self.wire, part, groups, self.numbers[places], self._path)
        not_groups = np.flatnonzero(types != GROUP)
        rest = part.part(not_groups)
        skip(self.wire, rest, types[not_groups], self._path)
        part.put(not_groups, rest)
        self.cursor.put(places, part)
        self.read(places)


def _take(tags: _Tags, field: FieldPlan, collectors: dict[int, Numbers | Spans], places: Ints) -> None:
    """Read the field's next occurrence; of an unexpected wire type, it is an unknown field."""
    wire, cursor, types = tags.wire, tags.cursor, tags.types[places]
    expected = wire_type(field.field.kind)
    collected = collectors[field.field.number]
    fitting = types == expected
    if not fitting.all():
        # proto3 packs repeated numbers, proto2 does not; parsers must accept both
        packed = (
            places[types == SIZED]
            if isinstance(collected, Numbers) and field.field.is_repeated
            else places[:0]
        )
        if len(packed) and isinstance(collected, Numbers):
            part = cursor.part(packed)
            collected.take_packed(wire, part, packed)
            cursor.put(packed, part)
            tags.read(packed)
        other_types = places[~fitting & (types != SIZED)] if len(packed) else places[~fitting]
        if len(other_types):
            tags.skip(other_types)
        places = places[fitting]
        if not len(places):
            return
    if isinstance(collected, Spans) and field.field.is_repeated and len(places) <= _FEW:
        refused = collected.take_all(wire, cursor, places, binary.varint(field.field.number << 3 | SIZED))
        tags.read(np.setdiff1d(places, refused))
        places = refused
    part = cursor if len(places) == len(cursor) else cursor.part(places)
    counted = collected.take(wire, part, places)
    # of a oneof, the member that occurs last counts: earlier ones are taken back
    for rival in field.rivals:
        collectors[rival].clear(counted)
    if part is not cursor:
        cursor.put(places, part)
    tags.read(places)


def _check_required(wire: Wire, rows: Ints, field: FieldPlan, collected: Numbers | Spans) -> None:
    if field.field.presence == "required":
        # only proto2 has required fields
        present = np.zeros(len(rows), bool)
        for places in collected.places:
            present[places] = True
        if not present.all():
            wire.fault(rows[~present], "A required field is missing", field.path)


# columns


def _column(wire: Wire, rows: Ints, field: FieldPlan, collected: Numbers | Spans) -> pa.Array:
    if isinstance(collected, Numbers):
        return _of_numbers(wire, rows, field, collected)
    if field.message is not None and field.message.form == "entry":
        return _of_entries(wire, rows, field, collected)
    if field.field.is_repeated:
        places, starts, ends = collected.all()
        items = _of_spans(wire, Cursor(rows[places], starts, ends), field, field.type.value_type)
        return binary.lists(np.bincount(places, minlength=len(rows)), items, field.type)
    if field.message is None:
        places, starts, ends = collected.last()
    else:
        wire, places, starts, ends = collected.merged(wire)
    values = _of_spans(wire, Cursor(rows[places], starts, ends), field, field.type)
    if field.field.presence != "implicit" or len(places) == len(rows):
        return binary.placed(len(rows), [places], [values], field.type)
    nothing = np.zeros(len(rows) - len(places), np.int64)
    # a field without presence has its default, which is what an empty span is read as
    absent = binary.rows_except(len(rows), places)
    defaults = _of_spans(wire, Cursor(rows[absent], nothing, nothing), field, field.type)
    return binary.placed(len(rows), [places, absent], [values, defaults], field.type)


def _of_numbers(wire: Wire, rows: Ints, field: FieldPlan, collected: Numbers) -> pa.Array:
    type_ = field.type.value_type if field.field.is_repeated else field.type
    places, values = collected.all() if field.field.is_repeated else collected.last()
    if field.field.is_repeated:
        items = _numbers(wire, rows[places], field, values, type_)
        return binary.lists(np.bincount(places, minlength=len(rows)), items, field.type)
    if len(places) == len(rows):
        return _numbers(wire, rows, field, values, type_)
    if field.field.presence == "implicit":
        # the default of a closed enum is its first number, of any other field 0
        filled = np.full(len(rows), field.closed[0] if field.closed else 0, values.dtype)
        filled[places] = values
        return _numbers(wire, rows, field, filled, type_)
    return binary.placed(
        len(rows), [places], [_numbers(wire, rows[places], field, values, type_)], field.type
    )


def _numbers(
    wire: Wire, rows: Ints, field: FieldPlan, values: npt.NDArray[Any], type_: pa.DataType
) -> pa.Array:
    if field.enum is not None:
        return names_of(values, field.enum.names)
    if pt.is_string(type_):  # keys of maps are text
        return pa.array(values).cast(pa.string())
    return column_of_numbers(ValueOrigin(wire, rows, field.path), values, type_)


def _of_spans(wire: Wire, spans: Cursor, field: FieldPlan, type_: pa.DataType) -> pa.Array:
    """Return the values of a field in these spans, which stay where they are."""
    if field.message is None:
        values = wire.binary(spans.at, spans.ends - spans.at)
        return (
            wire.texts(spans.rows, values, field.path)
            if field.field.kind == "string" and pt.is_string(type_)
            else values
        )
    columns = read_messages(wire, replace(spans, at=spans.at.copy()), field.message, field.path)
    if field.message.form == "wrapper":
        return columns[0]
    if field.message.form == "timestamp":
        return _timestamps(ValueOrigin(wire, spans.rows, field.path), columns, type_)
    return pa.StructArray.from_arrays(columns, fields=list(type_))


def _of_entries(wire: Wire, rows: Ints, field: FieldPlan, collected: Spans) -> pa.Array:
    assert field.message is not None, "a map has entries"
    places, starts, ends = collected.all()
    entries = Cursor(rows[places], starts.copy(), ends)
    parts = _collect(wire, entries, field.message, field.path)
    keys, items = _columns(wire, entries.rows, field.message, parts)
    value = parts[field.message.fields[1].field.number]
    if isinstance(value, Numbers) and value.unnamed:  # an entry with an unknown enum number is dropped
        named = binary.rows_except(len(places), np.concatenate(value.unnamed))
        places, keys, items = places[named], keys.take(pa.array(named)), items.take(pa.array(named))
    counts = np.bincount(places, minlength=len(rows))
    return binary.maps(counts, pc.fill_null(keys, ""), items, field.type)


def _timestamps(origin: ValueOrigin, columns: Sequence[pa.Array], type_: pa.TimestampType) -> pa.Array:
    """Return timestamps from seconds and nanoseconds since 1970, rounded down to microseconds."""
    seconds, nanos = (column.to_numpy() for column in columns)
    wrong = (nanos < 0) | (nanos > 999_999_999)
    if wrong.any():
        origin.fault(wrong, "The nanoseconds of a time are not of one second")
    most = 2**62 // 1_000_000
    # the product must not overflow; such times are faults anyway
    microseconds = np.clip(seconds, -most, most) * 1_000_000 + nanos // 1000
    return binary.timestamps(origin, microseconds, 1, type_)


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
