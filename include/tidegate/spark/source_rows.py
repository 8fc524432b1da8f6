"""Turn decoded records into the rows of the stages that read the source, where they are read, without Spark:
see `model.reading`.

The rows are those of `rows.record_rows`, which Spark makes of all other records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from tidegate.kernel.unusable import GO_ON, RECORD_FAILED, inputs_with_reasons
from tidegate.spark.shuffle import REPORT, TO, columns_of, in_schema, value_column

_MOST_ROWS, _MOST_BYTES = 250_000, 32 * 1024 * 1024
"""The rows among which repeated records are sought at once: a sort of many rows costs less per row."""


@dataclass(frozen=True)
class Shape:
    """The optional columns of a pass's rows.

    Args:
        timed: whether they have the time of their partition.
        exploded: whether they have the number of their element in an exploded list.
        ranked: whether they have a turn that is not their offset.
        recorded: whether they have Kafka's timestamp of their record.
        tested: whether they have what `where` says of their value.
    """

    timed: bool
    exploded: bool
    ranked: bool
    recorded: bool
    tested: bool


@dataclass(frozen=True)
class SourceRows:
    """Makes rows of a stage. It can be pickled.

    Args:
        stage: the name of the stage.
        columns: the columns that expressions may name; one that decoded records lack is null.
        values: column -> its expression and type.
        filter: the condition that removes records for which it is not true; None: there is none.
        where: the condition on a record's own value; None: there is none.
        compared: the columns by which records repeat each other; None: none is dropped.
        shape: the optional columns of rows.
        by_place: whether rows are decided together by topic-partition, and not by key.
        shows_removed: removed records are rows of kind REMOVED, as a trace needs them; otherwise they are
            only counted.
        quarantines: a record for which an expression has no result is quarantined; otherwise it fails the
            batch. Requires that decoded records have their `__input`.
    """

    stage: str
    columns: pa.Schema
    values: Mapping[str, tuple[Expression, pa.DataType]]
    filter: Expression | None
    where: Expression | None
    compared: tuple[str, ...] | None
    shape: Shape
    by_place: bool
    shows_removed: bool = False
    quarantines: bool = False

    @cached_property
    def value_type(self) -> pa.StructType:
        """The type of the values."""
        return pa.struct([(name, type_) for name, (_, type_) in self.values.items()])

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        fields = [
            *(("kind", pa.int8()), ("hash", pa.int64()), ("key", pa.string())),
            *(("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())),
            *([("turn", pa.int64())] if self.shape.ranked else []),
            *([("part", pa.int32())] if self.shape.exploded else []),
            ("timestamp", pa.int64()),
            *([("time", pa.int64())] if self.shape.timed else []),
            *([(kernel.RECORDED, pa.int64())] if self.shape.recorded else []),
            ("source", pa.string()),
            *([("passes", pa.bool_())] if self.shape.tested else []),
            *(("value", self.value_type), ("input", INPUT)),
        ]
        return pa.schema(fields)

    def of_records(self, decoded: pa.RecordBatch, time: pa.Int64Array | None) -> pa.RecordBatch:
        """Return the rows of decoded records, without those that had nothing to explode.

        Raises RecordFailed for a record without a result.

        Args:
            decoded: rows of `FrameDecoder`.
            time: the stream time before each of them; None: time is not kept.
        """
        decoded = with_columns(decoded, self.columns)
        if time is not None:
            decoded = decoded.append_column("__time", time)
        empty = decoded.column("__empty")
        if empty.true_count:
            decoded = decoded.filter(pc.invert(empty))
        failures = _Failures(decoded, self.quarantines)
        usable, tombstone = decoded.column("__reason").is_null(), decoded.column("__tombstone")
        removed = self._removed(decoded, pc.and_not(usable, tombstone), failures)
        valued = pc.and_not(pc.and_not(usable, tombstone), pc.or_(removed, failures.mask))
        value, passes = self._computed(decoded, valued, failures)
        usable = pc.and_not(usable, failures.mask)
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
        for name in (
            *("topic", "partition", "offset", "turn", "part", "timestamp", "time", kernel.RECORDED),
        ):
            if f"__{name}" in decoded.schema.names:
                columns[name] = decoded.column(f"__{name}")
        if self.shape.exploded and "part" not in columns:
            columns["part"] = pa.repeat(pa.scalar(0, pa.int32()), decoded.num_rows)
        columns["input"] = failures.with_reasons(decoded.column("__input"))
        return in_schema(columns, self.schema, decoded.num_rows)

    def _removed(
        self, decoded: pa.RecordBatch, valued: pa.BooleanArray, failures: _Failures
    ) -> pa.BooleanArray:
        """Return which records the source's filter, or that of the stage, removes. Only values are tested:
        deletions stay.
        """
        removed = pa.repeat(False, decoded.num_rows)
        if REMOVED in decoded.schema.names:
            removed = decoded.column(REMOVED)
            valued = pc.and_not(valued, removed)
        if self.filter is None:
            return removed
        rejected, unfit = self.filter.rejected(decoded.select(self.columns.names), valued)
        failures.add(unfit)
        return pc.or_(removed, pc.and_not(rejected, failures.mask))

    def _computed(
        self, decoded: pa.RecordBatch, valued: pa.BooleanArray, failures: _Failures
    ) -> tuple[pa.StructArray, pa.BooleanArray | None]:
        """Return values and `where`: null for deletions and unusable records, whose columns are null."""
        whole = valued.true_count == decoded.num_rows
        chosen = decoded if whole else decoded.filter(valued)
        rows = None if whole else pc.indices_nonzero(valued)
        columns = {name: chosen.column(name) for name in self.columns.names}
        values = _columns(self.values, columns, failures, rows)
        conditions = {"": (self.where, pa.bool_())} if self.where else {}
        conditions = _columns(conditions, columns | values, failures, rows)
        fields = list(self.value_type)
        value = pa.StructArray.from_arrays([values[field.name] for field in fields], fields=fields)
        passes = pc.fill_null(conditions[""], False) if conditions else None
        if whole and not failures.reasons:
            return value, passes
        places = places_among(mask(valued))
        places = pc.if_else(failures.mask, None, places)
        return value.take(places), None if passes is None else pc.fill_null(passes.take(places), False)

    def _place_hashes(self, decoded: pa.RecordBatch) -> pa.Int64Array:
        """Return the hash of each row's topic-partition, as `rows.place_hash`; all rows have one."""
        if not decoded.num_rows:
            return pa.array([], pa.int64())
        place = f"{decoded.column('__topic')[0].as_py()}/{decoded.column('__partition')[0].as_py()}"
        return pa.repeat(key_hashes(pa.array([place]))[0], decoded.num_rows)


