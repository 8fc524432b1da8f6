"""Reduces: how records fold into a value. `latest` and `collect` have a file each; the third is `aggregates`.

A reduce has only settings, and declares the types that it makes. Bound to rows, it gives `Values`, which fold
by row number, with references to values that only they understand, so that most values never leave Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

if TYPE_CHECKING:  # which know their stage's reduce
    from tidegate.kernel.aggregates import Aggregate
    from tidegate.kernel.aggregates.formula import Formula
    from tidegate.kernel.columns import Keys
    from tidegate.kernel.rows import Ints, Mask


class Values(Protocol):
    """The values of one Arrow batch of rows.

    An accumulator is the fold of an entry's records; an output is what would be emitted of it. Both are
    references that only the reduce itself can read, and None means nothing. `row` counts from 0.
    """

    null: Sequence[bool]
    """Per row, whether its value is null."""

    pool: pa.StructArray | None
    """The values in Arrow, if a reference is the place of a value in it; otherwise None."""

    def fold(self, accumulator: Any, row: int) -> Any:
        """Return the accumulator with the row's record folded in, in place or as a new one; None begins one.

        Raises RecordFailed, and leaves `accumulator` as it was.

        Args:
            accumulator: A reference; the one that is returned takes its place.
            row: A record.
        """

    def output(self, accumulator: Any) -> Any:
        """Return what would be emitted; it does not change when `accumulator` is folded on."""

    def merge(self, older: Any, newer: Any) -> Any:
        """Return the accumulator of two sessions that become one. Raises RecordFailed as `fold` does.

        Args:
            older: The session with the earlier records; None: it has no value.
            newer: The later one.
        """

    def copy(self, accumulator: Any) -> Any:
        """Return the same accumulator, which does not change when the first one is folded on."""

    def mark(self, accumulator: Any) -> Any:
        """Return what `undo` needs, in constant time, however large the accumulator is."""

    def undo(self, mark: Any) -> Any:
        """Return the accumulator as it was when the mark was made."""

    def restore(self, row: int) -> tuple[Any, Any]:
        """Return (accumulator, last output) of a state row.

        Args:
            row: A state row.
        """

    def field(self, name: str) -> Callable[[Any], Any]:
        """Return a function that reads one column of an output.

        Args:
            name: A column that the stage emits.
        """

    def type_of(self, name: str) -> pa.DataType:
        """Return the type of one column of an output."""

    def size(self, accumulator: Any) -> int:
        """Return the bytes (UTF-8) of the accumulator, as the JSON text that would be emitted; 0 for None."""

    def event_size(self, row: int) -> int:
        """Return the bytes (UTF-8) of the row's own value as JSON text."""

    def accumulator_array(self, accumulators: Sequence[Any]) -> pa.Array:
        """Return accumulators as the column `accumulator` of state rows, of the type
        `Reduce.accumulator_type`.

        Args:
            accumulators: References; None becomes null.
        """

    def output_array(self, outputs: Sequence[Any]) -> pa.Array:
        """Return outputs as a column `value` or `emitted`, of the type `Reduce.output_type`.

        Args:
            outputs: References; None becomes null.
        """


class Contents(Protocol):
    """The contents of buffers of consecutive rows of a key, on whole columns.

    A buffer is the rows from `first` to before `end`, all of one key; arguments have one element per buffer.
    """

    def timestamps(self, first: Ints, end: Ints) -> Ints:
        """Return the timestamps of buffers, in epoch ms.

        Args:
            first: The first row of each buffer.
            end: The row after its last.
        """

    def values(self, first: Ints, end: Ints) -> pa.Array:
        """Return the values of buffers; null for a deletion.

        Args:
            first: The first row of each buffer.
            end: The row after its last.
        """

    def sizes(self, values: pa.Array) -> Ints:
        """Return the bytes of each value's JSON text; 0 for null."""


