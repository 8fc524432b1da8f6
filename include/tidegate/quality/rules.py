"""Measure expectations about single rows on Arrow columns, as far as no row has to be shown.

Great Expectations looks at each row as a Python object. Most columns have few distinct values, and most rows
are as expected: then all metrics are counts of rows and of nulls. The rules are those that refuse rows for
`on_failure: quarantine`; a property test holds them against the library, row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.expressions.arrow import type_of
from tidegate.kernel import RowExpectation
from tidegate.kernel.gate import NULL_TESTS
from tidegate.model.row_expectations import exact_expectation
from tidegate.quality.splitting import COUNTS, SAMPLES, UNUSED

_ROWS, _NULLS = "table.row_count", "column_values.nonnull.unexpected_count"
_LARGEST_EXACT = 2**53
"""pandas stores integers beside a null as doubles, which are exact up to this number."""
_EXTREMES = frozenset({"expect_column_values_to_be_between"})
_LENGTHS = frozenset({"expect_column_value_lengths_to_be_between", "expect_column_value_lengths_to_equal"})


@dataclass(frozen=True)
class RowRule:
    """An expectation about the values of one column, or about the number of rows only.

    Example::

        rule = RowRule.from_suite("expect_column_values_to_not_be_null", {"column": "n"}, schema)
        rule.metrics(names, pa.table({"n": [1, 2]}), with_samples=True)  # no row is unexpected
    """

    expectation: RowExpectation | None = None

    @classmethod
    def from_suite(cls, type_: str, kwargs: Mapping[str, Any], schema: pa.Schema) -> RowRule | None:
        """Return the rule of an expectation; None if it has none that is exactly that of the library."""
        if type_.startswith("expect_table_row_count_to_"):
            return cls()
        columns = {field.name: type_of(field.type) for field in schema}
        expectation = exact_expectation(type_, kwargs, columns)
        if expectation is None or len(expectation.columns) > 1:
            return None
        stored = schema.field(expectation.columns[0]).type
        # doubles of 32 bits are rounded when they are compared, and nested values have no hash
        is_inexact = pa.types.is_float32(stored) or pa.types.is_nested(stored)
        return None if is_inexact and expectation.type not in NULL_TESTS else cls(expectation)

    def metrics(self, names: Iterable[str], rows: pa.Table, with_samples: bool) -> dict[str, Any] | None:
        """Return metrics of a part: name -> value. None if Great Expectations has to compute them.

        Args:
            names: The metrics that the expectation needs.
            with_samples: Whether rows that break the expectation have to be shown.
        """
        nulls, unexpected = 0, 0
        if self.expectation is not None:
            column = rows[self.expectation.columns[0]]
            present = _present(column)
            nulls = len(column) - len(present)
            broken = self._unexpected(present, nulls)
            if broken is None or (broken and with_samples):
                return None
            unexpected = broken
        metrics: dict[str, Any] = {}
        for name in names:
            if name == _ROWS:
                metrics[name] = rows.num_rows
            elif name == _NULLS:
                metrics[name] = nulls
            elif name.endswith(COUNTS):
                metrics[name] = unexpected
            elif name.endswith(SAMPLES):
                metrics[name] = []
            elif name.endswith(UNUSED):
                metrics[name] = None
            else:
                return None
        return metrics

    def _unexpected(self, present: pa.ChunkedArray, nulls: int) -> int | None:
        """Return how many rows break the expectation; None if that is not known exactly."""
        expectation = self.expectation
        assert expectation is not None, "an expectation about rows"
        if expectation.type in NULL_TESTS:
            return len(present) if NULL_TESTS[expectation.type] else nulls
        if not len(present):
            return 0
        if pa.types.is_integer(present.type):
            least, most = pc.min_max(present).as_py().values()
            if least < -_LARGEST_EXACT or most > _LARGEST_EXACT:
                return None
        if all(map(expectation.test, _witnesses(expectation.type, present))):
            return 0
        values, counts = (column.to_pylist() for column in pc.value_counts(present).flatten())
        broken = (number for value, number in zip(values, counts, strict=True) if not expectation.test(value))
        return sum(map(int, broken))


def _present(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values without nulls, and without NaN, which pandas counts as null."""
    if pa.types.is_floating(column.type):
        column = column.filter(pc.invert(pc.is_null(column, nan_is_null=True)))
    return column.drop_null() if column.null_count else column


def _witnesses(type_: str, values: pa.ChunkedArray) -> Iterable[Any]:
    """Return values that are all as expected only if all values are."""
    if type_ in _EXTREMES:
        return list(pc.min_max(values).as_py().values())
    if type_ in _LENGTHS:
        lengths = pc.utf8_length(values)
        extremes = pc.min_max(lengths).as_py().values()
        return [values[pc.index(lengths, length).as_py()].as_py() for length in extremes]
    distinct: list[Any] = pc.unique(values).to_pylist()
    return distinct
