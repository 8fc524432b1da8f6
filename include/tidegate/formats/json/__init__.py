"""`format: json`: each value is one object, read strictly by msgspec with types made from the source's
columns.

A missing field is null, a field that is not declared is ignored, and if a name occurs twice the last value
counts. Nothing is converted, unless the source coerces (see `coercion`): a number is not a text, a text is
not a number, and an integer has no point. Two exceptions: a decimal can be a text, since many programs lose
digits of JSON's numbers, and `"NaN"` and infinity are texts, as sinks write them. A value that is nested
deeper than MOST_NESTED is unusable, whatever the size of the process's stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.formats.decoded import Decoded, Decoder, malformed
from tidegate.formats.json.columns import ColumnBuilder, attribute
from tidegate.formats.registry import Format, SchemaLanguage
from tidegate.formats.schemas import PinnedSchema, schema_text
from tidegate.formats.text import NOT_UTF8, texts_of
from tidegate.kernel.json_text import text_codes

if TYPE_CHECKING:
    from tidegate.formats.records import RecordLayout

_LARGEST_FLOAT = float(np.finfo(np.float32).max)
_NAMED = Literal["NaN", "Infinity", "-Infinity"]  # as sinks write them: JSON has no such numbers
_SCALARS: Sequence[tuple[Callable[[pa.DataType], bool], Any]] = (
    (pt.is_boolean, bool),
    (pt.is_float32, Annotated[float, msgspec.Meta(ge=-_LARGEST_FLOAT, le=_LARGEST_FLOAT)] | _NAMED),
    (pt.is_float64, float | _NAMED),
    (pt.is_string, str),
    (pt.is_binary, bytes),  # as base64
    (pt.is_date, date),
    (pt.is_decimal, msgspec.Raw),  # raw, since msgspec's float would lose digits
    (pt.is_timestamp, str),
)
OlderNames = Mapping[str, Sequence[str]]
"""Column -> its names in older records, the newest name first."""
NO_OLDER_NAMES: OlderNames = {}
MOST_NESTED = 500
"""The allowed depth of objects and arrays, well below what Python's stack allows."""
_TOO_DEEP = f"it is nested more than {MOST_NESTED} deep"
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*(?:"|\Z)')
"""A JSON string without escapes. One that is not closed reaches to the end, so its text is scanned only
once.
"""


class JsonDecoder:
    """Decodes objects to the columns of `schema`, whose types are those that a pipeline's `columns` can
    have.

    Args:
        aliases: Older names of columns in records.

    Example::

        JsonDecoder(pa.schema([("id", pa.int64())])).decode([b'{"id": 1}', b"{"]).reasons
        # {1: "malformed: Input data was truncated"}
    """

    def __init__(self, schema: pa.Schema, aliases: OlderNames = NO_OLDER_NAMES) -> None:
        self.schema = schema
        self._type = pa.struct(list(schema))
        self._aliases = aliases
        self._decoder = msgspec.json.Decoder(object_type(self._type, aliases=aliases))

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode the declared fields of each value's object. None is a tombstone."""
        objects, reasons = objects_of(self._decoder, values)
        # before columns are built, which read the current names only
        objects = with_current_names(objects, self._type, self._aliases)
        return Decoded(columns_of(objects, self._type, reasons, {}), reasons)


def objects_of(
    decoder: msgspec.json.Decoder[Any], values: Sequence[bytes | None]
) -> tuple[Sequence[Any], dict[int, str]]:
    """Return an object for each value, and row -> reason. The object is None for tombstones and if there
    is a reason.

    Args:
        decoder: Its type has been made by `object_type`.
        values: None is a tombstone.
    """
    texts, not_text = texts_of(values)
    reasons = dict.fromkeys(not_text, malformed(NOT_UTF8))
    reasons |= dict.fromkeys(rows_nested_deeper(MOST_NESTED, texts, values), malformed(_TOO_DEEP))
    decode: Callable[[Any], Any] = decoder.decode
    if not reasons:
        # usually no value is unusable or None, and `map` saves a call per row
        with suppress(msgspec.DecodeError, TypeError):
            return list(map(decode, values)), reasons
    objects: list[Any] = [None] * len(values)
    for row, value in enumerate(values):
        if value is None or row in reasons:
            continue
        try:
            objects[row] = decode(value)
        except msgspec.DecodeError as error:
            reasons[row] = malformed(_explained(error))
    return objects, reasons


def columns_of(
    objects: Sequence[Any], type_: pa.StructType, reasons: dict[int, str], paths: Mapping[int, str]
) -> pa.StructArray:
    """Return objects of `object_type` as a struct array. A value that does not fit its type is null, with
    a reason.

    Args:
        reasons: row -> reason; new reasons are added.
        paths: row -> the path of its object in the value, if that is not `$`.
    """
    builder = ColumnBuilder()
    columns = builder.structs(objects, type_, "$", range(len(objects)))
    if not builder.faults:
        return columns
    for row, why in builder.faults.items():
        reasons[row] = malformed(why.replace(" - at `$", f" - at `{paths.get(row, '$')}"))
    usable = columns.is_valid().to_numpy(zero_copy_only=False)
    # one bad column makes the whole record unusable: half a record would be a wrong value
    usable[list(builder.faults)] = False
    return pa.StructArray.from_arrays(columns.flatten(), fields=list(type_), mask=pa.array(~usable))


def _explained(error: msgspec.DecodeError) -> str:
    """Return msgspec's message, in which the names of `_NAMED` are an enum, as a message about numbers."""
    return re.sub(r"^Invalid enum value '(.*)'(?= - at |$)", r"Expected a number, got '\1'", str(error))


def rows_nested_deeper(most: int, texts: pa.StringArray, values: Sequence[bytes | None]) -> Iterator[int]:
    """Yield the rows of values with more than `most` objects and arrays within one another.

    `texts` are the values. Brackets need not be closed: msgspec recurses for each open bracket, before it
    reaches the end.

    Example: with `most` 2, the value `[[[` is such a row, although it is not valid JSON.
    """
    if not pc.any(pc.greater(pc.binary_length(texts), most)).as_py():
        return
    # brackets are counted in the bytes of all values at once: only a value with many of them is scanned
    codes, starts = text_codes(texts)
    opened = np.flatnonzero((codes | 0x20) == ord("{"))  # "[" is "{" without that bit
    before = np.searchsorted(opened, starts)
    for row in map(int, np.flatnonzero(np.diff(before) > most)):
        if _depth(values[row] or b"") > most:
            yield row


def _depth(value: bytes) -> int:
    """Return the largest number of open brackets, outside of strings."""
    codes = np.frombuffer(_STRING.sub(b"", _ESCAPE.sub(b"", value)), np.uint8)
    opened = np.isin(codes, list(b"[{")).astype(np.int8)
    return int(np.cumsum(opened - np.isin(codes, list(b"]}")), dtype=np.int64).max(initial=0))


def object_type(
    type_: pa.StructType, names: Collection[str] | None = None, aliases: OlderNames = NO_OLDER_NAMES
) -> type[msgspec.Struct]:
    """Return a class with a field for each column of the struct, and for each older name in `aliases`.

    `with_current_names` then merges the fields of older names into those of the columns.

    Args:
        names: Only these columns are read, the others are None; None reads all.
    """
    fields = [
        written
        for place, field in enumerate(type_)
        if names is None or field.name in names
        for written in _written_fields(place, field, aliases.get(field.name, ()))
    ]
    read = {name for name, *_ in fields}
    # class attributes: `columns_of` reads each column of an object, also those that are not decoded
    unread = {name: None for name in map(attribute, range(len(type_))) if name not in read}
    # `gc=False`: the objects contain no cycles, and are many
    return msgspec.defstruct("Object", fields, namespace=unread, gc=False)


def _written_fields(place: int, field: pa.Field, older: Sequence[str]) -> Iterator[tuple[str, Any, Any]]:
    """Yield attribute, type and field of each name that a column can have in a value.

    With several names the default is UNSET, to distinguish a missing field from null.
    """
    json_type = _optional_type(field.type)
    if older and json_type is not msgspec.Raw:
        json_type |= msgspec.UnsetType
    default = msgspec.UNSET if older else None
    yield attribute(place), json_type, msgspec.field(name=field.name, default=default)
    for number, name in enumerate(older):
        yield _older_attribute(place, number), json_type, msgspec.field(name=name, default=default)


def _older_attribute(place: int, number: int) -> str:
    return f"{attribute(place)}_{number}"


def with_current_names(objects: Sequence[Any], type_: pa.StructType, aliases: OlderNames) -> Sequence[Any]:
    """Return the objects with each column in the attribute of its current name.

    The current name counts if the value has it, also as null; else the newest of its older names that the
    value has.

    Args:
        objects: Objects of `object_type`, which are changed in place; None stays None.
    """
    for place, field in enumerate(type_):
        name = attribute(place)
        older = [_older_attribute(place, number) for number in range(len(aliases.get(field.name, ())))]
        for record in objects if older else ():
            if record is not None and getattr(record, name) is msgspec.UNSET:
                written = (getattr(record, key) for key in older)
                setattr(record, name, next((value for value in written if value is not msgspec.UNSET), None))
    return objects


def _optional_type(type_: pa.DataType) -> Any:
    """Return the type of a column in JSON. Null is allowed everywhere; a raw value includes it."""
    json_type = _json_type(type_)
    return json_type if json_type is msgspec.Raw else json_type | None


def _json_type(type_: pa.DataType) -> Any:
    """Return the type that msgspec expects for a column; `ColumnBuilder` converts its values."""
    if pt.is_struct(type_):
        return object_type(type_)
    if pt.is_list(type_):
        return list[_optional_type(type_.value_type)]  # type: ignore[misc]  # a type made at run time
    if pt.is_map(type_):
        return dict[str, _optional_type(type_.item_type)]  # type: ignore[misc]
    if pt.is_integer(type_):
        largest = 2 ** (type_.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-largest, le=largest - 1)]
    return next(json_type for matches, json_type in _SCALARS if matches(type_))


