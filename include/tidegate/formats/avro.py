"""`format: avro`: the binary encoding of one record a value, without a schema in it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidegate.formats import binary_columns
from tidegate.formats.avro_resolve import resolve_records
from tidegate.formats.decoded import Decoded, malformed
from tidegate.formats.deep import room_on_stack
from tidegate.formats.wire import Cursor, Wire
from tidegate.schemas.avro import AvroType


class AvroDecoder:
    """Columns of `schema` out of what was written by `writer`, as `reader` sees it (None: as the columns do).

    Raises SchemaFault when they do not fit together.
    """

    def __init__(self, schema: pa.Schema, writer: AvroType, reader: AvroType | None = None) -> None:
        self.schema = schema
        self._type = pa.struct(list(schema))
        self._records = resolve_records(writer, reader, self._type)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """The columns of each value; one that is not of the schema, or has bytes left over, is unusable."""
        wire, cursor = Wire.of(values)
        absent = [row for row, value in enumerate(values) if value is None]
        if absent:
            cursor = cursor.part(binary_columns.others(len(values), absent))
        columns = self.read(wire, cursor)
        if absent:
            columns = [
                binary_columns.placed(len(values), [cursor.rows], [column], column.type) for column in columns
            ]
        reasons = {row: malformed(why) for row, why in sorted(wire.faults.items())}
        return Decoded(binary_columns.usable_structs(columns, self._type, values, reasons), reasons)

    def read(self, wire: Wire, cursor: Cursor) -> list[pa.Array]:
        """The columns of the values at the cursor's places; faults are noted in the wire."""
        with room_on_stack():
            records = self._records(wire, cursor)
        binary_columns.left_over(wire, cursor)
        columns: list[pa.Array] = records.flatten()
        return columns
