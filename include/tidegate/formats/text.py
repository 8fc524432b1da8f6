"""`format: string`: the whole value is one text, in UTF-8. `format: bytes`: the value as it is."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidegate.formats.decoded import Decoded, malformed

NOT_UTF8 = "it is not UTF-8"


class StringDecoder:
    """One column, `value`, of type string."""

    schema = pa.schema([pa.field("value", pa.string())])

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Text for each value that is UTF-8; the others are null, with a reason."""
        texts, not_text = texts_of(values)
        return Decoded(_as_struct(texts, self.schema), dict.fromkeys(not_text, malformed(NOT_UTF8)))


class BytesDecoder:
    """One column, `value`, of type binary: the value as it is."""

    schema = pa.schema([pa.field("value", pa.binary())])

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """The values themselves; none is unusable."""
        return Decoded(_as_struct(pa.array(values, pa.binary()), self.schema))


def texts_of(values: Sequence[bytes | None]) -> tuple[pa.StringArray, list[int]]:
    """The values as texts, and the rows of those that are not UTF-8: they, too, are null.

    One look at all of the values when there is none.
    """
    try:
        return pa.array(values, pa.binary()).cast(pa.string()), []
    except pa.ArrowInvalid:
        texts = [value if value is None or _is_utf8(value) else None for value in values]
        not_text = [row for row, value in enumerate(values) if value is not None and texts[row] is None]
        return pa.array(texts, pa.binary()).cast(pa.string()), not_text


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _as_struct(column: pa.Array, schema: pa.Schema) -> pa.StructArray:
    return pa.StructArray.from_arrays([column], fields=list(schema), mask=column.is_null())
