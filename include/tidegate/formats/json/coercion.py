"""`coerce: true` of `format: json`: values of another type than their column's are converted as ksqlDB
converts them, whose rules are those of Jackson and Java.

Each record is read strictly first, and only one that is refused is converted and read again.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tidegate.formats.decoded import Decoded, Decoder
from tidegate.formats.json import OlderNames
from tidegate.kernel.json_text import quoted

_WHOLE = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?")
_NOT_FINITE = re.compile(r"([+-]?)(NaN|Infinity)")
_MOST_ZEROS = 64
"""A whole number that ends on as many decimal zeros has as many binary ones: all that a long has room for."""


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_JSON = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse)


class CoercingDecoder:
    """Decodes values with another decoder, and those that it refuses once more, converted.

    Example: with a column `n int`, `{"n": "7"}` has the row 7, and `{"n": "seven"}` is unusable.
    """

    def __init__(self, decoder: Decoder, aliases: OlderNames) -> None:
        self.schema = decoder.schema
        self._decoder = decoder
        self._types = {
            name: field.type for field in self.schema for name in (field.name, *aliases.get(field.name, ()))
        }

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode values. A value that cannot be converted has the reason of the strict reading."""
        strict = self._decoder.decode(values)
        converted = {row: self._converted(values[row] or b"") for row in strict.reasons}
        rows = [row for row, text in converted.items() if text is not None]
        if not rows:
            return strict
        again = self._decoder.decode([converted[row] for row in rows])
        usable = {row: place for place, row in enumerate(rows) if place not in again.reasons}
        places = np.arange(len(values))
        places[list(usable)] = [len(values) + place for place in usable.values()]
        columns = pa.concat_arrays([strict.columns, again.columns]).take(pa.array(places))
        reasons = {row: reason for row, reason in strict.reasons.items() if row not in usable}
        return replace(strict, columns=columns, reasons=reasons)

    def _converted(self, value: bytes) -> bytes | None:
        """Return an object with converted fields; None if it has none, or is no object."""
        try:
            record, _ = _JSON.raw_decode(value.decode().lstrip(" \t\r\n"))
            if not isinstance(record, dict):
                return None
            fields = {
                name: _coerced(part, self._types[name])
                for name, part in record.items()
                if name in self._types
            }
            return _text(fields).encode()
        except (ValueError, ArithmeticError, RecursionError):
            return None


def _coerced(value: Any, type_: pa.DataType) -> Any:
    """Return a value of JSON as the type takes it. Raises ValueError if it has no such form."""
    if value is None:
        return None
    if pt.is_list(type_):
        return [_coerced(item, type_.value_type) for item in _required(value, list)]
    if pt.is_map(type_):
        return {name: _coerced(item, type_.item_type) for name, item in _required(value, dict).items()}
    if pt.is_struct(type_):
        parts, fields = _required(value, dict), {field.name: field.type for field in type_}
        return {name: _coerced(part, fields[name]) for name, part in parts.items() if name in fields}
    return next((rule for matches, rule in _RULES if matches(type_)), _unchanged)(value, type_)


def _required(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is no {kind.__name__}")
    return value


def _unchanged(value: Any, type_: pa.DataType) -> Any:
    del type_
    return value


def _whole(value: Any, type_: pa.DataType) -> int:
    """Return a number without its fraction, and the lowest bits of one that is too large, as Java does; or
    the number that a text has, which has to fit.
    """
    bits = type_.bit_width
    if isinstance(value, str):
        if _WHOLE.fullmatch(value) is None or not -(2 ** (bits - 1)) <= int(value) < 2 ** (bits - 1):
            raise ValueError(f"{value!r} is no whole number of {bits} bits")
        return int(value)
    number = _number(value)
    if isinstance(number, Decimal) and number.as_tuple().exponent >= _MOST_ZEROS:  # type: ignore[operator]
        return 0
    lowest: int = (int(number) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    return lowest


def _number(value: Any) -> int | Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError(f"{value!r} is no number")
    return value


def _double(value: Any, type_: pa.DataType) -> float:
    del type_
    if not isinstance(value, str):
        return _float(_number(value))
    text = value.strip("".join(map(chr, range(0x21))))
    if (match := _DOUBLE.fullmatch(text)) is not None:
        return float(match[1])
    if (match := _NOT_FINITE.fullmatch(text)) is not None:
        return float(match[1] + match[2])
    raise ValueError(f"{value!r} is no number")


def _float(number: int | Decimal) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _string(value: Any, type_: pa.DataType) -> str:
    """Return the text of a value: of an object its JSON, and of an array its items between commas."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        items = ("null" if item is None else _string(item, type_) for item in value)
        return f"[{', '.join(items)}]"
    return _text(value)


_RULES: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]]] = (
    (pt.is_integer, _whole),
    (pt.is_floating, _double),
    (pt.is_string, _string),
)


def _text(value: Any) -> str:
    """Return a value as JSON, with the digits that numbers were read with."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(name)}:{_text(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Decimal):
        return str(value or abs(value))  # Java's zero has no sign
    if isinstance(value, float):
        names = {math.inf: '"Infinity"', -math.inf: '"-Infinity"'}
        return '"NaN"' if math.isnan(value) else names.get(value) or repr(value)
    return json.dumps(value)
