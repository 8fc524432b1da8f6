"""Structs, arrays and maps as JSON text, as Spark writes them: compact, nulls included, numbers exact."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

Encode = Callable[[Any], str]


def encoder(type_: pa.DataType) -> Encode:
    """The JSON text of a value of this type, as `to_pylist` gives it."""
    plain = _encoder(type_)
    return lambda value: "null" if value is None else plain(value)


def _encoder(type_: pa.DataType) -> Encode:
    if pa.types.is_struct(type_):
        return _object({field.name: encoder(field.type) for field in type_})
    if pa.types.is_map(type_):
        key, item = _map_key(type_.key_type), encoder(type_.item_type)
        return lambda value: "{" + ",".join(f"{key(name)}:{item(each)}" for name, each in value) + "}"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        item = encoder(type_.value_type)
        return lambda value: "[" + ",".join(map(item, value)) + "]"
    if pa.types.is_floating(type_):
        digits: Encode = (lambda value: str(np.float32(value))) if pa.types.is_float32(type_) else repr
        return lambda value: digits(value) if math.isfinite(value) else f'"{_not_finite(value)}"'
    if pa.types.is_boolean(type_):
        return lambda value: "true" if value else "false"
    if pa.types.is_integer(type_):
        return str
    if pa.types.is_decimal(type_):
        return lambda value: format(value, "f")
    return lambda value: json.dumps(_text(value), ensure_ascii=False)


def _object(fields: dict[str, Encode]) -> Encode:
    named = [(name, json.dumps(name, ensure_ascii=False), encode) for name, encode in fields.items()]
    return lambda value: (
        "{" + ",".join(f"{shown}:{encode(value[name])}" for name, shown, encode in named) + "}"
    )


def _map_key(type_: pa.DataType) -> Encode:
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return lambda value: json.dumps(value, ensure_ascii=False)
    encode = encoder(type_)
    return lambda value: json.dumps(encode(value).strip('"'), ensure_ascii=False)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime):
        precision = "microseconds" if value.microsecond % 1000 else "milliseconds"
        return value.isoformat(timespec=precision).replace("+00:00", "Z")
    return str(value)
