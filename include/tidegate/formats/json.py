"""`format: json`: one object a value, read strictly by msgspec with types made from the source's columns.

A field that is missing is null, one that is not declared is passed over, and of a name given twice the last
counts. Nothing is converted: a number is no text and a text no number, and an integer has no point. Only a
decimal may be given as text, too, since JSON's numbers lose digits in many programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.formats.decoded import Decoded, malformed
from tidegate.formats.text import NOT_UTF8, rows_not_utf8

_YEAR_1_US, _YEAR_10000_US = -62_135_596_800_000_000, 253_402_300_800_000_000
_LARGEST_FLOAT = float(np.finfo(np.float32).max)
_SCALARS: Sequence[tuple[Callable[[pa.DataType], bool], Any]] = (
    (pt.is_boolean, bool),
    (pt.is_float32, Annotated[float, msgspec.Meta(ge=-_LARGEST_FLOAT, le=_LARGEST_FLOAT)]),
    (pt.is_float64, float),
    (pt.is_string, str),
    (pt.is_binary, bytes),  # as base64
    (pt.is_date, date),
    (pt.is_decimal, Decimal),
)


class JsonDecoder:
    """Columns of `schema`, whose types are those that a pipeline's `columns` can have."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._type = pa.struct(list(schema))
        self._decoder = msgspec.json.Decoder(_struct_type(self._type))

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """The declared fields of each value's object."""
        reasons = dict.fromkeys(rows_not_utf8(values), malformed(NOT_UTF8))
        objects: list[Any] = [None] * len(values)
        decode = self._decoder.decode
        for row, value in enumerate(values):
            if value is None or row in reasons:
                continue
            try:
                objects[row] = decode(value)
            except (msgspec.DecodeError, RecursionError) as error:
                reasons[row] = malformed(_why(error))
        return Decoded(self._column(objects, reasons), reasons)

    def _column(self, objects: list[Any], reasons: dict[int, str]) -> pa.StructArray:
        """The objects as Arrow; those that do not fit into their type become null, with a reason."""
        try:
            return _array(objects, self._type, "$")
        except _DoesNotFit:
            for row, why in _misfits(objects, self._type, 0):
                reasons[row] = malformed(why)
                objects[row] = None
            return _array(objects, self._type, "$")


class _DoesNotFit(Exception):
    """A value is of the right kind, and beyond what its type can hold."""


def _misfits(objects: list[Any], type_: pa.DataType, first: int) -> list[tuple[int, str]]:
    """(row, why) of the objects that do not fit, found by halving; `first` is the row of the first object."""
    try:
        _array(objects, type_, "$")
    except _DoesNotFit as error:
        if len(objects) == 1:
            return [(first, str(error))]
        half = len(objects) // 2
        return _misfits(objects[:half], type_, first) + _misfits(objects[half:], type_, first + half)
    return []


def _why(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


# types


def _struct_type(type_: pa.StructType) -> type[msgspec.Struct]:
    """A class with a field for each of the struct's, named by its place: a name in JSON can be any text."""
    fields = [
        (_attribute(place), _json_type(field.type) | None, msgspec.field(name=field.name, default=None))
        for place, field in enumerate(type_)
    ]
    return msgspec.defstruct("Object", fields, gc=False)


def _attribute(place: int) -> str:
    return f"field{place}"


def _json_type(type_: pa.DataType) -> Any:
    """What msgspec is to expect for a column of an Arrow type."""
    if pt.is_struct(type_):
        return _struct_type(type_)
    if pt.is_list(type_):
        return list[_json_type(type_.value_type) | None]  # type: ignore[misc]  # a type made at run time
    if pt.is_map(type_):
        return dict[str, _json_type(type_.item_type) | None]  # type: ignore[misc]
    if pt.is_integer(type_):
        largest = 2 ** (type_.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-largest, le=largest - 1)]
    if pt.is_timestamp(type_):  # without a zone in the type there is none in the text
        return datetime if type_.tz else Annotated[datetime, msgspec.Meta(tz=False)]
    return next(json_type for matches, json_type in _SCALARS if matches(type_))


# columns


def _array(values: Sequence[Any], type_: pa.DataType, path: str) -> pa.Array:
    """Decoded values as an Arrow array. `path` says where in the object they are."""
    if pt.is_struct(type_):
        return _struct_array(values, type_, path)
    if pt.is_list(type_):
        return _list_array(values, type_, path)
    if pt.is_map(type_):
        return _map_array(values, type_, path)
    try:
        array = pa.array(_rescaled(values, type_) if pt.is_decimal(type_) else values, type_)
    except (pa.ArrowInvalid, OverflowError, ValueError, DecimalException) as error:
        raise _DoesNotFit(f"A value does not fit into `{type_}` - at `{path}`") from error
    if pt.is_timestamp(type_) and not _within_calendar(array):
        raise _DoesNotFit(f"A time is not in the years 1 to 9999 of UTC - at `{path}`")
    return array


def _rescaled(values: Sequence[Decimal | None], type_: pa.Decimal128Type) -> list[Decimal | None]:
    """Decimals of the type's scale; pyarrow itself makes 0 of 1e-40. Raises DecimalException."""
    exact = Context(prec=type_.precision, traps=[Inexact, InvalidOperation])
    unit = Decimal(1).scaleb(-type_.scale)
    return [value if value is None else exact.quantize(value, unit) for value in values]


def _within_calendar(times: pa.TimestampArray) -> bool:
    """Whether all times are in years that Python, SQL and Spark can write; a zone can push one out."""
    least, most = pc.min_max(times.view(pa.int64())).as_py().values()
    return least is None or (least >= _YEAR_1_US and most < _YEAR_10000_US)


def _struct_array(values: Sequence[Any], type_: pa.StructType, path: str) -> pa.StructArray:
    is_null = np.fromiter((value is None for value in values), bool, len(values))
    columns = []
    for place, field in enumerate(type_):
        name = _attribute(place)
        column = [None if value is None else getattr(value, name) for value in values]
        columns.append(_array(column, field.type, f"{path}.{field.name}"))
    return pa.StructArray.from_arrays(columns, fields=list(type_), mask=pa.array(is_null))


def _list_array(values: Sequence[Any], type_: pa.ListType, path: str) -> pa.ListArray:
    items = [item for value in values if value is not None for item in value]
    return pa.ListArray.from_arrays(
        _offsets(values), _array(items, type_.value_type, f"{path}[...]"), type=type_, mask=_nulls(values)
    )


def _map_array(values: Sequence[Mapping[str, Any] | None], type_: pa.MapType, path: str) -> pa.MapArray:
    present = [value for value in values if value is not None]
    keys = pa.array([key for value in present for key in value], type_.key_type)
    items = _array([item for value in present for item in value.values()], type_.item_type, f"{path}[...]")
    return pa.MapArray.from_arrays(_offsets(values), keys, items, type=type_, mask=_nulls(values))


def _offsets(values: Sequence[Any]) -> pa.Array:
    sizes = np.fromiter((0 if value is None else len(value) for value in values), np.int32, len(values))
    return pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))


def _nulls(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())
