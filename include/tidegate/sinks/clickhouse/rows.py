"""The columns of a ClickHouse table, and emissions as its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import SinkRefused
from tidegate.kernel.json_text import encoder
from tidegate.sinks.clickhouse.model import ClickHouseSink
from tidegate.sinks.outbox import Outbox, check_names, table_rows
from tidegate.storage.schema import KEY, ORDINAL, SEQ, TIMESTAMP, VALUE, window_columns

STREAM, IS_DELETED, VERSION = "stream", "is_deleted", "row_version"
_INSERT_BYTES = 16 * 2**20
"""The bytes after which an insertion ends. Each makes a part of the table, which the server has to merge."""
_INSTANT = "DateTime64(6, 'UTC')"
_SCALARS: Mapping[pa.DataType, str] = {
    pa.bool_(): "Bool",
    **{getattr(pa, f"int{bits}")(): f"Int{bits}" for bits in (8, 16, 32, 64)},
    pa.float32(): "Float32",
    pa.float64(): "Float64",
    pa.date32(): "Date32",
}
_FIRST, _LAST = datetime(1900, 1, 1), datetime(2299, 12, 31, 23, 59, 59, 999_999)
"""The range of ClickHouse's dates and times."""


def column_type(type_: pa.DataType) -> str:
    """Return the type of a column with values of an Arrow type: nested values are JSON texts.

    >>> column_type(pa.decimal128(10, 2))
    'Nullable(Decimal(10, 2))'
    """
    if pa.types.is_decimal(type_):
        name = f"Decimal({type_.precision}, {type_.scale})"
    elif pa.types.is_timestamp(type_):
        name = _INSTANT
    else:
        name = _SCALARS.get(type_, "String")
    return f"Nullable({name})"


class ClickHouseRows:
    """The table of a sink, for the emissions of an outbox. Raises SinkRefused if a name has two meanings."""

    def __init__(self, sink: ClickHouseSink, outbox: Outbox) -> None:
        self._sink = sink
        self._outbox = outbox
        self.seq = outbox.plan.seq
        windows = window_columns(outbox.stage is not None and outbox.stage.window is not None)
        is_upsert = sink.mode == "upsert"
        self.sorting_key = (KEY, *windows) if is_upsert else (STREAM, SEQ, ORDINAL)
        self.version = (VERSION, IS_DELETED) if is_upsert else (VERSION,)
        """The arguments of the engine."""
        own = {
            KEY: "String",
            TIMESTAMP: _INSTANT,
            SEQ: "Int64",
            STREAM: "String",
            ORDINAL: "Int64",
            **dict.fromkeys(windows, _INSTANT),
            IS_DELETED: "UInt8",
            VERSION: "UInt128",
        }
        schema = table_rows(sink, outbox).schema
        emitted = {field.name: column_type(field.type) for field in schema}
        self._times = [field.name for field in schema if field.name not in own and _has_time(field.type)]
        check_names(f"table of {sink.name}", (STREAM, ORDINAL, IS_DELETED, VERSION), emitted)
        self.columns = {name: own.get(name, emitted.get(name, "")) for name in (*emitted, *own)}
        """Column -> its type."""

    def inserts(self, stream: str, term: int) -> Iterator[pa.Table]:
        """Yield the rows in order, as many at a time as one insertion takes."""
        batches, size = list[pa.RecordBatch](), 0
        for batch in self._rows(stream, term):
            batches.append(batch)
            size += batch.nbytes
            if size >= _INSERT_BYTES:
                yield pa.Table.from_batches(batches)
                batches, size = [], 0
        if batches:
            yield pa.Table.from_batches(batches)

    def _rows(self, stream: str, term: int) -> Iterator[pa.RecordBatch]:
        deleted = (batch.column(VALUE).is_null() for batch in self._outbox.batches([VALUE]))
        start = 0
        for batch, is_deleted in zip(table_rows(self._sink, self._outbox), deleted, strict=True):
            ordinals = np.arange(start, start + batch.num_rows, dtype=np.int64)
            start += batch.num_rows
            yield pa.RecordBatch.from_pydict(
                {
                    **{name: _stored(batch.column(name)) for name in batch.schema.names},
                    STREAM: pa.repeat(stream, batch.num_rows),
                    ORDINAL: pa.array(ordinals),
                    IS_DELETED: is_deleted.cast(pa.uint8()),
                    VERSION: versions(term, self.seq, ordinals),
                }
            )

    def check_times(self) -> None:
        """Check that the table can have the emitted dates and times. Raises SinkRefused."""
        if self._times:
            check_times(batch.select(self._times) for batch in table_rows(self._sink, self._outbox))


def check_times(batches: Iterable[pa.RecordBatch]) -> None:
    """Check columns of dates and times: ClickHouse would change what it cannot have. Raises SinkRefused."""
    for batch in batches:
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            times = values.cast(pa.timestamp("us"))
            outside = pc.or_(pc.less(times, _FIRST), pc.greater(times, _LAST))
            if pc.any(outside).as_py():
                raise SinkRefused(
                    f"The column {name} emits {values.filter(outside)[0]}, and ClickHouse has dates and "
                    f"times from {_FIRST:%Y-%m-%d} to {_LAST:%Y-%m-%d} only",
                    f"`select` null in its place, or {name} as a string. Nothing was published.",
                )


def _has_time(type_: pa.DataType) -> bool:
    return bool(pa.types.is_date(type_) or pa.types.is_timestamp(type_))


def _stored(values: pa.Array) -> pa.Array:
    """Return a column as the table has it."""
    if not pa.types.is_nested(values.type):
        return values
    encode = encoder(values.type)
    return pa.array([None if value is None else encode(value) for value in values.to_pylist()], pa.string())


def versions(term: int, seq: int, ordinals: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    """Return the version of each row: term, batch and place, so that the newest row is the greatest number.

    ClickHouse takes 16 bytes, the lowest first, as a UInt128.
    """
    words = np.empty((len(ordinals), 4), "<u4")
    words[:, 0], words[:, 1], words[:, 2], words[:, 3] = ordinals, seq, term & 0xFFFFFFFF, term >> 32
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(words), [None, pa.py_buffer(words.tobytes())]
    )
