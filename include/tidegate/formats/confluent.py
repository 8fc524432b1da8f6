"""Confluent's wire format: a zero byte, the id of a schema in a registry, for Protobuf the message, the
value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.formats import binary
from tidegate.formats.decoded import Decoded, Decoder, Reason, malformed
from tidegate.formats.schemas import PinnedSchema, SchemaFault, SourceSchemas
from tidegate.formats.wire import Cursor, Ints, Wire

_PREFIX = 5
_MOST_INDEXES = 32
"""The allowed depth of message declarations within one another."""
Indexes = tuple[int, ...]


class Subdecoder(Protocol):
    """Reads the values of one writer."""

    def read(self, wire: Wire, cursor: Cursor) -> Sequence[pa.Array]:
        """Return the columns of the values at the cursor's positions. Faults are recorded in the wire.

        Args:
            wire: The bytes of all values, also of other writers.
            cursor: This writer's values, behind the id.
        """


class ConfluentDecoder:
    """Decodes records of several schemas to the columns of `schema`. Each record begins with the id of its
    schema.

    Args:
        writers: id -> schema.
        decoder: Makes the decoder of one schema, and of one message in it.
        has_indexes: Whether each record names a message in the schema, as with Protobuf.
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
        """Decode each value. A value whose schema is unknown, or does not fit the columns, is unusable."""
        wire, cursor = Wire.from_values(values)
        reasons: dict[int, str] = {}
        ids, framed = _ids(wire, cursor)
        for row in np.flatnonzero(~framed).tolist():
            reasons[row] = malformed(_unframed(values[row] or b""))
        parts: list[Sequence[pa.Array]] = []
        places: list[Ints] = []
        # by schema: values of one writer are read side by side
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
        reasons |= {row: malformed(reason) for row, reason in wire.faults.items() if row not in reasons}
        # a tombstone has no id either, but that is no fault
        reasons = {row: reasons[row] for row in sorted(reasons) if values[row] is not None}
        columns = [
            binary.placed(len(values), places, [part[at] for part in parts], column.type)
            for at, column in enumerate(self.schema)
        ]
        return Decoded(binary.usable_structs(columns, self._type, values, reasons), reasons)

    def _messages(self, wire: Wire, cursor: Cursor) -> list[tuple[Indexes, Cursor]]:
        """Return the values of one schema by message; a schema of Avro has only one."""
        if not self._has_indexes:
            return [((), cursor)]
        counts = wire.longs(cursor, "$")
        wrong = (counts < 0) | (counts > _MOST_INDEXES)
        if wrong.any():
            wire.fault(cursor.rows[wrong], "There are no such indexes of a message", "$")
            counts = np.where(wrong, 0, counts)
        indexes: npt.NDArray[Any] = np.full((len(cursor), int(counts.max(initial=0)) + 1), -1, np.int64)
        indexes[counts == 0, 0] = 0  # a count of 0 is short for the first message
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
        """Return the decoder of a message, or the reason why there can be none."""
        # also a failure is kept, so that a schema that does not fit is resolved once, not per record
        if (id_, indexes) not in self._decoders:
            try:
                self._decoders[id_, indexes] = self._make(self._writers[id_], indexes)
            except SchemaFault as fault:
                self._decoders[id_, indexes] = f"The schema {id_} does not fit: {fault}"
        return self._decoders[id_, indexes]


def _ids(wire: Wire, cursor: Cursor) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return each value's id and whether the value has one. The cursor is moved behind the id."""
    framed = (cursor.ends - cursor.at >= _PREFIX) & (wire.data[cursor.at] == 0)
    # the id has four bytes, big-endian
    ids = np.zeros(len(cursor), np.int64)
    for at in range(1, _PREFIX):
        # `wire.size` is padding: a value too short for an id reads a harmless byte
        ids = ids << 8 | wire.data[np.minimum(cursor.at + at, wire.size)]
    cursor.at += np.where(framed, _PREFIX, 0)
    return ids, framed


def _unframed(value: bytes) -> str:
    if len(value) < _PREFIX:
        return "Expected a schema's id, but the value is too short for one"
    return f"Expected a byte of 0 and a schema's id, got a byte of {value[0]}"


def schemaful_decoder(
    columns: pa.Schema,
    schemas: SourceSchemas,
    of_file: Callable[[PinnedSchema], Decoder],
    of_writer: Callable[[PinnedSchema, Indexes], Subdecoder],
    has_indexes: bool = False,
) -> Decoder:
    """Return the decoder of records by the schema of a file, or by the schemas of a registry.

    Args:
        of_file: Makes the decoder of the file's schema.
        of_writer: Makes the decoder of one writer's schema, and of one message in it.

    Raises SchemaFault if there is no schema, or if the columns do not fit the file's schema.
    """
    if schemas.writers is None and schemas.reader is None:
        raise SchemaFault("the source has neither a schema file nor a registry")
    # checked now, also with a registry: the file's schema must fit the columns with any writer
    by_file = of_file(schemas.reader) if schemas.reader is not None else None
    if schemas.writers is None:
        assert by_file is not None, "there is a schema file or a registry"
        return by_file
    pinned = {writer.id: writer.schema for writer in schemas.writers}
    return ConfluentDecoder(columns, pinned, of_writer, has_indexes)
