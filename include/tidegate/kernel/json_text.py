"""Values as JSON text, as Spark writes them: compact, nulls included, numbers exact, microseconds kept.

This is the text of a message, so `max_bytes` counts its bytes; a test compares it with Spark's own.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

Encode = Callable[[Any], str]


def encoder(type_: pa.DataType, ordered: bool = False) -> Encode:
    """Return the function that writes a value of this type, as `to_pylist` gives it, as JSON text.

    `ordered`: maps are sorted by their keys' texts, so that equal maps have one text; otherwise as they are.

    Example: `encoder(pa.list_(pa.int64()))([1, None])` is `[1,null]`.
    """
    plain = _encoder(type_, ordered)
    return lambda value: "null" if value is None else plain(value)


def _encoder(type_: pa.DataType, ordered: bool) -> Encode:
    if pa.types.is_struct(type_):
        return _object({field.name: encoder(field.type, ordered) for field in type_})
    if pa.types.is_map(type_):
        return _map(map_key_encoder(type_.key_type), encoder(type_.item_type, ordered), ordered)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        item = encoder(type_.value_type, ordered)
        return lambda value: "[" + ",".join(map(item, value)) + "]"
    if pa.types.is_floating(type_):
        # the shortest digits of a float32; `repr` would write those of the double
        digits: Encode = (lambda value: str(np.float32(value))) if pa.types.is_float32(type_) else repr
        return lambda value: _as_java(digits(value)) if math.isfinite(value) else f'"{_not_finite(value)}"'
    if pa.types.is_boolean(type_):
        return lambda value: "true" if value else "false"
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        return str
    return lambda value: quoted(_text(value))


_ESCAPES = str.maketrans(
    {chr(code): f"\\u{code:04X}" for code in range(0x20)}
    | {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
)
"""The characters that Spark's JSON writer escapes; Python's own writer has lower-case hexadecimal digits."""


def quoted(text: str) -> str:
    """Return a text as a JSON string."""
    return f'"{text.translate(_ESCAPES)}"'


def _object(fields: dict[str, Encode]) -> Encode:
    encoders = [(name, quoted(name), encode) for name, encode in fields.items()]
    return lambda value: (
        "{" + ",".join([f"{label}:{encode(value[name])}" for name, label, encode in encoders]) + "}"
    )


def _map(key: Encode, item: Encode, ordered: bool) -> Encode:
    def encode(value: Any) -> str:
        entries = [(key(name), item(part)) for name, part in value]
        if ordered:
            entries.sort(key=lambda entry: entry[0])
        return "{" + ",".join([f"{name}:{part}" for name, part in entries]) + "}"

    return encode


def map_key_encoder(type_: pa.DataType) -> Encode:
    """Return the function that writes a map's key as JSON text: a string, whichever type it has.

    Example: `map_key_encoder(pa.int64())(7)` is `"7"`, with the quotes.
    """
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return quoted
    encode = encoder(type_)
    return lambda value: quoted(encode(value).strip('"'))


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _as_java(digits: str) -> str:
    """Return a float's shortest digits in Java's form: `1.0E7`; Python writes `10000000.0`, and numpy
    `1e+07`.
    """
    number = Decimal(digits)
    exponent = number.adjusted()
    if not number or -3 <= exponent < 7:
        plain = format(number, "f")
        return plain if "." in plain else f"{plain}.0"
    first, *rest = map(str, number.as_tuple().digits)
    sign = "-" if number.is_signed() else ""
    return f"{sign}{first}.{''.join(rest).rstrip('0') or '0'}E{exponent}"


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return str(value)
