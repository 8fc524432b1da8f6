"""Convert decoded JSON values to Arrow columns, and report the values that do not fit into their type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.kernel.unusable import beyond_calendar

_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_ZONE = r"([Zz]|[+-][0-9]{2}:?[0-9]{2})"
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
Rows = Sequence[int]


def attribute(place: int) -> str:
    """Return the attribute that contains the field at a place: a name in JSON can be any text, an
    attribute cannot.

    Example: `attribute(2)` is `field2`.
    """
    return f"field{place}"


class ColumnBuilder:
    """Builds columns, and records in `faults` why rows cannot be used: row -> reason, with the path.

    Values have the form that msgspec returns for the types of `json`: objects with `attribute`s, decimals
    raw, times as text. `rows` has the row that each value belongs to. The columns of a row with a fault have
    no meaning.

    Example::

        builder = ColumnBuilder()
        columns = builder.structs(objects, type_, "$", range(len(objects)))
        builder.faults  # {3: "Expected a decimal - at `$.price`"}
    """

    def __init__(self) -> None:
        self.faults: dict[int, str] = {}

    def structs(self, values: Sequence[Any], type_: pa.StructType, path: str, rows: Rows) -> pa.StructArray:
        """Build structs from objects; null where an object is None. `path` names the value in faults.

        Args:
            values: Objects with the attributes of `attribute`.
            rows: The record of each value.
        """
        is_null = [value is None for value in values]
        # one stand-in for null, so that `attrgetter` needs no test per value
        objects = [_ABSENT if value is None else value for value in values] if any(is_null) else values
        columns = [
            self._column(
                list(map(attrgetter(attribute(place)), objects)), field.type, f"{path}.{field.name}", rows
            )
            for place, field in enumerate(type_)
        ]
        return pa.StructArray.from_arrays(columns, fields=list(type_), mask=pa.array(is_null, pa.bool_()))

    def _column(self, values: Sequence[Any], type_: pa.DataType, path: str, rows: Rows) -> pa.Array:
        build: Callable[[Sequence[Any], Any, str, Rows], pa.Array] | None = next(
            (build for matches, build in self._builders() if matches(type_)), None
        )
        return pa.array(values, type_) if build is None else build(values, type_, path, rows)

    def _builders(self) -> Iterable[tuple[Callable[[pa.DataType], bool], Callable[..., pa.Array]]]:
        return (
            (pt.is_struct, self.structs),
            (pt.is_list, self._lists),
            (pt.is_map, self._maps),
            (pt.is_floating, self._floats),
            (pt.is_decimal, self._decimals),
            (pt.is_timestamp, self._times),
        )

    def _lists(self, values: Sequence[Any], type_: pa.ListType, path: str, rows: Rows) -> pa.ListArray:
        items = [item for value in values if value is not None for item in value]
        sizes = _sizes(values)
        column = self._column(items, type_.value_type, f"{path}[...]", _repeated(rows, sizes))
        return pa.ListArray.from_arrays(_offsets(sizes), column, type=type_, mask=_nulls(values))

    def _maps(
        self, values: Sequence[Mapping[str, Any] | None], type_: pa.MapType, path: str, rows: Rows
    ) -> pa.MapArray:
        present = [value for value in values if value is not None]
        sizes = _sizes(values)
        keys = pa.array([key for value in present for key in value], type_.key_type)
        parts = [item for value in present for item in value.values()]
        items = self._column(parts, type_.item_type, f"{path}[...]", _repeated(rows, sizes))
        return pa.MapArray.from_arrays(_offsets(sizes), keys, items, type=type_, mask=_nulls(values))

    def _floats(
        self, values: Sequence[float | str | None], type_: pa.DataType, path: str, rows: Rows
    ) -> pa.FloatingPointArray:
        """Build numbers; infinity and NaN, which JSON does not have, are given by name."""
        try:
            return pa.array(values, type_)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            # rare: the names of infinity and NaN, which Arrow does not parse in a list of numbers
            return pa.array([value if value is None else float(value) for value in values], type_)

    def _decimals(
        self, values: Sequence[msgspec.Raw | None], type_: pa.Decimal128Type, path: str, rows: Rows
    ) -> pa.Decimal128Array:
        """Build decimals from numbers, or from texts of numbers."""
        texts = [b"null" if raw is None else bytes(raw) for raw in values]
        return self.decimals([None if t == b"null" else _unquoted(t) for t in texts], type_, path, rows)

    def decimals(
        self, texts: Sequence[bytes | None], type_: pa.Decimal128Type, path: str, rows: Rows
    ) -> pa.Decimal128Array:
        """Build decimals from texts, without loss. pyarrow's own cast turns 1e-40 into 0.

        Args:
            texts: Numbers as they are written, in ASCII.
            rows: The record of each text.
        """
        # traps instead of rounding: a decimal that does not fit must be a fault
        exact = Context(prec=type_.precision, traps=[Inexact, InvalidOperation])
        unit = Decimal(1).scaleb(-type_.scale)
        decimals: list[Decimal | None] = [None] * len(texts)
        for place, text in enumerate(texts):
            if text is None:
                continue
            why = "Expected a decimal"
            if _NUMBER.fullmatch(text):
                with suppress(DecimalException):
                    decimals[place] = exact.quantize(exact.create_decimal(text.decode()), unit)
                why = f"A value does not fit into `{type_}`"
            if decimals[place] is None:
                self.faults.setdefault(rows[place], f"{why} - at `{path}`")
        return pa.array(decimals, type_)

    def _times(
        self, values: Sequence[str | None], type_: pa.TimestampType, path: str, rows: Rows
    ) -> pa.TimestampArray:
        return self.times(pa.array(values, pa.string()), type_, path, rows)

    def times(
        self, texts: pa.StringArray, type_: pa.TimestampType, path: str, rows: Rows
    ) -> pa.TimestampArray:
        """Build timestamps from RFC 3339 texts, in the years 1 to 9999 of UTC, with at most microseconds.

        More digits are a fault, since the type cannot store them.

        Args:
            texts: Null stays null.
            rows: The record of each text.
        """
        zone = f"{_ZONE}?" if type_.tz else ""  # without a zone in the type there is none in the text
        is_time = pc.match_substring_regex(texts, f"{_TIME}{zone}$")
        example = f"`2026-01-31T10:30:00.123456{'Z' if type_.tz else ''}`"
        self._fault(pc.invert(is_time), f"Expected a time as {example} - at `{path}`", rows)
        texts = pc.ascii_upper(pc.if_else(is_time, texts, None))
        if type_.tz:
            zoned = pc.match_substring_regex(texts, f"{_ZONE}$")
            # a time without a zone is in UTC
            texts = pc.binary_join_element_wise(texts, pc.if_else(zoned, "", "Z"), "")
        times, exists = _parsed(texts, type_)
        self._fault(pc.invert(exists), f"A time does not exist - at `{path}`", rows)
        outside = beyond_calendar(times)
        if outside is not None:
            self._fault(outside, f"A time is not in the years 1 to 9999 of UTC - at `{path}`", rows)
        return times

    def _fault(self, mask: pa.BooleanArray, why: str, rows: Rows) -> None:
        if mask.true_count:
            for place in map(int, np.flatnonzero(pc.fill_null(mask, False))):
                self.faults.setdefault(rows[place], why)


class _Absent:
    """Represents an object that is null: each of its fields is None."""

    def __getattr__(self, name: str) -> None:
        return None


_ABSENT = _Absent()


def _parsed(texts: pa.StringArray, type_: pa.TimestampType) -> tuple[pa.TimestampArray, pa.BooleanArray]:
    """Parse texts as times, null for times that do not exist; true for each text that is a time, or null."""
    try:
        return texts.cast(type_), pa.repeat(True, len(texts))
    except pa.ArrowInvalid:
        # one impossible day fails Arrow's whole cast, so each text is tried alone
        exists = pa.array([text is None or _exists(text, type_) for text in texts.to_pylist()])
        return pc.if_else(exists, texts, None).cast(type_), exists


def _exists(text: str, type_: pa.TimestampType) -> bool:
    try:
        pa.scalar(text).cast(type_)
    except pa.ArrowInvalid:
        return False
    return True


def _unquoted(text: bytes) -> bytes:
    """Return the content of a JSON text; anything else as it is."""
    return text[1:-1] if text.startswith(b'"') else text


def _repeated(rows: Rows, sizes: Sequence[int]) -> Rows:
    """Return each row as often as it has items."""
    return [row for row, size in zip(rows, sizes, strict=True) for _ in range(size)]


def _sizes(values: Sequence[Any]) -> list[int]:
    return [0 if value is None else len(value) for value in values]


def _offsets(sizes: Sequence[int]) -> pa.Int32Array:
    return pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))


def _nulls(values: Sequence[Any]) -> pa.BooleanArray:
    return pa.array([value is None for value in values], pa.bool_())
