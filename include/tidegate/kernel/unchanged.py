"""Fill columns that a record leaves unchanged with the key's last value, before anything is decided.

So a record is complete for all decisions. This requires stages whose state has the last value of each key, or
one equal to it: `latest` without a window, with `update`, or with a `change` of any column.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.options import Form, HasOptions, option
from tidegate.kernel.ordering import already_applied, last_where, starts
from tidegate.kernel.rows import STATE, Ints, Mask, mask, with_column


@dataclass(frozen=True)
class Unchanged(HasOptions):
    """The way in which a record marks a column as unchanged: by null, or, with `text`, by that text in the
    form that the column's type gives it.
    """

    text: Annotated[str | None, Form("text")] = option(
        "The text that replaces the value.", "text: __debezium_unavailable_value", default=None, required=True
    )

    def fill(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of whole keys, in the order in which they are applied, with their last values
        filled in.

        A column that has had no value since the key began, or was deleted, stays as it is.

        Args:
            rows: Rows of kind STATE and RECORD.
        """
        values = rows.column("value")
        columns = values.flatten()
        unchanged = [self._marks_unchanged(column) for column in columns]
        if not any(asks.any() for asks in unchanged):
            return rows
        previous = _PreviousValues.of_rows(rows)
        filled = [
            previous.filled(column, stored, asks)
            for column, stored, asks in zip(
                columns, rows.column("accumulator").flatten(), unchanged, strict=True
            )
        ]
        # with the mask, a tombstone stays a tombstone
        struct = pa.StructArray.from_arrays(filled, fields=list(values.type), mask=values.is_null())
        return with_column(rows, "value", struct)

    def _marks_unchanged(self, column: pa.Array) -> Mask:
        """Return True where a column stands for its previous value."""
        if self.text is None:
            return mask(column.is_null())
        forms = _placeholders(self.text, column.type)
        if not forms:
            return np.zeros(len(column), np.bool_)
        if not pa.types.is_nested(column.type):
            return mask(pc.is_in(column, pa.array(forms, column.type)))
        # Arrow cannot compare lists: the rare ones of the placeholder's length are compared in Python.
        alike = np.isin(np.diff(column.offsets), [len(form) for form in forms]) & ~mask(column.is_null())
        is_unchanged = np.zeros(len(column), np.bool_)
        for row in np.flatnonzero(alike):
            is_unchanged[row] = column[row].as_py() in forms
        return is_unchanged


def _placeholders(text: str, type_: pa.DataType) -> list[Any]:
    """Return the values of this type that stand for `text`; none for a type that cannot hold it.

    Debezium fits its placeholder to the column (`UnchangedToastedPlaceholder` of its PostgreSQL connector): a
    `uuid` gets a UUID made of the text's bytes, an array of numbers has these bytes, an `hstore` is a map or
    its JSON.
    """
    if pa.types.is_string(type_):
        # Java's nameUUIDFromBytes: version 3, without a namespace
        uuid = str(UUID(bytes=hashlib.md5(text.encode(), usedforsecurity=False).digest(), version=3))
        return [text, uuid, json.dumps({text: text}, separators=(",", ":"), ensure_ascii=False)]
    if pa.types.is_binary(type_):
        return [text.encode()]
    if pa.types.is_map(type_):
        keys, values = _placeholders(text, type_.key_type), _placeholders(text, type_.item_type)
        return [[(keys[0], values[0])]] if keys and values else []
    if pa.types.is_list(type_):
        element = type_.value_type
        if pa.types.is_integer(element):
            return [[byte - 256 if byte > 127 else byte for byte in text.encode()]]
        return [[form] for form in _placeholders(text, element)]
    return []


@dataclass(frozen=True)
class _PreviousValues:
    """The rows from which unchanged columns take their values.

    Per row: whether it is a state row, or a record with a value, and where the memory of its key begins. A
    record that was applied already gives no value.
    """

    is_state: pa.BooleanArray
    has_state: Mask
    is_value: Mask
    begins: Ints

    @classmethod
    def of_rows(cls, rows: pa.RecordBatch) -> _PreviousValues:
        is_state = pc.equal(rows.column("kind"), STATE)
        start = starts(rows.column("key"))
        applied = mask(already_applied(rows, last_where(is_state, start)))
        state, record = mask(is_state), ~mask(is_state) & ~applied
        has_value = mask(rows.column("value").is_valid())
        forgets = mask(start) | state | (record & ~has_value)
        # no value is carried over a key's start, its state row or its deletion
        begins = np.maximum.accumulate(np.where(forgets, np.arange(len(state)), 0))
        has_state = state & mask(rows.column("accumulator").is_valid())
        return cls(is_state, has_state, record & has_value, begins)

    def filled(self, column: pa.Array, stored: pa.Array, asks: Mask) -> pa.Array:
        """Return the column with its previous value where `asks` is True."""
        rows = np.arange(len(asks))
        has_value = self.has_state | (self.is_value & ~asks)
        last = np.maximum.accumulate(np.where(has_value, rows, -1))
        is_filled = asks & self.is_value & (last >= self.begins)
        if not is_filled.any():
            return column
        return pc.if_else(self.is_state, stored, column).take(pa.array(np.where(is_filled, last, rows)))
