"""The shape of the rows that go into the kernel and come out of it.

Into the kernel come rows in the order of their hashes:

=================  ==============  ================================================================
kind               int8            STATE, RECORD, QUARANTINED (passed through), or REMOVED (by a `filter`)
hash               int64           the same for all rows that are decided together: of the key, or, where a
                                   buffer is bounded, of the topic-partition
key                string          the canonical key; null only when quarantined or removed
updated_seq        int64           state rows: the batch that wrote them; the newest of an entry counts
topic              string          position of the record; of a state row: the record that last changed it
partition          int32
offset             int64
turn               int64           the record's place in its partition: its offset, or, in a later
                                   stage, the number of the emission that it was
part               int32           its index in the record that it was exploded from, else 0
timestamp          int64           epoch ms; of a state row: the largest timestamp folded into it
time               int64           stream time of the partition before the record; null where no time is kept
source             string          the chain of hops before this one, or null
rank               struct | null   in a later stage only: the rank of the emission that it is, `RANK`
record             struct | null   only if the stage emits late records: all columns of the record
recorded           int64           only if a sink sends it: Kafka's timestamp of the record; in a later stage
                                   that of the emission
passes             bool            whether the stage's `where` accepts this record, for `latest` without a
                                   window that holds nothing back; null: not tested
change             int8 | null     in a stage that retracts only: what the row does to its group: `ADDED` …
value              struct | null   records: the columns that the stage's `reduce` takes; null: a tombstone
input              struct | null   quarantined rows: the whole record and the reason, opaque to the kernel
-----------------  --------------  ---- state rows only ------------------------------------------
accumulator        struct | null   the fold of its records so far (`reduce.accumulator_type`)
emitted            struct | null   the last emitted value (`reduce.output_type`); null: nothing, or a deletion
digest             string          in place of `emitted`, if the stage stores hashes only
live               bool            whether the entry exists; false: nothing is left of it but this row
window_start       int64           epoch ms; null without a window
window_end         int64
pending            int64           number of records that are held back
since              int64           the time from which they wait: the timestamp of the first of them, or its
                                   partition's time with it, if arrival counts
bytes              int64           size of what is held back, if it is counted
due_at             int64           when its timer fires; null: no timer, or a window that is over
emitted_timestamp  int64           timestamp of the last emission
flushed_at         int64           when it was last flushed, if the next flush depends on it
expires_at         int64           when its time to live is over, if the stage has a `ttl`
=================  ==============  ================================================================

The kernel yields rows of `output_schema`: of kind STATE (entries that changed), EMISSION, LATE (late records,
if the stage emits them), REFUSED (values that break an expectation, which is their `reason`), QUARANTINED,
TRACE (if requested), and last one row of kind COUNTS whose `counts` is a JSON object.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.tables import is_table

if TYPE_CHECKING:
    from tidegate.kernel.stage import Batch, Stage

Ints = npt.NDArray[np.int64]

Floats = npt.NDArray[np.float64]

Mask = npt.NDArray[np.bool_]
Rows = TypeVar("Rows", bound=Any)

STATE, RECORD, QUARANTINED, EMISSION, COUNTS, TRACE, REFUSED, REMOVED, LATE = range(9)

ADDED, DELETED, REPLACED, MOVED = range(4)
"""How a row of a table changes its group, in a stage that retracts.

ADDED: the row becomes a member. The others take it back as it was before. DELETED: it is no longer in the
table. REPLACED: it stays in the group, and the next row adds it as it is now. MOVED: it is in another group.
"""
TAKES_BACK = (DELETED, REPLACED, MOVED)

FIRST, TIMER, LAST = -2, -1, 2**63 - 1
"""Replaces the turn of the record that triggers an emission.

