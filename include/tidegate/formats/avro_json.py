"""Encode a default value of a schema, which is JSON, to the bytes that a writer would have written."""

from __future__ import annotations

import json
import struct
from typing import Any

from tidegate.schemas.avro import NO_DEFAULT, AvroType
from tidegate.schemas.faults import SchemaFault


def encoded_value(type_: AvroType, value: Any, path: str) -> bytes:
    r"""Return the value in Avro's binary encoding. `path` names the value in errors.

    Raises SchemaFault if the value does not have the type.

    Example::

        encoded_value(AvroType("int"), 3, "$.n")  # b"\x06"
    """
    try:
        return _encoded(type_, value)
    except (TypeError, ValueError, KeyError, AttributeError, struct.error, OverflowError, RecursionError):
        raise SchemaFault(f"`{path}` is {json.dumps(value)[:60]}, and no `{type_.text}`") from None


def _encoded(type_: AvroType, value: Any) -> bytes:
    """Return the encoded value. Raises one of Python's own errors if the value does not have the type."""
    if type_.kind == "union":
        return _of_union(type_, value)
    if type_.kind == "record":
        return b"".join(_encoded(field.type, _of_field(value, field)) for field in type_.fields)
    if type_.kind in ("array", "map"):
        return _of_items(type_, value)
    if type_.kind == "enum":
        return _long(type_.symbols.index(value))
    if type_.kind == "null":
        _require(value is None)
        return b""
    if type_.kind == "boolean":
        _require(isinstance(value, bool))
        return bytes([value])
    if type_.kind in ("int", "long"):
        bits = 31 if type_.kind == "int" else 63
        _require(type(value) is int and -(2**bits) <= value < 2**bits)
        return _long(value)
    if type_.kind in ("float", "double"):
        _require(
            (isinstance(value, (int, float)) and not isinstance(value, bool))
            or value in ("NaN", "Infinity", "-Infinity")
        )
        return struct.pack("<f" if type_.kind == "float" else "<d", float(value))
    # in a default, bytes are a text with one character from U+0000 to U+00FF per byte (Avro, "Complex Types")
    data: bytes = value.encode("utf-8" if type_.kind == "string" else "latin-1")
    _require(type_.kind != "fixed" or len(data) == type_.size)
    return data if type_.kind == "fixed" else _long(len(data)) + data


def _of_union(type_: AvroType, value: Any) -> bytes:
    """Return the value as the first branch of the union that it fits."""
    for number, branch in enumerate(type_.types):
        try:
            return _long(number) + _encoded(branch, value)
        except (TypeError, ValueError, KeyError, AttributeError, struct.error, OverflowError):
            continue
    raise ValueError(value)


def _of_field(value: Any, field: Any) -> Any:
    value_or_default = value.get(field.name, field.default)
    _require(value_or_default is not NO_DEFAULT)
    return value_or_default


def _of_items(type_: AvroType, value: Any) -> bytes:
    if type_.kind == "array":
        _require(isinstance(value, list))
        items = [_encoded(type_.items, item) for item in value]
    else:
        items = [
            _encoded(AvroType("string"), name) + _encoded(type_.items, item) for name, item in value.items()
        ]
    # one block with all items; the count 0 ends an array or map
    return (_long(len(items)) + b"".join(items) if items else b"") + _long(0)


def _long(value: int) -> bytes:
    """Encode an integer as a zigzag varint: seven bits per byte."""
    rest = (value << 1) ^ (value >> 63)
    data = bytearray()
    while rest > 0x7F:
        data.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*data, rest])


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError
