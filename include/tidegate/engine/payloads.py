"""The values of messages, written beside the outbox's columns: sinks only send them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.json_columns import json_texts
from tidegate.engine.keys import KeyColumns
from tidegate.errors import SchemaRefused
from tidegate.formats.avro_write import avro_bytes
from tidegate.formats.binary_write import joined
from tidegate.formats.envelope import envelope_texts
from tidegate.formats.payload import Payload
from tidegate.formats.protobuf_write import numbers_of, protobuf_bytes
from tidegate.formats.schemas import WIRE_PREFIX, Unwritable
from tidegate.lake.outbox import REASON, TIMESTAMP, VALUE, parts_of, window_columns

_FIRST_MESSAGE = b"\x00"
"""After the prefix, Protobuf's wire format says which message of the file it is: the first."""


@dataclass(frozen=True)
class MessageValues:
    """The values of one sink's messages. `columns`: as its schema has them; None: it has no schema.

    `stream` and `stage` are whose emissions they are, `seq` of which batch.
    """

    payload: Payload
    keys: KeyColumns
    windowed: bool
    stream: str
    stage: str
    seq: int
    columns: pa.Schema | None = None

    @property
    def type(self) -> pa.DataType:
        """Of the outbox's column that has them."""
        return pa.string() if self.columns is None else pa.binary()

    def of(self, emissions: pa.RecordBatch, keys: pa.StructArray, chains: pa.StringArray) -> pa.Array:
        """The values; null for a deletion, unless they are envelopes. `keys`: the columns of the emissions'
        keys; `chains`: the positions that they come from.

        Raises SchemaRefused where a value has no form in the format.
        """
        value = self._whole(emissions, emissions.column(VALUE), keys)
        if self.payload.format == "json":
            return json_texts(value)
        if self.payload.format == "debezium":
            before = self._whole(emissions, emissions.column("emitted"), keys)
            return envelope_texts(before, value, self._source(emissions, chains), emissions.column("at"))
        return self._by_schema(value)

    def _whole(
        self, emissions: pa.RecordBatch, value: pa.StructArray, keys: pa.StructArray
    ) -> pa.StructArray:
        """The value, where the sink wants it with the key's columns, and the window's, before its own; null
        for null.
        """
        if not self.payload.with_key:
            return value
        columns = parts_of(keys) if self.keys.names else {}
        columns |= {name: emissions.column(name) for name in window_columns(self.windowed)}
        own = parts_of(value)
        columns = {name: column for name, column in columns.items() if name not in own} | own
        return pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=pc.is_null(value))

    def _source(self, emissions: pa.RecordBatch, chains: pa.StringArray) -> dict[str, pa.Array]:
        number = emissions.num_rows
        fixed = {"connector": "tidegate", "name": self.stream, "stage": self.stage}
        return {
            **{name: pa.repeat(text, number) for name, text in fixed.items()},
            "batch": pa.repeat(pa.scalar(self.seq, pa.int64()), number),
            "reason": emissions.column(REASON),
            "position": chains,
            "ts_ms": emissions.column(TIMESTAMP),
            **{name: emissions.column(name) for name in window_columns(self.windowed)},
        }

    def _by_schema(self, value: pa.StructArray) -> pa.BinaryArray:
        schema = self.payload.schema
        assert schema is not None, "a plan fixes it"
        prefix = WIRE_PREFIX.pack(0, schema.id)
        try:
            values = value.cast(pa.struct(list(self.columns or ())))
            if self.payload.format == "avro":
                return joined(prefix, avro_bytes(values))
            return joined(prefix + _FIRST_MESSAGE, protobuf_bytes(values, _numbers(schema.text)))
        except (Unwritable, pa.ArrowException) as error:
            raise SchemaRefused(
                f"An emission of the stage {self.stage} cannot be written as {self.payload.format}: {error}",
                "Select the column with a type that fits; nothing was published.",
            ) from None


_numbers = lru_cache(maxsize=16)(numbers_of)
