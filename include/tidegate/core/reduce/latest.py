"""`reduce: latest`: the newest record's columns. References are places in a pool of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.json_text import encoder
from tidegate.core.rows import STATE


@dataclass(frozen=True)
class Latest:
    """The newest record's columns; a null value deletes the key. The accumulator is the value's place in a
    pool, so that values stay in Arrow."""

    takes_nulls: bool = True

    def held_type(self, value: pa.DataType) -> pa.DataType:
        """The columns themselves."""
        return value

    def output_type(self, value: pa.DataType) -> pa.DataType:
        """The columns themselves."""
        return value

    def bind(self, rows: pa.RecordBatch) -> LatestValues:
        """The values of these rows."""
        return LatestValues(rows)


class LatestValues:
    """Row i's value is at i in the pool, be it a record's or what a state row holds; what a state row emitted
    is at i + the number of rows."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows.num_rows
        state = pc.equal(rows.column("kind"), STATE)
        self._pool = rows.column("value")
        if pc.any(state).as_py():
            values = pc.if_else(state, rows.column("held"), rows.column("value"))
            self._pool = pa.concat_arrays([values, rows.column("emitted")])
        self.null = self._pool.is_null().to_pylist()
        self._columns: dict[str, list[Any]] = {}
        self._text = encoder(self._pool.type)

    def fold(self, accumulator: Any, row: int) -> Any:
        """The row's own value."""
        return None if self.null[row] else row

    def output(self, accumulator: Any) -> Any:
        """The same."""
        return accumulator

    def merge(self, older: Any, newer: Any) -> Any:
        """The later session's."""
        return older if newer is None else newer

    def mark(self, accumulator: Any) -> Any:
        """A reference is never changed."""
        return accumulator

    def undo(self, mark: Any) -> Any:
        """The reference."""
        return mark

    def restore(self, row: int) -> tuple[Any, Any]:
        """The places of the state row's value, and of what it last emitted."""
        emitted = row + self._rows
        return (None if self.null[row] else row), (None if self.null[emitted] else emitted)

    def field(self, name: str) -> Callable[[Any], Any]:
        """Reads one column."""
        if name not in self._columns:
            self._columns[name] = pc.struct_field(self._pool, name).to_pylist()
        return self._columns[name].__getitem__

    def type_of(self, name: str) -> pa.DataType:
        """The type of one column."""
        return self._pool.type.field(name).type

    def size(self, accumulator: Any) -> int:
        """Bytes of the value's JSON text."""
        return 0 if accumulator is None else len(self._text(self._pool[accumulator].as_py()).encode())

    def event_size(self, row: int) -> int:
        """The same, of the row's own value."""
        return self.size(None if self.null[row] else row)

    def held_array(self, accumulators: Sequence[Any]) -> pa.Array:
        """As a column."""
        return self._pool.take(pa.array(accumulators, pa.int64()))

    def output_array(self, outputs: Sequence[Any]) -> pa.Array:
        """As a column."""
        return self._pool.take(pa.array(outputs, pa.int64()))
