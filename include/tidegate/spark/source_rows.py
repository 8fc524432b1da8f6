"""Turn decoded records into the first stage's rows where they are read, without Spark: see `model.reading`.

The rows are those of `rows.record_rows`, which Spark makes of all other records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from tidegate import kernel
from tidegate.errors import RecordFailed
from tidegate.expressions import Expression, RowUnfit
from tidegate.formats import INPUT
from tidegate.formats.records import REMOVED
from tidegate.kernel.keys import key_hashes
from tidegate.kernel.repeats import Repeats
from tidegate.kernel.rows import mask, places_among
from tidegate.spark.shuffle import REPORT, SLOT, in_schema

_MOST_ROWS, _MOST_BYTES = 250_000, 32 * 1024 * 1024
"""The rows among which repeated records are sought at once: a sort of many rows costs less per row."""


@dataclass(frozen=True)
class Shape:
    """The optional columns of a pass's rows.

    Args:
        timed: whether they have the time of their partition.
        exploded: whether they have the number of their element in an exploded list.
        ranked: whether they have a turn that is not their offset.
    """

    timed: bool
    exploded: bool
    ranked: bool


@dataclass(frozen=True)
class SourceRows:
    """Makes rows of the first stage. It can be pickled.

    Args:
        columns: the columns of decoded records, which expressions may name.
        values: column -> its expression and type.
        filter: the condition that removes records for which it is not true; None: there is none.
        where: the condition on a record's own value; None: there is none.
        compared: the columns by which records repeat each other; None: none is dropped.
        shape: the optional columns of rows.
        by_place: whether rows are decided together by topic-partition, and not by key.
        shows_removed: removed records are rows of kind REMOVED, as a trace needs them; otherwise they are
            only counted.
    """

    columns: tuple[str, ...]
    values: Mapping[str, tuple[Expression, pa.DataType]]
    filter: Expression | None
    where: Expression | None
    compared: tuple[str, ...] | None
    shape: Shape
    by_place: bool
    shows_removed: bool = False

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        value = pa.struct([(name, type_) for name, (_, type_) in self.values.items()])
        fields = [
            *(("kind", pa.int8()), ("hash", pa.int64()), ("key", pa.string())),
            *(("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())),
            *([("turn", pa.int64())] if self.shape.ranked else []),
            *([("part", pa.int32())] if self.shape.exploded else []),
            ("timestamp", pa.int64()),
            *([("time", pa.int64())] if self.shape.timed else []),
            ("source", pa.string()),
            *([("passes", pa.bool_())] if self.where is not None else []),
            *(("value", value), ("input", INPUT), (REPORT, pa.string()), (SLOT, pa.int32())),
        ]
        return pa.schema(fields)

    def of_records(self, decoded: pa.RecordBatch, time: pa.Int64Array | None) -> pa.RecordBatch:
        """Return the rows of decoded records, without those that had nothing to explode.

        Raises RecordFailed for a record without a result.

        Args:
            decoded: rows of `FrameDecoder`.
            time: the stream time before each of them; None: time is not kept.
        """
        if time is not None:
            decoded = decoded.append_column("__time", time)
        empty = decoded.column("__empty")
        if empty.true_count:
            decoded = decoded.filter(pc.invert(empty))
        usable = decoded.column("__reason").is_null()
        tombstone = decoded.column("__tombstone")
        removed = self._removed(decoded, pc.and_not(usable, tombstone))
        valued = pc.and_not(pc.and_not(usable, tombstone), removed)
        value, passes = self._computed(decoded, valued)
        record, quarantined, of_filter = (
            pa.scalar(kind, pa.int8()) for kind in (kernel.RECORD, kernel.QUARANTINED, kernel.REMOVED)
        )
        kinds = pc.if_else(usable, pc.if_else(removed, of_filter, record), quarantined)
        key = decoded.column("__key")
        columns = {
            "kind": kinds,
            "hash": self._place_hashes(decoded) if self.by_place else decoded.column("__hash"),
            "key": key if usable.false_count == 0 else pc.if_else(usable, key, None),
            "source": decoded.column("__chain"),
            "value": value,
        }
        if passes is not None:
            columns["passes"] = pc.or_(passes, tombstone)
        for name in ("topic", "partition", "offset", "turn", "part", "timestamp", "time", "input"):
            if f"__{name}" in decoded.schema.names:
                columns[name] = decoded.column(f"__{name}")
        return in_schema(columns, self.schema, decoded.num_rows)

    def _removed(self, decoded: pa.RecordBatch, valued: pa.BooleanArray) -> pa.BooleanArray:
        """Return which records the source's filter, or that of the stage, removes. Only values are tested:
        deletions stay.
        """
        removed = pa.repeat(False, decoded.num_rows)
        if REMOVED in decoded.schema.names:
            removed = decoded.column(REMOVED)
            valued = pc.and_not(valued, removed)
        if self.filter is None:
            return removed
        try:
            return pc.or_(removed, self.filter.rejected(decoded.select(list(self.columns)), valued))
        except RowUnfit as unfit:
            raise _failed(decoded, unfit) from None

    def _computed(
        self, decoded: pa.RecordBatch, valued: pa.BooleanArray
    ) -> tuple[pa.StructArray, pa.BooleanArray | None]:
        """Return values and `where`: null for deletions and unusable records, whose columns are null."""
        whole = valued.true_count == decoded.num_rows
        chosen = decoded if whole else decoded.filter(valued)
        columns = {name: chosen.column(name) for name in self.columns}
        try:
            values = _columns(self.values, columns)
            conditions = _columns({"": (self.where, pa.bool_())} if self.where else {}, columns | values)
        except RowUnfit as unfit:
            raise _failed(chosen, unfit) from None
        fields = list(self.schema.field("value").type)
        value = pa.StructArray.from_arrays([values[field.name] for field in fields], fields=fields)
        passes = pc.fill_null(conditions[""], False) if conditions else None
        if whole:
            return value, passes
        places = places_among(mask(valued))
        return value.take(places), None if passes is None else pc.fill_null(passes.take(places), False)

    def _place_hashes(self, decoded: pa.RecordBatch) -> pa.Int64Array:
        """Return the hash of each row's topic-partition, as `rows.place_hash`; all rows have one."""
        if not decoded.num_rows:
            return pa.array([], pa.int64())
        place = f"{decoded.column('__topic')[0].as_py()}/{decoded.column('__partition')[0].as_py()}"
        return pa.repeat(key_hashes(pa.array([place]))[0], decoded.num_rows)

    def of_slice(
        self, decoded: Iterable[tuple[pa.RecordBatch, pa.Int64Array | None]], counts: kernel.Counts
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice's decoded records, without repeated ones.

        Raises RecordFailed.

        Args:
            decoded: rows of `FrameDecoder` in order, and the stream time before each of them.
            counts: get what became of the dropped records.
        """
        batches = (self._present(self.of_records(rows, time), counts) for rows, time in decoded)
        if self.compared is None:
            yield from batches
            return
        repeats = Repeats(self.compared, counts)
        for rows in _gathered(batches):
            yield repeats.without(rows)

    def _present(self, rows: pa.RecordBatch, counts: kernel.Counts) -> pa.RecordBatch:
        if self.shows_removed:
            return rows
        rows, _ = kernel.without_removed(rows, counts)
        return rows


def _columns(
    expressions: Mapping[str, tuple[Expression, pa.DataType]], columns: Mapping[str, pa.Array]
) -> dict[str, pa.Array]:
    if not expressions:
        return {}
    rows = pa.StructArray.from_arrays(list(columns.values()), list(columns))
    return {name: expression.of_rows(rows, type_) for name, (expression, type_) in expressions.items()}


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several batches at once, up to a number of rows and bytes."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _MOST_ROWS or size >= _MOST_BYTES:
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)


def _failed(rows: pa.RecordBatch, unfit: RowUnfit) -> RecordFailed:
    place = (rows.column(f"__{name}")[unfit.row].as_py() for name in ("topic", "partition", "offset"))
    return RecordFailed.with_command(unfit.what, unfit.fix, *place)
