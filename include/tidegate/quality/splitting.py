"""How a metric over all rows is computed from parts of the rows.

An expectation uses metrics of Great Expectations, each with a name. If a metric counts the rows that break a
condition on a row's own values, the counts of parts can be added, for any parts. If the condition depends on
which values exist, such as uniqueness, counts can be added if all rows with the same value are in one part.
All other metrics need their columns as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pandas as pd

from tidegate.quality.expectations import as_column_type
from tidegate.quality.verdict import MOST_FAILING_ROWS


class Split(Enum):
    """The ways in which rows may be split, the finest first."""

    ROWS = "in parts"
    VALUES = "in parts by value"
    WHOLE = "as a whole, of its own columns"


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
_COUNTS = (".unexpected_count", ".filtered_row_count")
_SAMPLES = (".unexpected_values", ".unexpected_index_list")
_UNUSED = ".unexpected_index_query"
_ADDED = "table.row_count"


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


def _missing(values: pd.Series[Any], _rows: int, expected: Sequence[Any]) -> set[Any]:
    distinct = set(values.unique())
    return set(as_column_type(distinct, list(expected)) - distinct)


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
        Split.VALUES, _missing, set.intersection, len
    ),
    "column.distinct_values.missing_from_column": Aggregate(
        Split.VALUES, _missing, set.intersection, lambda partial: _counted(partial)[1]
    ),
}


def aggregate(metric: str) -> Aggregate | None:
    """Return how a metric of a column is computed from parts; None if it cannot be computed in that way."""
    return _AGGREGATES.get(metric)


def split_of(metrics: Iterable[str]) -> Split:
    """Return the finest split that all of these metrics allow."""
    splits = {_split(metric) for metric in metrics}
    # The coarsest split that one of them needs is the finest that all of them allow.
    return next((split for split in (Split.WHOLE, Split.VALUES) if split in splits), Split.ROWS)


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
    for suffix in (*_COUNTS, *_SAMPLES, _UNUSED):
        if metric.endswith(suffix):
            return metric.removesuffix(suffix)
    return None


def joined(metric: str, left: Any, right: Any) -> Any:
    """Return the value of a metric that is not an `Aggregate` over two parts together."""
    if metric == _ADDED or metric.endswith(_COUNTS):
        return left + right
    if metric.endswith(_SAMPLES) and left is not None and right is not None:
        return [*left, *right][:MOST_FAILING_ROWS]
    # of `_SAME_IN_ALL`: any part has the value of the whole
    return left
