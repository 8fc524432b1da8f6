"""Derive a Protobuf schema from the columns that a stage emits.

A field keeps its number: numbers come from the previous version, new fields get the next ones, and numbers of
removed fields are reserved. Every single value is `optional`, so that null and 0 are distinguished.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from tidegate.formats.protobuf.schema import TIMESTAMP, ProtoField, ProtoMessage, ProtoSchema
from tidegate.formats.schemas import Unwritable

Numbers = Mapping[tuple[str, ...], int]
"""Names of messages and a field in them, from the outermost in -> the field's number. Removed fields are
included, with names that begin with `RESERVED`.
"""
RESERVED = "reserved "
"""The prefix of a number, in place of the name of a removed field."""
DERIVED = "derived"
"""The name of the message that values are, in a derived schema."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SCALARS = {
    pa.bool_(): "bool",
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32()), "int32"),
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.binary(): "bytes",
}
_TIMESTAMP_MESSAGE = ProtoMessage((ProtoField("seconds", 1, "int64"), ProtoField("nanos", 2, "int32")))
_NUMBERS_OF_PROTOBUF = range(19_000, 20_000)
_TOKEN = re.compile(r'"[^"]*"|[A-Za-z_][\w.]*|\d+|[{}=;<>,\[\]]')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def numbers_of(text: str) -> dict[tuple[str, ...], int]:
    """Return the numbers of the fields of a `.proto` file's first message, and its reserved numbers.

    Example::

        numbers_of("message A { reserved 2; int64 id = 1; }")  # {("id",): 1, ("reserved 2",): 2}
    """
    tokens = _TOKEN.findall(_COMMENT.sub("", text))
    numbers: dict[tuple[str, ...], int] = {}
    opened: list[str] = []
    for at, token in enumerate(tokens):
        path = tuple(message for message in opened[1:] if message != "oneof")
        if token == "{":
            kind = tokens[at - 2]
            opened.append(tokens[at - 1] if kind == "message" else kind)
        elif token == "}" and opened:
            opened.pop()
            # values are the first message of the file; what follows is not needed
            if not opened and numbers:
                break
        elif not opened or "enum" in opened:
            continue
        elif token == "=" and tokens[at + 1].isdigit():
            field = (*path, tokens[at - 1])
            numbers[field] = int(tokens[at + 1])
        elif token == "reserved" and tokens[at - 1] in (*"{};",):
            for number in _until_semicolon(tokens[at + 1 :]):
                name = (*path, f"{RESERVED}{number}")
                numbers[name] = int(number)
    return numbers


def _until_semicolon(tokens: list[str]) -> Iterator[str]:
    end = tokens.index(";")
    return (token for token in tokens[:end] if token.isdigit())


def protobuf_schema(name: str, package: str, columns: pa.Schema, before: Numbers) -> str:
    """Return the `.proto` text of a message with these columns.

    Args:
        before: The numbers of the previous version of the schema.

    Raises Unwritable if Protobuf does not have a column's name or type.
    """
    lines = list(_message(name, columns, before, (), ""))
    head = ['syntax = "proto3";', f"package {package};"]
    if any(TIMESTAMP in line for line in lines):
        head.append('import "google/protobuf/timestamp.proto";')
    return "\n".join([*head, "", *lines, ""])


def _message(name: str, columns: Any, before: Numbers, path: tuple[str, ...], margin: str) -> Iterator[str]:
    previous = {names[-1]: number for names, number in before.items() if names[:-1] == path}
    numbers = _numbered([column.name for column in columns], previous)
    yield f"{margin}message {name} {{"
    # a reader of an old version would take a new field with the same number for the removed one
    reserved = sorted(number for field, number in previous.items() if field not in numbers)
    if reserved:
        yield f"{margin}  reserved {', '.join(map(str, reserved))};"
    for column in columns:
        inner = _inner(column.name)
        nested = _nested(column.type)
        if nested is not None:
            yield from _message(inner, nested, before, (*path, inner), f"{margin}  ")
        yield f"{margin}  {_declared(column, inner)} {column.name} = {numbers[column.name]};"
    yield f"{margin}}}"


def _numbered(names: list[str], previous: Mapping[str, int]) -> dict[str, int]:
    following = max(previous.values(), default=0) + 1
    numbers: dict[str, int] = {}
    for name in names:
        if not _NAME.fullmatch(name):
            raise Unwritable(
                f"`{name}` is not a valid name in Protobuf: use letters, digits and _, and no digit first"
            )
        if _inner(name) in names:
            raise Unwritable(f"`{_inner(name)}` is already the name of the message for the column `{name}`")
        if name not in previous:
            # Protobuf reserves 19,000 to 19,999 for itself
            following = max(following, 20_000) if following in _NUMBERS_OF_PROTOBUF else following
            numbers[name], following = following, following + 1
        else:
            numbers[name] = previous[name]
    return numbers


def _inner(name: str) -> str:
    """Return the name of the message that a column's values are."""
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
    # a message has presence by itself; a single value only if it is `optional`
    single = _single(type_, inner, column.name)
    return single if pt.is_struct(type_) else f"optional {single}"


def _single(type_: pa.DataType, inner: str, name: str) -> str:
    if pt.is_list(type_) or pt.is_map(type_):
        raise Unwritable(f"`{name}` has lists or maps in lists or maps, which Protobuf does not have")
    if pt.is_struct(type_):
        return inner
    if pt.is_timestamp(type_) and type_.tz:
        return TIMESTAMP
    # decimals, dates and times without a zone have no type in Protobuf, and are written as text
    return _SCALARS.get(type_, "string")


def derived_schema(columns: pa.Schema, numbers: Numbers) -> ProtoSchema:
    """Return what the compiler would make of the text of a message with these columns and numbers.

    Writing then needs no compiler. The message is called DERIVED.
    """
    messages = {TIMESTAMP: _TIMESTAMP_MESSAGE}
    _add_message(messages, DERIVED, columns, numbers, ())
    return ProtoSchema((DERIVED,), messages, {})


def _add_message(
    messages: dict[str, ProtoMessage], name: str, columns: Any, numbers: Numbers, path: tuple[str, ...]
) -> None:
    fields = []
    for column in columns:
        inner = _inner(column.name)
        nested, full = _nested(column.type), f"{name}.{inner}"
        if nested is not None:
            _add_message(messages, full, nested, numbers, (*path, inner))
        place = (*path, column.name)
        field = _field(column, numbers[place], full)
        if pt.is_map(column.type):
            entry = (ProtoField("key", 1, "string"), replace(field, name="value", number=2))
            messages[f"{full}_entry"] = ProtoMessage(entry, is_entry=True)
            field = replace(field, kind="message", type=f"{full}_entry", is_repeated=True)
        fields.append(field)
    messages[name] = ProtoMessage(tuple(sorted(fields, key=lambda field: field.number)))


def _field(column: pa.Field, number: int, message: str) -> ProtoField:
    type_, presence = column.type, "explicit"
    if pt.is_list(type_) or pt.is_map(type_):
        type_, presence = (type_.item_type if pt.is_map(type_) else type_.value_type), "implicit"
    word = _single(type_, message, column.name)
    kind = "message" if word in (message, TIMESTAMP) else word
    return ProtoField(
        column.name, number, kind, word if kind == "message" else "", pt.is_list(column.type), presence
    )
