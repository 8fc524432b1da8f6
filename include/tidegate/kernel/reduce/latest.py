"""`reduce: latest`: the newest record's columns. References are places in a pool of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns import Keys
from tidegate.kernel.json_text import encoder, text_bytes
from tidegate.kernel.reduce import Reduce, RowValues
from tidegate.kernel.rows import STATE, Ints


@dataclass(frozen=True)
class Latest(Reduce):
    """The newest record's columns; a null value deletes the key.

    The accumulator is the value's place in a pool, so that values stay in Arrow.
    """

    word: ClassVar[str] = "latest"
    newest_only: ClassVar[bool] = True

    @property
    def takes_nulls(self) -> bool:
        return True

    def accumulator_type(self, value: pa.DataType) -> pa.DataType:
        return value

    def output_type(self, value: pa.DataType) -> pa.DataType:
        return value

    def bind(self, rows: pa.RecordBatch) -> LatestValues:
        return LatestValues(rows)

    def contents(self, keys: Keys) -> Newest:
        return Newest(keys)


class LatestValues(RowValues):
    """Values in a pool: row i's value, of a record or of a state row, is at i; the emission that a state row
    has is at i + the number of rows.
    """

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows.num_rows
        state = pc.equal(rows.column("kind"), STATE)
        self.pool = rows.column("value")
        if pc.any(state).as_py():
            values = pc.if_else(state, rows.column("accumulator"), rows.column("value"))
            self.pool = pa.concat_arrays([values, rows.column("emitted")])
        self.null = self.pool.is_null().to_pylist()
        self._columns: dict[str, list[Any]] = {}
        self._text = encoder(self.pool.type)

    def output(self, accumulator: Any) -> Any:
        return accumulator

    def restore(self, row: int) -> tuple[Any, Any]:
        """Return the places of the state row's value, and of its last emission."""
        emitted = row + self._rows
        return (None if self.null[row] else row), (None if self.null[emitted] else emitted)

    def field(self, name: str) -> Callable[[Any], Any]:
        if name not in self._columns:
            # each column becomes Python objects at most once, and only if something compares or tests it
            self._columns[name] = pc.struct_field(self.pool, name).to_pylist()
        return self._columns[name].__getitem__

    def type_of(self, name: str) -> pa.DataType:
        return self.pool.type.field(name).type

    def size(self, accumulator: Any) -> int:
        return 0 if accumulator is None else len(self._text(self.pool[accumulator].as_py()).encode())

    def event_size(self, row: int) -> int:
        return self.size(None if self.null[row] else row)

    def accumulator_array(self, accumulators: Sequence[Any]) -> pa.Array:
        return self.pool.take(pa.array(accumulators, pa.int64()))

    def output_array(self, outputs: Sequence[Any]) -> pa.Array:
        return self.pool.take(pa.array(outputs, pa.int64()))


class Newest:
    """The value and timestamp of a buffer's last row."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def timestamps(self, first: Ints, end: Ints) -> Ints:
        timestamp: Ints = self._keys.placed.timestamp[self._keys.place[end - 1]]
        return timestamp

    def values(self, first: Ints, end: Ints) -> pa.Array:
        values = self._keys.values("value", end - 1)
        is_state = self._keys.is_state[end - 1]
        if is_state.any():
            return pc.if_else(pa.array(is_state), self._keys.values("accumulator", end - 1), values)
        return values

    def sizes(self, values: pa.Array) -> Ints:
        return text_bytes(values)