FIRST: the time of the record's partition reaches the instant with the record. TIMER: a timer that waited for
the instant triggers the emission. LAST: the emission is drained at the end of the batch.
"""

RECORDED = "recorded"
"""The column of the timestamp that Kafka has of the record which triggers an emission."""

FUTURE_MS = 24 * 60 * 60 * 1000
"""A record whose timestamp is further in the future is not believed, and quarantined."""

POSITION = [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("offset", pa.int64())]

ENTRY = [
    pa.field("digest", pa.string()),
    pa.field("live", pa.bool_()),
    pa.field("window_start", pa.int64()),
    pa.field("window_end", pa.int64()),
    pa.field("pending", pa.int64()),
    pa.field("since", pa.int64()),
    pa.field("bytes", pa.int64()),
    pa.field("due_at", pa.int64()),
    pa.field("emitted_timestamp", pa.int64()),
    pa.field("flushed_at", pa.int64()),
    pa.field("expires_at", pa.int64()),
]
"""The columns of a state row about its entry, besides its values."""

RANK = pa.struct(
    [
        pa.field("instant", pa.int64()),
        pa.field("turn", pa.int64()),
        pa.field("part", pa.int32()),
        pa.field("key", pa.string()),
        pa.field("ordinal", pa.int64()),
    ]
)
"""The rank of an emission among all emissions of its stage and batch (`ordering`)."""

BY_KEY = ("hash", "key", "kind", "updated_seq", "topic", "partition", "turn", "part")

BY_PARTITION = ("hash", "topic", "partition", "kind", "updated_seq", "turn", "part")


def input_schema(
    value: pa.DataType,
    accumulator: pa.DataType,
    output: pa.DataType,
    input_type: pa.DataType,
    later: bool = False,
    retracts: bool = False,
    recorded: bool = False,
    record: pa.DataType | None = None,
) -> pa.Schema:
    """Return the schema of rows that go into the kernel.

    Args:
        value: the type of the records' columns.
        accumulator: the type of the stage's accumulator.
        output: the type of its emissions.
        input_type: the type of a quarantined record.
        later: the stage reads emissions of another stage.
        retracts: it takes back what they replace.
        recorded: rows have Kafka's timestamp of their record.
        record: the type of a record with all of its columns; None: it is not needed.
    """
    return pa.schema(
        [
            pa.field("kind", pa.int8()),
            pa.field("hash", pa.int64()),
            pa.field("key", pa.string()),
            pa.field("updated_seq", pa.int64()),
            *POSITION,
            pa.field("turn", pa.int64()),
            pa.field("part", pa.int32()),
            pa.field("timestamp", pa.int64()),
            pa.field("time", pa.int64()),
            pa.field("source", pa.string()),
            *([pa.field("rank", RANK)] if later else []),
            *([pa.field("change", pa.int8())] if retracts else []),
            *([pa.field(RECORDED, pa.int64())] if recorded else []),
            *([] if record is None else [pa.field("record", record)]),
            pa.field("passes", pa.bool_()),
            pa.field("value", value),
            pa.field("input", input_type),
            pa.field("accumulator", accumulator),
            pa.field("emitted", output),
            *ENTRY,
        ]
    )


def output_schema(stage: Stage, rows: pa.Schema) -> pa.Schema:
    """Return the schema of rows that come out of a stage; `rows` is the schema of rows that go in.

    Emissions have `value`, `at` (when they happened, epoch ms), `reason`, and `turn` and `part` of the record
    that triggered them; in place of its turn, FIRST, TIMER or LAST. `ordering.ranked` sets `instant`. If rows
    have `recorded`, so do emissions: that of the record that triggers them; without one it is `at`. A trace
    has what became of a record in `reason`, and in `trace` a JSON object of its value and of the state before
    it.
    """
    value, input_type = rows.field("value").type, rows.field("input").type
    accumulator, output = stage.reduce.accumulator_type(value), stage.reduce.output_type(value)
    return pa.schema(
        [
            pa.field("kind", pa.int8()),
            pa.field("hash", pa.int64()),
            pa.field("key", pa.string()),
            pa.field("ordinal", pa.int64()),  # emissions: their order within the key
            *POSITION,
            pa.field("timestamp", pa.int64()),
            pa.field("at", pa.int64()),
            pa.field("instant", pa.int64()),
            pa.field("turn", pa.int64()),
            pa.field("part", pa.int32()),
            pa.field("source", pa.string()),
            *[rows.field(name) for name in (RECORDED, "record") if name in rows.names],
            pa.field("reason", pa.string()),
            pa.field("counts", pa.string()),
            pa.field("trace", pa.string()),
            pa.field("value", output),
            pa.field("input", input_type),
            pa.field("accumulator", accumulator),
            pa.field("emitted", output),
            *ENTRY,
        ]
    )


def first_by(row: int) -> int:
    """Return the cause of an emission by a record with which time reaches the instant."""
    return FIRST - row


def fill(schema: pa.Schema, kind: int, columns: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
    """Return a batch of `schema` with these columns; all others are null.

    Args:
        kind: The kind of all rows, such as STATE.
        columns: Column name -> array; cast to the type that `schema` has.
        rows: Their number.
    """
    filled = {"kind": pa.repeat(pa.scalar(kind, pa.int8()), rows), **columns}
    # null columns of one type share one array: a large array costs the pages that it touches first
    nulls = cache(partial(pa.nulls, rows))
    arrays = [
        filled[field.name].cast(field.type) if field.name in filled else nulls(field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


Position = tuple[str, int, int]
"""(topic, partition, offset)."""


def root(chain: str) -> Position:
    """Return the first entry of a source chain, which is `topic/partition/offset` joined by `;`, oldest
    first.

    Example: `root("orders/0/7;totals/1/3")` is `("orders", 0, 7)`.
    """
    topic, partition, offset = chain.partition(";")[0].split("/")
    return topic, int(partition), int(offset)


def repeats(position: Position, fence: Position) -> bool:
    """Return whether a record is at or before a position of its own topic-partition.

    Example: offset 7 repeats the fence 7 of its own partition, and no fence of another one.
    """
    return position[2] <= fence[2] and position[:2] == fence[:2]


class Columns:
    """One Arrow batch of rows. `before` is the time of each row's partition before the row, in epoch ms."""

    def __init__(self, rows: pa.RecordBatch, batch: Batch) -> None:
        self._rows = rows
        self._batch = batch
        self.kind = rows.column("kind").to_pylist()
        self.key = rows.column("key").to_pylist()
        self.timestamp = rows.column("timestamp").to_pylist()
        self.before = pc.max_element_wise(rows.column("time"), least_times(rows, batch)).to_pylist()

    @cached_property
    def _topics(self) -> list[str]:
        # a batch has few topics: each name becomes one Python object
        encoded = self._rows.column("topic").dictionary_encode()
        names = encoded.dictionary.to_pylist()
        return [names[code] for code in encoded.indices.to_pylist()]

    @cached_property
    def _partitions(self) -> list[int]:
        return self._rows.column("partition").to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def offset(self) -> list[int]:
        """The offset of each row in its topic-partition."""
        return self._rows.column("offset").to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def change(self) -> list[int | None]:
        """The change of each row to its group; empty if the stage does not retract."""
        names = self._rows.schema.names
        return self._rows.column("change").to_pylist() if "change" in names else []

    @cached_property
    def passes(self) -> list[bool | None]:
        """Whether `where` accepts the row's own value; None if it was not tested on records."""
        return self._rows.column("passes").to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def _chains(self) -> list[str | None]:
        return self._rows.column("source").to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def stored(self) -> dict[str, list[Any]]:
        """The columns of state rows about their entries: column -> values."""
        return {field.name: self._rows.column(field.name).to_pylist() for field in ENTRY}

    def position(self, row: int) -> Position:
        """Return (topic, partition, offset) of the row's record."""
        return self._topics[row], self._partitions[row], self.offset[row]

    def value(self, row: int) -> Any:
        """Return the row's own value."""
        return self._rows.column("value")[row].as_py()

    @cached_property
    def table(self) -> list[str | None]:
        """The table that has made each row; None for records of the input, and if no table has changed."""
        tables = self._batch.tables
        return [tables.get(topic) for topic in self._topics] if tables else [None] * len(self.key)

    def root(self, row: int) -> Position:
        """Return the position of the record that the row's record originally comes from.

        Example: the chain `orders/0/7;totals/1/3` gives `("orders", 0, 7)`.
        """
        chain = self._chains[row]
        return self.position(row) if chain is None else root(chain)

    def end(self, row: int) -> int:
        """Return the time of the row's partition at the end of the batch, epoch ms."""
        return self._batch.end_of((self._topics[row], self._partitions[row]))

    def comes_from_table(self, row: int) -> bool:
        """Return whether a table has made the row, or the state row that it is."""
        return is_table(self._topics[row])


