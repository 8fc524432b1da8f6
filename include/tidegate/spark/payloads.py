"""The values and keys of messages, written beside the outbox's columns: sinks only send them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import SchemaRefused
from tidegate.formats.avro_write import avro_writer
from tidegate.formats.binary_write import Write, joined
from tidegate.formats.envelope import SOURCE_TEXTS, envelope_texts, enveloped
from tidegate.formats.payload import Payload, SinkSchema
from tidegate.formats.protobuf_derived import DERIVED, derived_schema, numbers_of
from tidegate.formats.protobuf_write import message_indexes, protobuf_writer
from tidegate.formats.schemas import WIRE_PREFIX, Unwritable
from tidegate.kernel.json_columns import json_texts
from tidegate.schemas.avro import parse_avro
from tidegate.schemas.protobuf import proto_from_json
from tidegate.spark.keys import KeyColumns
from tidegate.storage.outbox import REASON, TIMESTAMP, VALUE, parts_of, window_columns


@dataclass(frozen=True)
class MessageValues:
    """The values of one sink's messages, or their keys.

    Args:
        payload: the form that the sink wants.
        keys: the columns of the stage's key.
        windowed: whether the stage has windows.
        stream: with `stage` and `seq` the origin of the emissions, for envelopes.
        columns: the columns of the sink's schema; None: it has none, and the values are JSON.
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
        """The type of the outbox's column for them."""
        return pa.string() if self.columns is None else pa.binary()

    def encoded(self, emissions: pa.RecordBatch, keys: pa.StructArray, chains: pa.StringArray) -> pa.Array:
        """Return the values; null for a deletion, unless they are envelopes.

        Raises SchemaRefused if a value has no form in the format.

        Args:
            emissions: emissions of the stage.
            keys: the columns of the emissions' keys.
            chains: the positions that they come from.
        """
        if self.payload.is_key:
            return json_texts(keys) if self.columns is None else self._by_schema(keys)
        value = self._whole(emissions, emissions.column(VALUE), keys)
        if not self.payload.enveloped:
            return json_texts(value) if self.columns is None else self._by_schema(value)
        before = self._whole(emissions, emissions.column("emitted"), keys)
        parts = (before, value, self._source(emissions, chains), emissions.column("at"))
        return envelope_texts(*parts) if self.columns is None else self._by_schema(enveloped(*parts))

    def _whole(
        self, emissions: pa.RecordBatch, value: pa.StructArray, keys: pa.StructArray
    ) -> pa.StructArray:
        """Return the value, with the columns of key and window before its own if the sink wants them; null
        for null.
        """
        if not self.payload.with_key:
            return value
        columns = parts_of(keys) if self.keys.names else {}
        columns |= {name: emissions.column(name) for name in window_columns(self.windowed)}
        # A selected column hides a column of the key or the window with its name.
        own = parts_of(value)
        columns = {name: column for name, column in columns.items() if name not in own} | own
        return pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=pc.is_null(value))

    def _source(self, emissions: pa.RecordBatch, chains: pa.StringArray) -> dict[str, pa.Array]:
        number = emissions.num_rows
        fixed = zip(SOURCE_TEXTS, ("tidegate", self.stream, self.stage), strict=True)
        return {
            **{name: pa.repeat(text, number) for name, text in fixed},
            "batch": pa.repeat(pa.scalar(self.seq, pa.int64()), number),
            "reason": emissions.column(REASON),
            "position": chains,
            "ts_ms": emissions.column(TIMESTAMP),
            **{name: emissions.column(name) for name in window_columns(self.windowed)},
        }

    def _by_schema(self, values: pa.StructArray) -> pa.BinaryArray:
        schema = self.payload.schema
        assert schema is not None, "a plan fixes it"
        assert self.columns is not None, "they are its columns"
        try:
            prefix, write = _writer(self.payload.format, schema, self.columns)
            return joined(prefix, write(values.cast(pa.struct(list(self.columns)))), b"")
        except (Unwritable, pa.ArrowException) as error:
            raise SchemaRefused(
                f"An emission of the stage {self.stage} cannot be written as {self.payload.format}: {error}",
                "Select the column with a type that fits; nothing was published.",
            ) from None


@lru_cache(maxsize=32)
def _writer(format_: str, schema: SinkSchema, columns: pa.Schema) -> tuple[bytes, Write]:
    """Return the prefix of each value, and the function that writes the rest."""
    prefix = b"" if schema.id is None else WIRE_PREFIX.pack(0, schema.id)
    if format_ == "avro":
        return prefix, avro_writer(parse_avro(schema.text), columns)
    if schema.compiled:
        compiled, message = proto_from_json(schema.compiled), schema.message
    else:
        compiled, message = derived_schema(columns, numbers_of(schema.text)), DERIVED
    indexes = message_indexes(compiled, message) if prefix else b""
    return prefix + indexes, protobuf_writer(compiled, message, columns)