class _Failures:
    """The records among `decoded` for which an expression has no result.

    Raises RecordFailed at the first of them, if they are not quarantined.
    """

    def __init__(self, decoded: pa.RecordBatch, quarantines: bool) -> None:
        self._decoded = decoded
        self._quarantines = quarantines
        self.reasons: dict[int, str] = {}
        """Row -> the reason; the first of several counts."""

    def add(self, unfit: Sequence[RowUnfit], rows: pa.UInt64Array | None = None) -> None:
        """Add the failures of an expression.

        Args:
            rows: the number of each tested row; None: all were tested.
        """
        for failure in unfit:
            row = failure.row if rows is None else rows[failure.row].as_py()
            if not self._quarantines:
                raise self._error(row, failure)
            self.reasons.setdefault(row, f"{RECORD_FAILED}: {failure.what}")

    @property
    def mask(self) -> pa.BooleanArray:
        """Return which of the records have failed."""
        return _texts(self.reasons, self._decoded.num_rows).is_valid()

    def with_reasons(self, inputs: pa.StructArray) -> pa.StructArray:
        """Return the records in the form of quarantine, with the reasons of those that have failed."""
        if not self.reasons:
            return inputs
        reasons = pc.coalesce(_texts(self.reasons, self._decoded.num_rows), pc.struct_field(inputs, "reason"))
        return inputs_with_reasons(inputs, reasons)

    def _error(self, row: int, failure: RowUnfit) -> RecordFailed:
        place = (self._decoded.column(f"__{name}")[row].as_py() for name in ("topic", "partition", "offset"))
        return RecordFailed.with_command(failure.what, f"{failure.fix} {GO_ON}", *place)


def _texts(texts: Mapping[int, str], number: int) -> pa.StringArray:
    """Return the text of each of `number` rows; null for rows without one."""
    return pa.array(map(texts.get, range(number)), pa.string()) if texts else pa.nulls(number, pa.string())


