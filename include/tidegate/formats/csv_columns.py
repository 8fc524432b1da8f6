"""Convert texts to columns as strictly as JSON values: nothing is converted, rounded or trimmed."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.formats.columns import ColumnBuilder
from tidegate.formats.decoded import malformed

_WHOLE = r"-?(?:0|[1-9][0-9]*)"
_NAMED = ("NaN", "Infinity", "-Infinity")  # the names that sinks write, since JSON has no such numbers
_FORMS: dict[str, str] = {
    "boolean": "true|false",
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _WHOLE),
    **dict.fromkeys(("float", "double"), rf"{_WHOLE}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|{'|'.join(_NAMED)}"),
    "date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
}
_KINDS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pt.is_boolean, "boolean"),
    (pt.is_int8, "tinyint"),
    (pt.is_int16, "smallint"),
    (pt.is_int32, "int"),
    (pt.is_int64, "bigint"),
    (pt.is_float32, "float"),
    (pt.is_float64, "double"),
    (pt.is_date, "date"),
)
_LARGEST_FLOAT = float(np.finfo(np.float32).max)


def column_of(texts: pa.StringArray, column: pa.Field, reasons: dict[int, str]) -> pa.Array:
    """Return texts as a column, null where one does not fit.

    Args:
        reasons: row -> reason; gets the reason of each text that does not fit, if its row has none yet.
    """
    if pt.is_string(column.type):
        return texts
    path = f"`{column.name}`"
    builder = ColumnBuilder()
    if pt.is_timestamp(column.type):
        built = builder.times(texts, column.type, column.name, range(len(texts)))
    elif pt.is_decimal(column.type):
        values = texts.cast(pa.binary()).to_pylist()
        built = builder.decimals(values, column.type, column.name, range(len(texts)))
    elif pt.is_binary(column.type):
        built = _binaries(texts, builder.faults, path)
    else:
        built = _scalars(texts, column.type, builder.faults, path)
    for row, why in builder.faults.items():
        reasons.setdefault(row, malformed(why))
    return built


def _scalars(texts: pa.StringArray, type_: pa.DataType, faults: dict[int, str], path: str) -> pa.Array:
    kind = next(kind for matches, kind in _KINDS if matches(type_))
    fits = pc.match_substring_regex(texts, f"^(?:{_FORMS[kind]})$")
    _note(pc.invert(fits), f"Expected `{kind}` - at {path}", faults)
    texts = pc.if_else(fits, texts, None)
    written = texts.is_valid()
    if pt.is_date(type_):  # Arrow accepts the year 0, Python's dates do not
        texts = pc.if_else(pc.starts_with(texts, "0000"), None, texts)
    # a float32 is read as a double first: Arrow would round a too large number to infinity
    values = _cast(texts, pa.float64() if pt.is_float32(type_) else type_)
    lost = pc.and_(values.is_null(), written)
    if pt.is_floating(type_):
        beyond = pc.greater(pc.abs(values), _LARGEST_FLOAT if pt.is_float32(type_) else np.finfo(float).max)
        lost = pc.and_not(beyond, pc.is_in(texts, pa.array(_NAMED)))
    _note(lost, f"A value does not fit into `{kind}` - at {path}", faults)
    return values.cast(type_)


def _cast(texts: pa.StringArray, type_: pa.DataType) -> pa.Array:
    """Return each text's value; null if the type does not have it."""
    try:
        return texts.cast(type_)
    except pa.ArrowInvalid:
        return pa.array([_value(text, type_) for text in texts], type_)


def _value(text: pa.StringScalar, type_: pa.DataType) -> Any:
    try:
        return text.cast(type_).as_py()
    except pa.ArrowInvalid:
        return None


def _binaries(texts: pa.StringArray, faults: dict[int, str], path: str) -> pa.BinaryArray:
    """Decode base64."""
    values: list[bytes | None] = [None] * len(texts)
    for row, text in enumerate(texts.to_pylist()):
        try:
            values[row] = None if text is None else base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):  # the second: a character beyond ASCII
            faults[row] = f"Expected base64 - at {path}"
    return pa.array(values, pa.binary())


def _note(mask: pa.BooleanArray, why: str, faults: dict[int, str]) -> None:
    if mask.true_count:
        for row in map(int, np.flatnonzero(pc.fill_null(mask, False))):
            faults.setdefault(row, why)
