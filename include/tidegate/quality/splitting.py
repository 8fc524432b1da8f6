"""How a metric over all rows is computed from parts of the rows, and the parts as pandas DataFrames.

An expectation uses metrics of Great Expectations, each with a name. If a metric counts the rows that break a
condition on a row's own values, the counts of parts can be added, for any parts. If the condition depends on
which values exist, such as uniqueness, counts can be added if all rows with the same value are in one part.
All other metrics need their columns as a whole.

The columns of all parts have the types that the whole table would have. In pandas, a column of integers with
a null is a column of doubles, and a boolean column with a null is a column of objects. So the nulls of all
parts must be counted before the first part is made.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.quality.audit import AuditedRows
from tidegate.quality.expectations import as_column_type
from tidegate.quality.verdict import MOST_FAILING_ROWS

_ROW_CONDITIONS = frozenset(
    f"column_values.{name}"
    for name in (
        *("nonnull", "null", "between", "in_set", "not_in_set", "of_type", "in_type_list"),
        *("match_regex", "match_regex_list", "not_match_regex", "not_match_regex_list"),
        *("match_like_pattern", "match_like_pattern_list"),
        *("not_match_like_pattern", "not_match_like_pattern_list"),
        *("value_length.between", "value_length.equals", "dateutil_parseable", "json_parseable"),
        *("match_json_schema", "match_strftime_format"),
    )
) | {
    *("column_pair_values.a_greater_than_b", "column_pair_values.equal", "column_pair_values.in_set"),
    *("multicolumn_sum.equal", "multicolumn_values.equal", "select_column_values.unique.within_record"),
}
_VALUE_CONDITIONS = frozenset({"column_values.unique", "compound_columns.unique"})
_SAME_IN_ALL = frozenset({"table.columns", "table.column_count", "table.column_types"})
COUNTS = (".unexpected_count", ".filtered_row_count")
SAMPLES = (".unexpected_values", ".unexpected_index_list")
UNUSED = ".unexpected_index_query"
_ADDED = "table.row_count"
PART_ROWS = 100_000
"""The number of rows in memory at a time, approximately."""
_MOST_FILES = 256
"""The number of files that are written at once. Systems allow a process 1,024 open files."""


class Split(Enum):
    """The ways in which rows may be split, the finest first."""

    ROWS = "in parts"
    VALUES = "in parts by value"
    WHOLE = "as a whole, of its own columns"


@dataclass(frozen=True)
class Aggregate:
    """A metric of a column that is computed from parts of the column.

    Args:
        split: The parts that are allowed.
        compute: (values of a part without nulls, its rows with nulls, the expectation's set of values) -> a
            partial.
        join: (partial, partial) -> their partial.
        value: partial -> the metric.

    Example::

        rule = aggregate("column.max")
        rule.value(rule.join(rule.compute(first, 3, ()), rule.compute(second, 4, ())))
    """

    split: Split
    compute: Callable[[pd.Series[Any], int, Sequence[Any]], Any]
    join: Callable[[Any, Any], Any]
    value: Callable[[Any], Any] = lambda partial: partial


def _added(left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(first + second for first, second in zip(left, right, strict=True))


def _share(partial: tuple[int, int]) -> float:
    part, whole = partial
    return part / whole if whole else 0


def _outside(values: pd.Series[Any], _rows: int, expected: Sequence[Any]) -> tuple[int, list[Any]]:
    distinct = set(values.unique())
    return _counted(distinct - as_column_type(distinct, list(expected)))


def _missing(values: pd.Series[Any], _rows: int, expected: Sequence[Any]) -> tuple[bool, set[Any]]:
    """Return whether the part has values, and the expected values that it lacks."""
    distinct = set(values.unique())
    return bool(distinct), set(as_column_type(distinct, list(expected)) - distinct)


def _missing_in_both(left: tuple[bool, set[Any]], right: tuple[bool, set[Any]]) -> tuple[bool, set[Any]]:
    # Values of the column give the expected ones their type, such as that of days. A part without values
    # lacks all of them as the suite writes them, which none of the other's equals.
    if not left[0] or not right[0]:
        return left if left[0] else right
    return True, left[1] & right[1]


def _counted(values: set[Any]) -> tuple[int, list[Any]]:
    """Return the number of values, and the first of them; values of different types are in any order."""
    try:
        ordered = sorted(values)
    except TypeError:
        ordered = list(values)
    return len(values), ordered[:MOST_FAILING_ROWS]


def _most_common(values: pd.Series[Any], *_: Any) -> tuple[int, list[Any]]:
    counts = values.value_counts()
    return (0, []) if counts.empty else (int(counts.iloc[0]), list(counts[counts == counts.iloc[0]].index))


def _more_common(left: tuple[int, list[Any]], right: tuple[int, list[Any]]) -> tuple[int, list[Any]]:
    # all rows of a value are in one part, so equal counts are counts of different values
    if left[0] == right[0]:
        return left[0], left[1] + right[1]
    return max(left, right, key=lambda partial: partial[0])


def _extreme(choose: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def chosen(left: Any, right: Any) -> Any:
        # A part without values has no extreme, and must not hide that of the other.
        if pd.isna(left) or pd.isna(right):
            return right if pd.isna(left) else left
        return choose(left, right)

    return chosen


_AGGREGATES = {
    "column.max": Aggregate(Split.ROWS, lambda values, *_: values.max(), _extreme(max)),
    "column.min": Aggregate(Split.ROWS, lambda values, *_: values.min(), _extreme(min)),
    "column.non_null_proportion": Aggregate(
        Split.ROWS, lambda values, rows, _: (len(values), rows), _added, _share
    ),
    "column.distinct_values.count": Aggregate(
        Split.VALUES, lambda values, *_: values.nunique(), lambda left, right: left + right
    ),
    "column.unique_proportion": Aggregate(
        Split.VALUES, lambda values, *_: (values.nunique(), len(values)), _added, _share
    ),
    "column.most_common_value": Aggregate(
        Split.VALUES, _most_common, _more_common, lambda partial: _counted(set(partial[1]))[1]
    ),
    "column.distinct_values.not_in_set.count": Aggregate(
        Split.VALUES, _outside, _added, lambda partial: partial[0]
    ),
    "column.distinct_values.not_in_set": Aggregate(
        Split.VALUES, _outside, _added, lambda partial: partial[1][:MOST_FAILING_ROWS]
    ),
    "column.distinct_values.missing_from_column.count": Aggregate(
        Split.VALUES, _missing, _missing_in_both, lambda partial: len(partial[1])
    ),
    "column.distinct_values.missing_from_column": Aggregate(
        Split.VALUES, _missing, _missing_in_both, lambda partial: _counted(partial[1])[1]
    ),
}


def aggregate(metric: str) -> Aggregate | None:
    """Return how a metric of a column is computed from parts; None if it cannot be computed in that way."""
    return _AGGREGATES.get(metric)


def split_of(metrics: Iterable[str]) -> Split:
    """Return the finest split that all of these metrics allow."""
    # An expectation of a user without metrics looks at the rows by itself.
    splits = {_split(metric) for metric in metrics} or {Split.WHOLE}
    # The coarsest split that one of them needs is the finest that all of them allow.
    return next(split for split in reversed(Split) if split in splits)


def _split(metric: str) -> Split:
    if metric in _AGGREGATES:
        return _AGGREGATES[metric].split
    if metric == _ADDED or metric in _SAME_IN_ALL:
        return Split.ROWS
    condition = condition_of(metric)
    if condition in _ROW_CONDITIONS:
        return Split.ROWS
    return Split.VALUES if condition in _VALUE_CONDITIONS else Split.WHOLE


def condition_of(metric: str) -> str | None:
    """Return the condition on rows that a metric counts or samples; None for another metric.

    Example::

        condition_of("column_values.nonnull.unexpected_count")  # "column_values.nonnull"
    """
    for suffix in (*COUNTS, *SAMPLES, UNUSED):
        if metric.endswith(suffix):
            return metric.removesuffix(suffix)
    return None


def joined(metric: str, left: Any, right: Any) -> Any:
    """Return the value of a metric that is not an `Aggregate` over two parts together."""
    if metric == _ADDED or metric.endswith(COUNTS):
        return left + right
    if metric.endswith(SAMPLES) and left is not None and right is not None:
        return [*left, *right][:MOST_FAILING_ROWS]
    # of `_SAME_IN_ALL`: any part has the value of the whole
    return left


class Parts:
    """The rows of an audit, in parts of about `most` rows.

    Example::

        parts = Parts(rows)
        for table in parts.split(["key", "quantity"]):
            parts.frame(table)  # a pandas DataFrame of about 100,000 rows
    """

    def __init__(self, rows: AuditedRows, most: int = PART_ROWS) -> None:
        self.rows = rows
        self.most = most
        self.number = rows.most_rows
        self._nullable: dict[str, bool] = {}

    @property
    def is_one(self) -> bool:
        """Whether all rows are one part; nothing is read to find out."""
        return self.number <= self.most

    @cached_property
    def untyped(self) -> pd.DataFrame:
        """A table without rows, whose columns may have other types than in the parts."""
        frame: pd.DataFrame = self.rows.schema.empty_table().to_pandas()
        return frame

    @cached_property
    def typed(self) -> pd.DataFrame:
        """A table whose columns have the types that they have in the parts.

        It has all rows if they are one part, else none.
        """
        return self.whole() if self.is_one else self.frame(self.rows.schema.empty_table())

    def existing(self, columns: Sequence[str] | None) -> list[str]:
        """Return the columns that the rows have.

        Args:
            columns: Only these; None: all.
        """
        names: list[str] = self.rows.schema.names
        return names if columns is None else [name for name in columns if name in names]

    def whole(self, columns: Sequence[str] | None = None, decimals_as_floats: bool = False) -> pd.DataFrame:
        """Return all rows in one DataFrame.

        Args:
            columns: Read only these columns; None reads all.
            decimals_as_floats: Convert decimals to the doubles that Great Expectations computes with.
        """
        if self.is_one and not decimals_as_floats:
            return self.frame(self.rows.table(self.existing(columns)))
        names = self.existing(columns)
        frame: pd.DataFrame = pd.DataFrame({name: self._column(name, decimals_as_floats) for name in names})
        return frame

    def by_value(self, columns: Sequence[str], value_columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Yield all rows so that rows with equal values in `value_columns` are in one part.

        The rows are written to temporary files in between. If a few values have most of the rows, or there
        are very many rows, a part has more rows than it should have. Such a part contains only
        `value_columns`, to save memory.

        Args:
            columns: The columns of the parts.
            value_columns: The columns whose values decide the part.

        Raises TypeError if a value cannot be hashed, such as a list.
        """
        parts = min(max(1, -(-self.number // self.most)), _MOST_FILES)
        schema = pa.schema([self.rows.schema.field(name) for name in columns])
        with tempfile.TemporaryDirectory(prefix="tidegate-quality-") as folder, ExitStack() as open_files:
            paths = [Path(folder, f"{part}.arrow") for part in range(parts)]
            writers = [open_files.enter_context(pa.ipc.new_file(str(path), schema)) for path in paths]
            for table in self.split(columns):
                # Equal values have equal hashes, so they meet in one part, whichever row group they are in.
                places = pa.array(_hashes(self.frame(table.select(list(value_columns)))) % parts)
                for part, writer in enumerate(writers):
                    rows = table.filter(pc.equal(places, part))
                    writer.write_table(rows)
            # an Arrow file can be read only after its footer is written
            open_files.close()
            for path in paths:
                with pa.OSFile(str(path)) as file:
                    table = pa.ipc.open_file(file).read_all()
                is_large = table.num_rows > 2 * self.most
                yield self.frame(table.select(list(value_columns)) if is_large else table)

    def at(self, positions: Sequence[int], columns: Sequence[str]) -> list[dict[str, object]]:
        """Return some columns of the rows at these positions, counted from 0 over all files."""
        rows: dict[int, dict[str, object]] = {}
        first = 0
        for table in self.rows.parts(columns):
            in_table = [position for position in positions if first <= position < first + table.num_rows]
            for position in in_table:
                (rows[position],) = table.slice(position - first, 1).to_pylist()
            first += table.num_rows
        return [rows[position] for position in positions if position in rows]

    def split(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        """Yield all rows, in order, in parts: row groups are joined or cut until they have enough rows.

        Args:
            columns: Read only these columns; None reads all.
        """
        names = self.existing(columns)
        # without rows, there is one part that says which columns there are
        gathered = [pa.schema([self.rows.schema.field(name) for name in names]).empty_table()]
        for table in self.rows.parts(names):
            for first in range(0, table.num_rows, self.most):
                gathered.append(table.slice(first, self.most))
                if sum(part.num_rows for part in gathered) >= self.most:
                    yield pa.concat_tables(gathered)
                    gathered = []
        if gathered:
            yield pa.concat_tables(gathered)

    def _column(self, name: str, decimals_as_floats: bool) -> pd.Series[Any]:
        as_floats = decimals_as_floats and pa.types.is_decimal(self.rows.schema.field(name).type)
        parts = []
        for table in self.split([name]):
            part = self.frame(table)[name]
            parts.append(part.astype(np.float64) if as_floats else part)
        return pd.concat(parts, ignore_index=True) if parts else self.untyped[name]

    def _find_nulls(self, columns: Sequence[str]) -> None:
        names = [
            name
            for name in columns
            if name not in self._nullable and _depends_on_nulls(self.rows.schema.field(name).type)
        ]
        if not names:
            return
        nulls = dict.fromkeys(names, 0)
        for table in self.rows.parts(names):
            for name in names:
                nulls[name] += table[name].null_count
        self._nullable |= {name: number > 0 for name, number in nulls.items()}

    def frame(self, table: pa.Table) -> pd.DataFrame:
        """Return a part as a DataFrame, in the types that it would have beside all other parts."""
        if not self.is_one:
            self._find_nulls(table.column_names)
        frame: pd.DataFrame = table.to_pandas()
        for name in table.column_names:
            # The part has no null, but the whole has: pandas would give this part another type.
            if self._nullable.get(name) and not table[name].null_count:
                is_boolean = pa.types.is_boolean(table.schema.field(name).type)
                frame[name] = frame[name].astype(object if is_boolean else np.float64)
        return frame


def _depends_on_nulls(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_boolean(type_))


def _hashes(frame: pd.DataFrame) -> npt.NDArray[np.uint64]:
    """Return a hash of each row; equal rows have equal hashes."""
    for name in frame.columns:
        if pd.api.types.is_float_dtype(frame[name]):
            frame[name] = (
                frame[name] + 0.0
            )  # makes -0.0 to 0.0: pandas compares them as equal, but hashes the bits
    hashes: npt.NDArray[np.uint64] = pd.util.hash_pandas_object(
        frame, index=False, categorize=False
    ).to_numpy()
    return hashes
