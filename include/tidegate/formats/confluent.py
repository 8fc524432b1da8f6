"""Confluent's wire format: a zero, the schema's id in a registry, in Protobuf which message, the value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.formats import binary_columns
from tidegate.formats.decoded import Decoded, malformed
from tidegate.formats.reasons import Reason
from tidegate.formats.wire import Cursor, Ints, Wire
from tidegate.schemas.faults import SchemaFault
from tidegate.schemas.pinned import PinnedSchema

_PREFIX = 5
_MOST_INDEXES = 32
"""Messages that are declared within one another."""

Indexes = tuple[int, ...]


class Subdecoder(Protocol):
    """What reads the values of one writer."""

    def read(self, wire: Wire, cursor: Cursor) -> Sequence[pa.Array]:
        """The columns of the values at the cursor's places; faults are noted in the wire."""


class ConfluentDecoder:
    """Columns of `schema` out of records of several schemas, each with its id before it.

    `decoder` makes what reads those of one schema, and of one message of it where there are `has_indexes`.
    """

    def __init__(
        self,
        schema: pa.Schema,
        writers: Mapping[int, PinnedSchema],
        decoder: Callable[[PinnedSchema, Indexes], Subdecoder],
        has_indexes: bool,
    ) -> None:
        self.schema = schema
        self._type = pa.struct(list(schema))
        self._writers = writers
        self._make = decoder
        self._has_indexes = has_indexes
        self._decoders: dict[tuple[int, Indexes], Subdecoder | str] = {}

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """The columns of each value; one whose schema is not known, or does not fit, is unusable."""
        wire, cursor = Wire.of(values)
        reasons: dict[int, str] = {}
        ids, framed = _ids(wire, cursor)
        for row in np.flatnonzero(~framed).tolist():
            reasons[row] = malformed(_unframed(values[row] or b""))
        parts: list[Sequence[pa.Array]] = []
        places: list[Ints] = []
        for id_ in np.unique(ids[framed]).tolist():
            rows = np.flatnonzero(framed & (ids == id_))
            if id_ not in self._writers:
                reasons |= dict.fromkeys(rows.tolist(), f"{Reason.UNKNOWN_SCHEMA}: {id_}")
                continue
            for indexes, part in self._messages(wire, cursor.part(rows)):
                decoder = self._decoder(id_, indexes)
                if isinstance(decoder, str):
                    for row in part.rows.tolist():
                        wire.faults.setdefault(row, decoder)
                else:
                    places.append(part.rows)
                    parts.append(decoder.read(wire, part))
        reasons |= {row: malformed(why) for row, why in wire.faults.items() if row not in reasons}
        reasons = {row: reasons[row] for row in sorted(reasons) if values[row] is not None}
        columns = [
            binary_columns.placed(len(values), places, [part[at] for part in parts], column.type)
            for at, column in enumerate(self.schema)
        ]
        return Decoded(binary_columns.usable_structs(columns, self._type, values, reasons), reasons)

    def _messages(self, wire: Wire, cursor: Cursor) -> list[tuple[Indexes, Cursor]]:
        """Of one schema's values those of each message; one of Avro has one."""
        if not self._has_indexes:
            return [((), cursor)]
        counts = wire.longs(cursor, "$")
        wrong = (counts < 0) | (counts > _MOST_INDEXES)
        if wrong.any():
            wire.fault(cursor.rows[wrong], "There are no such indexes of a message", "$")
            counts = np.where(wrong, 0, counts)
        indexes: npt.NDArray[Any] = np.full((len(cursor), int(counts.max(initial=0)) + 1), -1, np.int64)
        indexes[counts == 0, 0] = 0  # a zero alone is the first message
        for at in range(int(counts.max(initial=0))):
            more = np.flatnonzero(counts > at)
            part = cursor.part(more)
            indexes[more, at] = wire.longs(part, "$")
            cursor.put(more, part)
        sizes = np.maximum(counts, 1)
        paths, owners = np.unique(np.column_stack([sizes, indexes]), axis=0, return_inverse=True)
        owners = owners.reshape(-1)
        return [
            (tuple(path[1 : 1 + path[0]].tolist()), cursor.part(np.flatnonzero(owners == number)))
            for number, path in enumerate(paths)
        ]

    def _decoder(self, id_: int, indexes: Indexes) -> Subdecoder | str:
        """What reads the values, or why nothing can."""
        if (id_, indexes) not in self._decoders:
            try:
                self._decoders[id_, indexes] = self._make(self._writers[id_], indexes)
            except SchemaFault as fault:
                self._decoders[id_, indexes] = f"The schema {id_} does not fit: {fault}"
        return self._decoders[id_, indexes]


def _ids(wire: Wire, cursor: Cursor) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The id that each value begins with, and whether it begins with one; the cursor is then behind it."""
    framed = (cursor.ends - cursor.at >= _PREFIX) & (wire.data[cursor.at] == 0)
    ids = np.zeros(len(cursor), np.int64)
    for at in range(1, _PREFIX):
        ids = ids << 8 | wire.data[np.minimum(cursor.at + at, wire.size)]
    cursor.at += np.where(framed, _PREFIX, 0)
    return ids, framed


def _unframed(value: bytes) -> str:
    if len(value) < _PREFIX:
        return "Expected a schema's id, and it is too short for one"
    return f"Expected a schema's id behind a byte of 0, got a byte of {value[0]}"
