"""Values as JSON text, as Spark writes them: compact, nulls included, numbers exact, microseconds kept.

This is the text of a message, so `max_bytes` counts its bytes; a test compares it with Spark's own.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.kernel.rows import Ints

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
    """Return a float's shortest digits in Java's form: `1.0E7`, and not Python's `10000000.0`."""
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


_ESCAPED = r'["\\\x00-\x1f]'

_PLAIN_FRACTIONS = (1e-3, 1e7)
"""From the first to below the second, Java writes a float without an exponent."""


def json_texts(values: pa.Array) -> pa.StringArray:
    """Return the JSON text of each value, as Spark writes it: nulls inside a value are written; null for
    null.

    Dates and times must be in the years 1 to 9999, and all texts of one array must fit into 2 GiB.

    Example: structs `{"a": 1, "b": null}` give `{"a":1,"b":null}`.
    """
    if not len(values):
        return pa.array([], pa.string())
    return _writer(values.type)(values)


def object_texts(names: Sequence[str], parts: Sequence[pa.StringArray]) -> pa.StringArray:
    """Return JSON objects of fields' names and JSON texts; null if one of the texts is null.

    Example: names `a` and `b` with the texts `1` and `"x"` give `{"a":1,"b":"x"}`.
    """
    pieces: list[pa.StringArray | str] = []
    for place, (name, part) in enumerate(zip(names, parts, strict=True)):
        before = "," if place else "{"
        pieces += [f"{before}{quoted(name)}:", part]
    return pc.binary_join_element_wise(*pieces, "}", "")


Writer = Callable[[pa.Array], pa.StringArray]


def _writer(type_: pa.DataType) -> Writer:
    return next((writer for matches, writer in _WRITERS if matches(type_)), _one_by_one)


def _part(values: pa.Array) -> pa.StringArray:
    """Return the texts of values inside another value."""
    return pc.fill_null(json_texts(values), "null")


def _cast(values: pa.Array) -> pa.StringArray:
    return values.cast(pa.string())


def _one_by_one(values: pa.Array) -> pa.StringArray:
    encode = encoder(values.type)
    return pa.array([None if value is None else encode(value) for value in values.to_pylist()], pa.string())


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _strings(texts: pa.StringArray) -> pa.StringArray:
    if not _may_need_escapes(texts):
        return _quoted(texts)
    escaped = pc.match_substring_regex(texts, _ESCAPED)
    return pc.replace_with_mask(_quoted(texts), escaped, _one_by_one(texts.filter(escaped)))


def _may_need_escapes(texts: pa.StringArray) -> bool:
    """Return whether the texts contain a character that JSON escapes; one look at all their bytes."""
    codes, _ = text_codes(texts)
    return bool(((codes < 0x20) | (codes == ord('"')) | (codes == ord("\\"))).any())


def text_codes(texts: pa.StringArray) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], Ints]:
    """Return the bytes of all texts, one after the other, and where each begins; the last number is the end.

    Example: the texts `a` and `bc` give the codes of `abc`, and 0, 1 and 3.
    """
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):  # Arrow lets an array without values have no offsets
        return np.empty(0, np.uint8), np.zeros(len(texts) + 1, np.int64)
    # a slice shares the buffers of its whole array
    starts = np.frombuffer(offsets, np.int32)[texts.offset :][: len(texts) + 1].astype(np.int64)
    return np.frombuffer(data, np.uint8)[starts[0] : starts[-1]], starts - starts[0]


def _floats(values: pa.FloatingPointArray) -> pa.StringArray:
    """Write numbers as Java does: `1.0`, `0.001`, `1.0E7`, `"NaN"`."""
    least, end = _PLAIN_FRACTIONS
    size = pc.abs(values)
    # NaN and infinities are not plain either: they are written one by one
    plain = pc.or_(pc.and_(pc.greater_equal(size, least), pc.less(size, end)), pc.equal(size, 0))
    texts = _cast(values)
    point = pc.if_else(pc.match_substring(texts, "."), "", ".0")
    exponential = pc.invert(plain)
    return pc.replace_with_mask(
        pc.binary_join_element_wise(texts, point, ""), exponential, _one_by_one(values.filter(exponential))
    )


def _times(values: pa.TimestampArray) -> pa.StringArray:
    """Write times in UTC: `"2026-01-31T10:30:00.000000Z"`, without Z if the type has no zone."""
    # Arrow puts a blank between day and time, Spark a T
    texts = values.cast(pa.timestamp("us")).cast(pa.string())
    zone = "Z" if values.type.tz else ""
    return pc.binary_join_element_wise('"', pc.binary_replace_slice(texts, 10, 11, "T"), zone, '"', "")


def _structs(values: pa.StructArray) -> pa.StringArray:
    names = [field.name for field in values.type]
    texts = object_texts(names, [_part(field) for field in values.flatten()])
    return pc.if_else(values.is_valid(), texts, None) if values.null_count else texts


def _maps(values: pa.MapArray) -> pa.StringArray:
    entry = pa.struct([values.type.key_field, values.type.item_field])
    # Arrow has no kernel that flattens a map
    lists = values.cast(pa.list_(pa.field("entries", entry, nullable=False)))
    keys, items = lists.flatten().flatten()
    return _joined(lists, "{", pc.binary_join_element_wise(_map_keys(keys), _part(items), ":"), "}")


def _map_keys(keys: pa.Array) -> pa.StringArray:
    if pt.is_string(keys.type):
        return _strings(keys)
    return pa.array(map(map_key_encoder(keys.type), keys.to_pylist()), pa.string())


def _joined(lists: pa.ListArray, before: str, items: pa.StringArray, after: str) -> pa.StringArray:
    """Return one text per list; `items` are the texts of the items of all lists, in order."""
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    texts = pa.ListArray.from_arrays(offsets, items, mask=lists.is_null())
    return pc.binary_join_element_wise(before, pc.binary_join(texts, ","), after, "")


_WRITERS: Sequence[tuple[Callable[[pa.DataType], bool], Writer]] = (
    (pt.is_boolean, _cast),
    (pt.is_integer, _cast),
    (pt.is_decimal, _cast),
    (pt.is_string, _strings),
    (pt.is_date, lambda days: _quoted(_cast(days))),
    (pt.is_timestamp, _times),
    (lambda type_: pt.is_float32(type_) or pt.is_float64(type_), _floats),
    (pt.is_struct, _structs),
    (pt.is_list, lambda values: _joined(values, "[", _part(values.flatten()), "]")),
    (pt.is_map, _maps),
)
"""Type of a column -> the function that writes its values' texts; null for null."""


def serialize(value: Any) -> bytes:
    """Return compact JSON in UTF-8; values that JSON has no form for are written as Python's text of them.

    Example: bytes are written in hexadecimal digits: `{"a":"01"}`.
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_plain_text).encode(
        "utf-8", "surrogatepass"
    )


def _plain_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def text_bytes(values: pa.Array) -> Ints:
    """Return the bytes of each value's JSON text in UTF-8; 0 for null.

    Example: the texts `a` and null give 3 and 0, with the quotes of JSON.
    """
    sizes: Ints = pc.fill_null(pc.binary_length(json_texts(values)), 0).to_numpy().astype(np.int64)
    return sizes
