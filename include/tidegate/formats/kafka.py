"""`format: kafka`, `key_format: kafka`: one column in the bytes of the serializers that Kafka's clients have.

They are those of `IntegerSerializer` (four bytes, the highest first), `LongSerializer` and `DoubleSerializer`
(eight), and `StringSerializer` (UTF-8). ksqlDB writes keys like that.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pt

from tidegate.formats.decoded import Decoded, malformed
from tidegate.formats.registry import Format
from tidegate.formats.text import NOT_UTF8, texts_of

_NUMBERS = (
    (pt.is_int32, struct.Struct(">i")),
    (pt.is_int64, struct.Struct(">q")),
    (pt.is_float64, struct.Struct(">d")),
)
SINGLE = ("int", "bigint", "double", "string")
"""The types that Kafka's clients have serializers for, and that columns can have."""


def _number(type_: pa.DataType) -> struct.Struct | None:
    """Return the form of a number; None for a text."""
    return next((form for matches, form in _NUMBERS if matches(type_)), None)


class KafkaDecoder:
    """Decodes values, or keys, to the one column of `schema`.

    Example: `KafkaDecoder(pa.schema([("id", pa.int32())])).decode([bytes([0, 0, 0, 7])])` has the row 7.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._column = schema.field(0)
        self._number = _number(self._column.type)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode each value; one of another length, or that is not UTF-8, is unusable."""
        column, reasons = self._texts(values) if self._number is None else self._numbers(self._number, values)
        return Decoded(
            pa.StructArray.from_arrays([column], fields=[self._column], mask=column.is_null()), reasons
        )

    def _texts(self, values: Sequence[bytes | None]) -> tuple[pa.Array, dict[int, str]]:
        texts, not_text = texts_of(values)
        return texts, dict.fromkeys(not_text, malformed(f"{NOT_UTF8} - at `{self._column.name}`"))

    def _numbers(
        self, form: struct.Struct, values: Sequence[bytes | None]
    ) -> tuple[pa.Array, dict[int, str]]:
        reasons = {
            row: malformed(f"Expected {form.size} bytes, got {len(value)} - at `{self._column.name}`")
            for row, value in enumerate(values)
            if value is not None and len(value) != form.size
        }
        numbers = [
            None if value is None or row in reasons else form.unpack(value)[0]
            for row, value in enumerate(values)
        ]
        return pa.array(numbers, self._column.type), reasons


def _written(values: pa.StructArray) -> pa.BinaryArray:
    """Return the bytes of each value; null for a deletion, and for a null."""
    (column,) = values.flatten()
    form = _number(column.type)
    if form is None:
        return column.cast(pa.binary())
    return pa.array(
        [None if value is None else form.pack(value) for value in column.to_pylist()], pa.binary()
    )


def _key_bytes(column: pa.Field, text: str) -> bytes:
    form = _number(column.type)
    if form is None:
        return text.encode("utf-8", "surrogatepass")
    return form.pack(float(text) if pt.is_floating(column.type) else int(text))


FORMATS = (
    Format(
        "kafka",
        lambda layout: KafkaDecoder(layout.columns),
        key_decoder=lambda columns, _: KafkaDecoder(columns),
        is_flat=True,
        is_sent=True,
        renaming="Rename it in `columns`: the value has no names.",
        single=SINGLE,
        write=_written,
        written=pa.binary(),
        key_bytes=_key_bytes,
    ),
)
