"""`format: string`: the whole value is one UTF-8 text. `format: bytes`: the value is used unchanged."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidegate.formats.decoded import Decoded, malformed
from tidegate.formats.registry import Format

NOT_UTF8 = "it is not UTF-8"


class StringDecoder:
    """Decodes values to one column, `value`, of type string."""

    schema = pa.schema([pa.field("value", pa.string())])

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode each value as UTF-8; a value that is not UTF-8 is null, with a reason."""
        texts, not_text = texts_of(values)
        return Decoded(_as_struct(texts, self.schema), dict.fromkeys(not_text, malformed(NOT_UTF8)))


class BytesDecoder:
    """Decodes values to one column, `value`, of type binary."""

    schema = pa.schema([pa.field("value", pa.binary())])

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Return the values unchanged; each value can be used."""
        return Decoded(_as_struct(pa.array(values, pa.binary()), self.schema))


def texts_of(values: Sequence[bytes | None]) -> tuple[pa.StringArray, list[int]]:
    r"""Return the values as texts, and the rows that are not UTF-8, whose texts are null.

    Example::

        texts_of([b"a", b"\xff", None])  # (["a", None, None], [1])
    """
    try:
        # Arrow checks all values at once; they are checked one by one only if a value is not UTF-8
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


FORMATS = (
    Format("string", lambda _: StringDecoder(), columns=StringDecoder.schema),
    Format("bytes", lambda _: BytesDecoder(), columns=BytesDecoder.schema),
)