def least_times(rows: pa.RecordBatch, batch: Batch) -> pa.Int64Array | pa.Int64Scalar:
    """Return per row the largest clock that was applied to its topic-partition before; a scalar if all are
    equal.

    Args:
        rows: Rows with the columns `topic` and `partition`.
        batch: Has `floor` and `clocks`.
    """
    floor = pa.scalar(batch.floor, pa.int64())
    if all(clock == batch.floor for clock in batch.clocks.values()):
        return floor
    topics, partitions = zip(*batch.clocks, strict=True)
    text = rows.schema.field("topic").type
    names = pa.array(sorted(set(topics)), text)

    # a topic-partition as one number: `index_in` looks up one column only
    def numbers(topic: pa.Array, partition: pa.Array) -> pa.Int64Array:
        number = pc.index_in(topic, value_set=names).cast(pa.int64())
        return pc.add(pc.multiply(number, 2**32), partition.cast(pa.int64()))

    clocked = numbers(pa.array(topics, text), pa.array(partitions))
    place = pc.index_in(numbers(rows.column("topic"), rows.column("partition")), value_set=clocked)
    return pc.fill_null(pa.array(list(batch.clocks.values()), pa.int64()).take(place), floor)


def ints(column: pa.Array) -> Ints:
    """Return whole numbers; 0 for null.

    Example: `[1, null]` gives 1 and 0.
    """
    return np.asarray(pc.fill_null(column, 0).to_numpy(), np.int64)


def mask(column: pa.BooleanArray) -> Mask:
    """Return booleans, none of which may be null."""
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def view(numbers: npt.NDArray[np.generic]) -> memoryview[int]:
    """Return a view to read and set single elements fast, without a list of all."""
    return memoryview(numbers)  # type: ignore[arg-type]  # arrays have the buffer protocol


def with_column(rows: Rows, name: str, values: pa.Array | Ints | Sequence[Any]) -> Rows:
    """Return a record batch or table with other values of a column, which keeps its place and its type.

    Example: `with_column(rows, "turn", [1, 2])`
    """
    place = rows.schema.get_field_index(name)
    field = rows.schema.field(place)
    array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values, field.type)
    return rows.set_column(place, field, array)  # type: ignore[no-any-return]


def places_among(selected: Mask) -> pa.Int64Array:
    """Return the place of each selected row among the selected rows, and null for the others.

    Example: `[True, False, True]` gives `[0, null, 1]`.
    """
    return pa.array(np.cumsum(selected) - 1, mask=~selected)


def only(values: pa.Array, rows: Mask) -> pa.Array:
    """Return the values of some rows, and null for the others.

    Example: values 1 and 2, of which only the first is selected, give `[1, null]`.
    """
    return values.take(pa.array(np.arange(len(rows)), mask=~rows))
