"""A deliberately plain reader of CSV: one character after the other, then one check per type."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from tests.formats.reference import Integer, Number, Unusable, require, scalar
from tidegate.formats import Csv

WHOLE = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)
NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def read(value: bytes, schema: pa.Schema, dialect: Csv) -> dict[str, Any]:
    """The columns of one value, as `pa.Scalar.as_py` gives them. Raises Unusable."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise Unusable from error
    fields = split(text, dialect)
    require(len(fields) == len(schema))
    return {column.name: convert(*field, column.type) for field, column in zip(fields, schema, strict=True)}


def split(text: str, dialect: Csv) -> list[tuple[str, bool]]:
    """The fields, and which of them are null. Raises Unusable."""
    for end in ("\r\n", "\n", "\r"):
        if text.endswith(end):
            text = text[: -len(end)]
            break
    fields = []
    field, raw, state = "", "", "start"
    characters = iter(text)
    for character in characters:
        if state == "in quotes" and character == dialect.quote:
            state = "after a quote"
        elif state == "after a quote" and character == dialect.quote:
            field, state = field + character, "in quotes"
        elif state == "start" and character == dialect.quote:
            state = "in quotes"
        elif character == dialect.escape and state != "after a quote":
            try:
                following = next(characters)
            except StopIteration:
                raise Unusable from None
            field, raw = field + following, raw + character + following
            state = "plain" if state == "start" else state
        elif state == "in quotes":
            field += character
        elif character == dialect.delimiter:
            fields.append((field, state != "after a quote" and raw == dialect.null_text))
            field, raw, state = "", "", "start"
        else:
            require(state != "after a quote" and character not in "\r\n")
            field, raw, state = field + character, raw + character, "plain"
    require(state != "in quotes")
    return [*fields, (field, state != "after a quote" and raw == dialect.null_text)]


def convert(text: str, is_null: bool, type_: pa.DataType) -> Any:
    if is_null:
        return None
    if pt.is_boolean(type_):
        require(text in ("true", "false"))
        return text == "true"
    if pt.is_integer(type_):
        require(WHOLE.fullmatch(text) is not None)
        return scalar(Integer(text), type_)
    if pt.is_floating(type_) and text not in ("NaN", "Infinity", "-Infinity"):
        require(NUMBER.fullmatch(text) is not None)
        return scalar(Number(text), type_)
    return scalar(text, type_)
