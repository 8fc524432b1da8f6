"""`format: string`: the whole value is one text, in UTF-8."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tidegate.formats.decoded import Decoded, malformed

NOT_UTF8 = "it is not UTF-8"


class StringDecoder:
    """One column, `value`, of type string."""

    schema = pa.schema([pa.field("value", pa.string())])

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Text for each value that is UTF-8."""
        reasons = dict.fromkeys(rows_not_utf8(values), malformed(NOT_UTF8))
        usable = (
            [None if row in reasons else value for row, value in enumerate(values)] if reasons else values
        )
        texts = pa.array(usable, pa.binary()).cast(pa.string())
        return Decoded(_whole(texts, self.schema), reasons)


class BytesDecoder:
    """One column, `value`, of type binary: the value as it is."""

    schema = pa.schema([pa.field("value", pa.binary())])

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """The values themselves; none is unusable."""
        return Decoded(_whole(pa.array(values, pa.binary()), self.schema))


def rows_not_utf8(values: Sequence[bytes | None]) -> Iterator[int]:
    """The rows of values that are not UTF-8. One look at all of them when there is none."""
    try:
        pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        yield from (row for row, value in enumerate(values) if value is not None and not _is_utf8(value))


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _whole(column: pa.Array, schema: pa.Schema) -> pa.StructArray:
    return pa.StructArray.from_arrays([column], fields=list(schema), mask=column.is_null())
