"""`format: protobuf`: each value is one message."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidegate.formats import binary_columns
from tidegate.formats.decoded import Decoded, malformed
from tidegate.formats.protobuf_plan import plan_message
from tidegate.formats.protobuf_read import read_messages
from tidegate.formats.wire import Cursor, Wire
from tidegate.schemas.protobuf import ProtoSchema


class ProtobufDecoder:
    """Decodes messages to the columns of `schema`.

    Args:
        message: The full name of the message.
        lenient: A column that the message does not have is null; else it is an error.

    Raises SchemaFault if the message and the columns do not fit together.
    """

    def __init__(self, schema: pa.Schema, proto: ProtoSchema, message: str, lenient: bool = False) -> None:
        self.schema = schema
        self._type = pa.struct(list(schema))
        self._plan = plan_message(proto, message, self._type, lenient)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode the columns of each value. A value that is not such a message is unusable."""
        wire, cursor = Wire.from_values(values)
        columns = self.read(wire, cursor)
        reasons = {
            row: malformed(reason) for row, reason in sorted(wire.faults.items()) if values[row] is not None
        }
        return Decoded(binary_columns.usable_structs(columns, self._type, values, reasons), reasons)

    def read(self, wire: Wire, cursor: Cursor) -> list[pa.Array]:
        """Return the columns of the messages at the cursor's positions. Faults are recorded in the wire."""
        return read_messages(wire, cursor, self._plan, "$")
