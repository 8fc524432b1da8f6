"""Emissions as Protobuf: the schema that follows from their columns, and the bytes of whole columns.

A field keeps its number: numbers come from the version before, new fields get the next, and those of
fields that went are reserved. Every single value is `optional`, so null is told from 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.formats.binary_write import (
    entry_lists,
    fractions,
    integers,
    joined,
    lengths_of,
    list_sizes,
    per_list,
    texts,
    varints,
)
from tidegate.formats.schemas import Unwritable

Numbers = Mapping[tuple[str, ...], int]
"""Names of messages and a field in them, from the outermost in -> the field's number; also of those that
went, by `RESERVED`."""

RESERVED = "reserved "
"""Before a number, in place of the name that a field had."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TIMESTAMP = "google.protobuf.Timestamp"
_SCALARS = {
    pa.bool_(): "bool",
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32()), "int32"),
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.binary(): "bytes",
}
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_NUMBERS_OF_PROTOBUF = range(19_000, 20_000)
_TOKEN = re.compile(r'"[^"]*"|[A-Za-z_][\w.]*|\d+|[{}=;<>,\[\]]')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def numbers_of(text: str) -> dict[tuple[str, ...], int]:
    """The numbers of the fields of a `.proto` file's first message, and those that it reserves."""
    tokens = _TOKEN.findall(_COMMENT.sub("", text))
    numbers: dict[tuple[str, ...], int] = {}
    opened: list[str] = []
    for at, token in enumerate(tokens):
        path = tuple(name for name in opened[1:] if name != "oneof")
        if token == "{":
            kind = tokens[at - 2]
            opened.append(tokens[at - 1] if kind == "message" else kind)
        elif token == "}" and opened:
            opened.pop()
            if not opened and numbers:
                break
        elif not opened or "enum" in opened:
            continue
        elif token == "=" and tokens[at + 1].isdigit():
            field = (*path, tokens[at - 1])
            numbers[field] = int(tokens[at + 1])
        elif token == "reserved" and tokens[at - 1] in (*"{};",):
            for number in _until_semicolon(tokens[at + 1 :]):
                gone = (*path, f"{RESERVED}{number}")
                numbers[gone] = int(number)
    return numbers


def _until_semicolon(tokens: list[str]) -> Iterator[str]:
    end = tokens.index(";")
    return (token for token in tokens[:end] if token.isdigit())


def protobuf_schema(name: str, package: str, columns: pa.Schema, before: Numbers) -> str:
    """The `.proto` text of a message with these columns. Raises Unwritable for names and types that Protobuf
    does not have.
    """
    lines = list(_message(name, columns, before, (), ""))
    head = ['syntax = "proto3";', f"package {package};"]
    if any(_TIMESTAMP in line for line in lines):
        head.append('import "google/protobuf/timestamp.proto";')
    return "\n".join([*head, "", *lines, ""])


def _message(name: str, columns: Any, before: Numbers, path: tuple[str, ...], margin: str) -> Iterator[str]:
    own = {known[-1]: number for known, number in before.items() if known[:-1] == path}
    numbers = _numbered([column.name for column in columns], own)
    yield f"{margin}message {name} {{"
    gone = sorted(number for known, number in own.items() if known not in numbers)
    if gone:
        yield f"{margin}  reserved {', '.join(map(str, gone))};"
    for column in columns:
        inner = _inner(column.name)
        nested = _nested(column.type)
        if nested is not None:
            yield from _message(inner, nested, before, (*path, inner), f"{margin}  ")
        yield f"{margin}  {_declared(column, inner)} {column.name} = {numbers[column.name]};"
    yield f"{margin}}}"


def _numbered(names: list[str], known: Mapping[str, int]) -> dict[str, int]:
    following = max(known.values(), default=0) + 1
    numbers: dict[str, int] = {}
    for name in names:
        if not _NAME.fullmatch(name):
            raise Unwritable(f"`{name}` is no name that Protobuf has: letters, digits and _, no digit first")
        if _inner(name) in names:
            raise Unwritable(f"`{_inner(name)}` would be the message of `{name}`, too")
        if name not in known:
            following = max(following, 20_000) if following in _NUMBERS_OF_PROTOBUF else following
            numbers[name], following = following, following + 1
        else:
            numbers[name] = known[name]
    return numbers


def _inner(name: str) -> str:
    """The name of the message that a column's values are."""
    return f"{name}_type"


def _nested(type_: pa.DataType) -> pa.StructType | None:
    if pt.is_list(type_):
        type_ = type_.value_type
    if pt.is_map(type_):
        type_ = type_.item_type
    return type_ if pt.is_struct(type_) else None


