"""A load as Spark brings it to the kernel: rows of `kernel.input_schema`, sorted, in Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.events import Load, draw, key, timestamp_ms
from tidegate import kernel
from tidegate.formats import INPUT
from tidegate.kernel.keys import key_hashes

BATCH_ROWS = 8_192  # as many as Spark sends at once
TOPIC = "stock"
_BUSY = 50  # one key of this many gets half of all events, where some are busier than others


@dataclass(frozen=True)
class Shape:
    """The form of a stage's records.

    `value` makes them of quantities. `stored` is the quantity in the state row of every key, or None if no
    key has state. `keys_per_100` is the number of keys for each 100 of the load. With `uneven`, half of all
    events have one key in 50.
    """

    value: Callable[[pa.Int32Array], pa.StructArray]
    stored: int | None = None
    keys_per_100: int = 100
    uneven: bool = False

    def keys(self, load: Load) -> int:
        return max(load.keys * self.keys_per_100 // 100, 1)


def sorted_batches(load: Load, shape: Shape, stage: kernel.Stage) -> list[pa.RecordBatch]:
    """The load in the stage's order, each key's state row first."""
    value = shape.value(pa.array([], pa.int32())).type
    accumulator, output = stage.reduce.accumulator_type(value), stage.reduce.output_type(value)
    schema = kernel.input_schema(value, accumulator, output, INPUT)
    of_keys = kernel.groups(stage) == ("key",)
    tables = [_as_rows(schema, columns, kernel.RECORD, of_keys) for columns in _records(load, shape)]
    if shape.stored is not None:
        tables.append(_as_rows(schema, _states(load, shape, accumulator, output), kernel.STATE, of_keys))
    table = pa.concat_tables(tables).combine_chunks()
    by = [(name, "ascending") for name in kernel.order(stage)]
    order = pc.sort_indices(table, sort_keys=by)
    # Each batch has its own buffers, as from Spark: the text of a slice is checked with all of its buffer.
    taken = (table.take(order.slice(begin, BATCH_ROWS)) for begin in range(0, len(order), BATCH_ROWS))
    return [batch for rows in taken for batch in rows.combine_chunks().to_batches()]


def end_times(load: Load) -> dict[tuple[str, int], int]:
    """The stream time of each partition after the load; nearly so, which does not matter here."""
    return {(TOPIC, partition): _last_ms(load) for partition in range(load.partitions)}


def _last_ms(load: Load) -> int:
    return timestamp_ms(load.first + load.events - 1)


def _records(load: Load, shape: Shape) -> Iterator[dict[str, pa.Array]]:
    number = shape.keys(load)
    keys = pa.array([key(product) for product in range(number)])
    times = [-1] * load.partitions
    for begin, drawn, quantities in draw(load):
        products = _spread(drawn, number, shape.uneven)
        events = range(begin, begin + len(products))
        timestamps = list(map(timestamp_ms, events))
        partitions = [product % load.partitions for product in products]
        yield {
            "key": keys.take(pa.array(products, pa.int32())),
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(events, pa.int64()),
            "turn": pa.array(events, pa.int64()),
            "timestamp": pa.array(timestamps, pa.int64()),
            "time": pa.array(_times_before(partitions, timestamps, times), pa.int64()),
            "value": shape.value(pa.array(quantities, pa.int32())),
        }


def _spread(products: Sequence[int], keys: int, uneven: bool) -> list[int]:
    busy = max(keys // _BUSY, 1)
    return [product % (busy if uneven and place % 2 else keys) for place, product in enumerate(products)]


def _times_before(partitions: Sequence[int], timestamps: Sequence[int], times: list[int]) -> list[int]:
    """The stream time of each record's partition before it; `times` goes on from chunk to chunk."""
    before = []
    for partition, timestamp in zip(partitions, timestamps, strict=True):
        before.append(times[partition])
        times[partition] = max(times[partition], timestamp)
    return before


def _states(load: Load, shape: Shape, accumulator: pa.DataType, output: pa.DataType) -> dict[str, pa.Array]:
    """Return the state rows of an earlier batch that read and emitted the same value for each key."""
    products = range(shape.keys(load))
    size = len(products)
    value = shape.value(pa.repeat(pa.scalar(shape.stored, pa.int32()), size))
    return {
        "key": pa.array(map(key, products)),
        "updated_seq": pa.repeat(pa.scalar(1, pa.int64()), size),
        "partition": pa.array([product % load.partitions for product in products], pa.int32()),
        "offset": pa.repeat(pa.scalar(-1, pa.int64()), size),
        "turn": pa.repeat(pa.scalar(-1, pa.int64()), size),
        "timestamp": pa.repeat(pa.scalar(timestamp_ms(0), pa.int64()), size),
        "accumulator": value.cast(accumulator),
        "emitted": value.cast(output),
        "live": pa.repeat(True, size),
        "emitted_timestamp": pa.repeat(pa.scalar(timestamp_ms(0), pa.int64()), size),
    }


def _as_rows(schema: pa.Schema, columns: dict[str, pa.Array], kind: int, of_keys: bool) -> pa.Table:
    """Rows with the hash of what is decided together: keys, or, where a buffer is bounded, partitions."""
    size = len(columns["key"])
    constant = {"kind": kind, "updated_seq": 0, "topic": TOPIC, "part": 0, "passes": True}
    filled = {
        name: pa.repeat(pa.scalar(fill, schema.field(name).type), size) for name, fill in constant.items()
    }
    hashed = columns["key"] if of_keys else _places(columns["partition"])
    given = filled | {"hash": key_hashes(hashed)} | columns
    arrays = [
        given[column.name] if column.name in given else pa.nulls(size, column.type) for column in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _places(partitions: pa.Int32Array) -> pa.StringArray:
    """The text whose hash stands for a topic-partition, as the engine has it."""
    return pc.binary_join_element_wise(TOPIC, partitions.cast(pa.string()), "/")