def _decoder(layout: RecordLayout) -> Decoder:
    if layout.coerces:
        from tidegate.formats.json.coercion import CoercingDecoder  # late: it builds on this module

        return CoercingDecoder(JsonDecoder(layout.columns, layout.aliases), layout.aliases)
    if not layout.schemas:
        return JsonDecoder(layout.columns, layout.aliases)
    from tidegate.formats.json.checks import json_decoder  # late: `jsonschema` is an extra

    return json_decoder(layout.columns, layout.schemas, layout.aliases)


def _schema_module() -> Any:
    from tidegate.formats.json import schema  # late: `jsonschema` is an extra

    return schema


def _title(schema: PinnedSchema) -> str | None:
    contents = _schema_module().pinned_json_schema(schema).contents
    return contents.get("title") if isinstance(contents, dict) else None


_LANGUAGE = SchemaLanguage(
    "JSON",
    (".json",),
    pin=lambda text, imports: _schema_module().pin_json_schema(text, imports),
    read=lambda path: _schema_module().pin_json_schema(schema_text(path), {}),
    columns=lambda schema, _: _schema_module().json_schema_columns(
        _schema_module().pinned_json_schema(schema)
    ),
    record_name=_title,
)
FORMATS = (
    Format(
        "json",
        _decoder,
        key_decoder=lambda columns, _: JsonDecoder(columns),
        language=_LANGUAGE,
        is_json=True,
        is_sent=True,
    ),
)