def _declared(column: pa.Field, inner: str) -> str:
    type_ = column.type
    if pt.is_map(type_):
        return f"map<string, {_single(type_.item_type, inner, column.name)}>"
    if pt.is_list(type_):
        return f"repeated {_single(type_.value_type, inner, column.name)}"
    single = _single(type_, inner, column.name)
    return single if pt.is_struct(type_) else f"optional {single}"


def _single(type_: pa.DataType, inner: str, name: str) -> str:
    if pt.is_list(type_) or pt.is_map(type_):
        raise Unwritable(f"`{name}` has lists or maps in lists or maps, which Protobuf does not have")
    if pt.is_struct(type_):
        return inner
    if pt.is_timestamp(type_) and type_.tz:
        return _TIMESTAMP
    return _SCALARS.get(type_, "string")


def protobuf_bytes(values: pa.StructArray, numbers: Numbers) -> pa.BinaryArray:
    """The bytes of each value; null for null. Raises Unwritable for a null in a list or a map.

    `numbers` are those of its schema's text.
    """
    return pc.if_else(values.is_valid(), _fields(values, numbers, ()), pa.scalar(None, pa.binary()))


def _fields(values: pa.StructArray, numbers: Numbers, path: tuple[str, ...]) -> pa.BinaryArray:
    pieces = [
        _field(column, field.name, numbers, path)
        for field, column in zip(values.type, values.flatten(), strict=True)
    ]
    return joined(*pieces, b"")


def _field(values: pa.Array, name: str, numbers: Numbers, path: tuple[str, ...]) -> pa.BinaryArray:
    place, inner = (*path, name), (*path, _inner(name))
    number, type_ = numbers[place], values.type
    if pt.is_map(type_):
        lists = entry_lists(values)
        keys, items = lists.flatten().flatten()
        _require_items(items, name)
        pair = joined(_value(1, keys, numbers, ()), _value(2, items, numbers, inner))
        return per_list(lists, joined(_tag(number, _LENGTH), _with_length(pair)))
    if pt.is_list(type_):
        items = values.flatten()
        _require_items(items, name)
        if not _is_packed(items.type):
            return per_list(values, _value(number, items, numbers, inner))
        packed = per_list(values, _plain(items, numbers, inner))
        field = joined(_tag(number, _LENGTH), _with_length(packed))
        return pc.if_else(pa.array(list_sizes(values) > 0), field, _nothing())
    return pc.if_else(values.is_valid(), _value(number, values, numbers, inner), _nothing())


def _value(number: int, values: pa.Array, numbers: Numbers, path: tuple[str, ...]) -> pa.BinaryArray:
    """With its tag."""
    wire = _wire(values.type)
    plain = _plain(values, numbers, path)
    return joined(_tag(number, wire), _with_length(plain) if wire == _LENGTH else plain)


def _plain(values: pa.Array, numbers: Numbers, path: tuple[str, ...]) -> pa.BinaryArray:
    type_ = values.type
    if pt.is_struct(type_):
        return _fields(values, numbers, path)
    if pt.is_timestamp(type_) and type_.tz:
        return _instants(values)
    if pt.is_floating(type_):
        return fractions(values)
    if pt.is_boolean(type_) or pt.is_integer(type_):
        return varints(integers(values).astype(np.uint64))
    if pt.is_timestamp(type_):
        return texts(pc.binary_replace_slice(values.cast(pa.timestamp("us")).cast(pa.string()), 10, 11, "T"))
    return texts(values if pt.is_binary(type_) else values.cast(pa.string()))


def _instants(values: pa.TimestampArray) -> pa.BinaryArray:
    """Seconds and the nanoseconds after them, each only where it is not 0."""
    seconds, rest = np.divmod(integers(values), 1_000_000)
    pieces = [
        pc.if_else(
            pa.array(part != 0), joined(_tag(number, _VARINT), varints(part.astype(np.uint64))), _nothing()
        )
        for number, part in ((1, seconds), (2, rest * 1_000))
    ]
    return joined(*pieces)


def _wire(type_: pa.DataType) -> int:
    if pt.is_boolean(type_) or pt.is_integer(type_):
        return _VARINT
    if pt.is_floating(type_):
        return _FOUR if pt.is_float32(type_) else _EIGHT
    return _LENGTH


def _is_packed(type_: pa.DataType) -> bool:
    return _wire(type_) != _LENGTH


def _tag(number: int, wire: int) -> bytes:
    written: bytes = varints(np.array([number << 3 | wire], np.uint64))[0].as_py()
    return written


def _with_length(pieces: pa.BinaryArray) -> pa.BinaryArray:
    return joined(varints(lengths_of(pieces).astype(np.uint64)), pieces)


def _nothing() -> pa.Scalar:
    return pa.scalar(b"", pa.binary())


def _require_items(items: pa.Array, name: str) -> None:
    if items.null_count:
        raise Unwritable(f"`{name}` has a null in a list or a map, which Protobuf does not have")
