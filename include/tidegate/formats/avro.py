"""`format: avro`: each value is the binary encoding of one record, without its schema."""

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
    """Decode values of the schema `writer` to the columns of `schema`.

    Args:
        writer: The schema that the values were written by.
        reader: The schema that the pipeline sees; None: fields are matched to columns directly.

    Raises SchemaFault if the schemas and the columns do not fit together.
    """

    def __init__(self, schema: pa.Schema, writer: AvroType, reader: AvroType | None = None) -> None:
        self.schema = schema
        self._type = pa.struct(list(schema))
        self._records = resolve_records(writer, reader, self._type)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode each value. A value that does not match the schema, or has bytes left over, is unusable."""
        wire, cursor = Wire.from_values(values)
        absent = [row for row, value in enumerate(values) if value is None]
        # a tombstone has no bytes, which is not a fault: it is not read at all
        if absent:
            cursor = cursor.part(binary_columns.rows_except(len(values), absent))
        columns = self.read(wire, cursor)
        if absent:
            columns = [
                binary_columns.placed(len(values), [cursor.rows], [column], column.type) for column in columns
            ]
        reasons = {row: malformed(reason) for row, reason in sorted(wire.faults.items())}
        return Decoded(binary_columns.usable_structs(columns, self._type, values, reasons), reasons)

    def read(self, wire: Wire, cursor: Cursor) -> list[pa.Array]:
        """Return the columns of the values at the cursor's positions. Faults are recorded in the wire.

        Args:
            cursor: The beginnings of records; it is moved behind them.
        """
        with room_on_stack():
            records = self._records(wire, cursor)
        # Avro's bytes do not say where a record ends: bytes left over are the sign of another schema
        binary_columns.left_over(wire, cursor)
        columns: list[pa.Array] = records.flatten()
        return columns