class RowValues:
    """Values of which each is a row's own: an accumulator is the number of a row, and never changes."""

    null: Sequence[bool]
    """Per row, whether its value is null."""

    def fold(self, accumulator: Any, row: int) -> Any:
        return None if self.null[row] else row

    def merge(self, older: Any, newer: Any) -> Any:
        return older if newer is None else newer

    def copy(self, accumulator: Any) -> Any:
        return accumulator

    def mark(self, accumulator: Any) -> Any:
        return accumulator

    def undo(self, mark: Any) -> Any:
        return mark


class Reduce:
    """A way to fold records into a value: settings, from which `bind` makes `Values` for each Arrow batch."""

    word: ClassVar[str] = ""
    """Its name in a file; empty for aggregates, which a file lists by name."""
    newest_only: ClassVar[bool] = False
    """Whether the value is the newest record's own."""
    lists_events: ClassVar[bool] = False
    """Whether the value is the list of the records since the last flush."""

    @property
    def by_name(self) -> Mapping[str, Aggregate]:
        """The aggregates that the value is made of, by the name of their column; empty for other values."""
        return {}

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """The emitted columns that are computed from the aggregates; empty if they are the aggregates."""
        return ()

    @property
    def functions(self) -> Mapping[str, str | None]:
        """The user's classes that it calls -> the digest of their source; None before they are planned."""
        return {}

    def with_digests(self) -> Reduce:
        """Return the reduce with the present digests of its classes.

        Raises UserFunctionFailed if one cannot be imported.
        """
        return self

    @property
    def description(self) -> str | list[str]:
        """The way to fold, for a message that compares two of them."""
        return self.word

    def computed(self, select: Mapping[str, str]) -> Mapping[str, str]:
        """Return name -> SQL that Spark computes for each record.

        Args:
            select: The selected columns of the stage; empty for aggregates, which have arguments.
        """
        return select

    def emitted(self, computed: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of the emitted columns, by those that `computed` returned."""
        return tuple(computed)

    def column_types(self, column: pa.Field) -> tuple[pa.DataType, ...]:
        """Return the types in which state has a column, the type of its emissions last.

        Args:
            column: The column as `computed` names it, with the type that Spark gives it.
        """
        return (column.type,)

    @property
    def takes_nulls(self) -> bool:
        """Whether a null value deletes; otherwise it is ignored."""
        return False

    def accumulator_type(self, value: pa.DataType) -> pa.DataType:
        """Return the type of the column `accumulator`, for records with these columns.

        Args:
            value: The type of the records' columns.
        """
        raise NotImplementedError

    def output_type(self, value: pa.DataType) -> pa.DataType:
        """Return the type of emissions.

        Args:
            value: The type of the records' columns.
        """
        raise NotImplementedError

    def shown(self, state: pa.Table) -> pa.Table:
        """Return state rows as people read them.

        Args:
            state: The rows as files have them, with a column `value`.
        """
        return state

    def bind(self, rows: pa.RecordBatch) -> Values:
        """Return the values of these rows.

        Args:
            rows: Rows of the kernel; row numbers refer to them.
        """
        raise NotImplementedError

    # on whole columns

    def contents(self, keys: Keys) -> Contents:
        """Return the contents of buffers, for a reduce whose values strategies hold back on columns.

        Args:
            keys: The rows of which buffers are made.
        """
        raise NotImplementedError

    def runs_on_columns(self, value: pa.StructType) -> bool:
        """Return whether `running` is exact for records with these columns, and cannot fail.

        Args:
            value: The type of the records' columns.
        """
        return False

    def may_overflow(self, keys: Keys) -> Mask:
        """Return the rows of keys whose results may be too large, so that they go record by record."""
        raise NotImplementedError

    def running(self, keys: Keys, type_: pa.StructType) -> pa.StructArray:
        """Return the result after each row, as structs of `type_`.

        Args:
            keys: Keys without rows that `may_overflow` marks.
            type_: The type of the results.
        """
        raise NotImplementedError
