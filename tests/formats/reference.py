"""A deliberately plain reader of strict JSON: Python's own parser, then one check per type."""

from __future__ import annotations

import base64
import json
import math
import re
from datetime import date, datetime, timezone
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII)
DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,6})?", re.ASCII)
FLOAT_MAX = 3.4028234663852886e38


class Unusable(Exception):
    """The value is not what its columns say."""


def read(value: bytes, schema: pa.Schema) -> dict[str, Any]:
    """The fields of one value, as `pa.Scalar.as_py` gives them. Raises Unusable."""
    try:
        document = json.loads(value.decode(), parse_constant=refuse, parse_float=Number, parse_int=Integer)
        json.dumps(document, ensure_ascii=False).encode()  # half of a pair of surrogates is no text
    except (ValueError, RecursionError) as error:
        raise Unusable from error
    return struct(document, pa.struct(list(schema)))


def refuse(name: str) -> Any:
    raise Unusable(name)


class Number(str):
    """The text of a number with a point or an exponent."""


class Integer(str):
    """A number without."""


def struct(document: Any, type_: pa.StructType) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise Unusable
    return {field.name: convert(document.get(field.name), field.type) for field in type_}


def convert(value: Any, type_: pa.DataType) -> Any:
    if value is None:
        return None
    if pt.is_struct(type_):
        return struct(value, type_)
    if pt.is_list(type_):
        require(isinstance(value, list))
        return [convert(item, type_.value_type) for item in value]
    if pt.is_map(type_):
        require(isinstance(value, dict))
        return [(str(key), convert(item, type_.item_type)) for key, item in value.items()]
    return scalar(value, type_)


def scalar(value: Any, type_: pa.DataType) -> Any:
    if pt.is_boolean(type_):
        require(isinstance(value, bool))
        return value
    if pt.is_integer(type_):
        require(isinstance(value, Integer))
        limit = 2 ** (type_.bit_width - 1)
        require(-limit <= int(value) < limit)
        return int(value)
    if pt.is_floating(type_) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if pt.is_floating(type_):
        require(isinstance(value, (Integer, Number)))
        number = float(value)
        require(math.isfinite(number))
        if pt.is_float32(type_):
            require(abs(number) <= FLOAT_MAX)
            return pa.scalar(number, pa.float32()).as_py()
        return number
    if pt.is_decimal(type_):
        return decimal(value, type_)
    require(isinstance(value, str) and not isinstance(value, (Integer, Number)))
    return of_text(value, type_)


def of_text(value: str, type_: pa.DataType) -> Any:
    try:
        if pt.is_string(type_):
            return str(value)
        if pt.is_binary(type_):
            return base64.b64decode(value, validate=True)
        if pt.is_date(type_):
            require(re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII) is not None)
            return date.fromisoformat(value)
        require(RFC3339.fullmatch(value) is not None)
        at = datetime.fromisoformat(value.upper())
        if type_.tz is None:
            require(at.tzinfo is None)
            return at
        return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, OverflowError) as error:
        raise Unusable from error


def decimal(value: Any, type_: pa.DataType) -> Decimal:
    require(isinstance(value, str) and DECIMAL.fullmatch(value) is not None)
    number = Decimal(value)
    exact = number.scaleb(type_.scale)
    require(exact == exact.to_integral_value() and abs(exact) < 10**type_.precision)
    return number.quantize(Decimal(1).scaleb(-type_.scale), context=Context(prec=99))


def require(condition: bool) -> None:
    if not condition:
        raise Unusable