def _columns(
    expressions: Mapping[str, tuple[Expression, pa.DataType]],
    columns: Mapping[str, pa.Array],
    failures: _Failures,
    places: pa.UInt64Array | None,
) -> dict[str, pa.Array]:
    """Return the values of the expressions, and add the rows without one to `failures`."""
    values: dict[str, pa.Array] = {}
    if expressions:
        rows = pa.StructArray.from_arrays(list(columns.values()), list(columns))
        for name, (expression, type_) in expressions.items():
            values[name], unfit = expression.of_rows(rows, type_)
            failures.add(unfit, places)
    return values


class SliceRows:
    """Makes the rows of a stage of one slice, without repeated records; raises RecordFailed.

    `counts` get what became of the dropped records.
    """

    def __init__(self, rows: SourceRows, counts: kernel.Counts) -> None:
        self._rows = rows
        self._counts = counts
        self._repeats = None if rows.compared is None else Repeats(rows.compared, counts)
        self._waiting: list[pa.RecordBatch] = []
        self._number = self._bytes = 0

    def add(self, decoded: pa.RecordBatch, time: pa.Int64Array | None) -> Iterator[pa.RecordBatch]:
        """Take rows of `FrameDecoder`, in order, and the stream time before each; yield rows of the stage."""
        rows = self._rows.of_records(decoded, time)
        if not self._rows.shows_removed:
            rows, _ = kernel.without_removed(rows, self._counts)
        if self._repeats is None:
            yield rows
            return
        self._waiting.append(rows)
        self._number, self._bytes = self._number + rows.num_rows, self._bytes + rows.nbytes
        if self._number >= _MOST_ROWS or self._bytes >= _MOST_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are left."""
        waiting, self._waiting = self._waiting, []
        self._number = self._bytes = 0
        if waiting and self._repeats is not None:
            yield self._repeats.without(pa.concat_batches(waiting))


@dataclass(frozen=True)
class RecordRows:
    """Makes the rows of all stages that read records of sources. It can be pickled.

    `stages` are in the order of their passes.
    """

    stages: tuple[SourceRows, ...]

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the rows: those of each stage, with its values in a column of its own."""
        fields = {field.name: field for stage in self.stages for field in stage.schema}
        shared = [field for name, field in fields.items() if name not in ("value", "input")]
        values = [(value_column(number), stage.value_type) for number, stage in enumerate(self.stages)]
        return pa.schema([*shared, *values, fields["input"], (REPORT, pa.string()), (TO, pa.int32())])

    def of_stage(self, number: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a stage in the columns of all stages."""
        columns = columns_of(rows)
        columns[value_column(number)] = columns.pop("value")
        columns[TO] = pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows)
        columns.setdefault("passes", pa.repeat(True, rows.num_rows))
        return in_schema(columns, self.schema, rows.num_rows)

    def of_slice(
        self,
        decoded: Iterable[tuple[pa.RecordBatch, pa.Int64Array | None]],
        readers: Sequence[int],
        dropped: Mapping[str, kernel.Counts],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice's decoded records, without repeated ones.

        Raises RecordFailed.

        Args:
            decoded: rows of `FrameDecoder` in order, and the stream time before each of them.
            readers: the numbers of the stages that read the slice's source.
            dropped: stage -> counts that get what became of the dropped records.
        """
        stages = {number: self.stages[number] for number in readers}
        makers = {number: SliceRows(stage, dropped[stage.stage]) for number, stage in stages.items()}
        for batch in decoded:
            for number, (rows, time) in for_passes(readers, *batch):
                for made in makers[number].add(rows, time):
                    yield self.of_stage(number, made)
        for number, maker in makers.items():
            for made in maker.rest():
                yield self.of_stage(number, made)


def for_passes(
    readers: Sequence[int], decoded: pa.RecordBatch, time: pa.Int64Array | None
) -> Iterator[tuple[int, tuple[pa.RecordBatch, pa.Int64Array | None]]]:
    """Yield the number of each pass that reads decoded records, with the records and their times.

    Only the first of these passes gets records that cannot be used, so that quarantine gets them once.
    """
    if not readers:  # a pass of another source is explained
        return
    yield readers[0], (decoded, time)
    if len(readers) > 1:
        usable = decoded.column("__reason").is_null()
        if usable.false_count:
            decoded, time = decoded.filter(usable), None if time is None else time.filter(usable)
        yield from [(number, (decoded, time)) for number in readers[1:]]


def with_columns(decoded: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return decoded records with all of these columns: those that they lack are null."""
    lacking = [field for field in columns if field.name not in decoded.schema.names]
    for field in lacking:
        decoded = decoded.append_column(field, pa.nulls(decoded.num_rows, field.type))
    return decoded
