"""Find records whose own values break an expectation, on whole columns: each distinct value is
tested once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import ConditionFailed
from tidegate.expressions import Tree
from tidegate.expressions.rows import KEY, compiled
from tidegate.expressions.values import Unfit
from tidegate.kernel.counts import Counts
from tidegate.kernel.expectation import NULL_TESTS, RowExpectation
from tidegate.kernel.rows import RECORD, REFUSED, fill

_FROM_ROW = ("hash", "key", "topic", "partition", "offset", "timestamp", "source", "value")


def without_refused(
    expectations: Sequence[RowExpectation], schema: pa.Schema, rows: pa.RecordBatch, counts: Counts
) -> tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]:
    """Return the rows whose values may be emitted, with deletions and state; and the refused rows as the
    kernel emits them. Raises ConditionFailed if an expectation has no result.

    Args:
        schema: The kernel's output schema.
        rows: Records and state rows.
        counts: Gets the number of refused values.
    """
    if not expectations:
        return rows, iter(())
    reasons = _refusals(expectations, rows)
    if reasons.null_count == rows.num_rows:
        return rows, iter(())
    is_refused = reasons.is_valid()
    refused = rows.filter(is_refused)
    counts["refused"] += refused.num_rows
    columns = {name: refused.column(name) for name in _FROM_ROW} | {"reason": reasons.drop_null()}
    return rows.filter(reasons.is_null()), iter((fill(schema, REFUSED, columns, refused.num_rows),))


def _refusals(expectations: Sequence[RowExpectation], rows: pa.RecordBatch) -> pa.StringArray:
    """Return per row the labels of the expectations that its value breaks; null if it breaks none."""
    is_value = pc.and_(pc.equal(rows.column("kind"), RECORD), rows.column("value").is_valid())
    reasons = pa.nulls(rows.num_rows, pa.string())
    for expectation in expectations:
        broken = pc.and_(is_value, _breaks(expectation, rows))
        if pc.any(broken).as_py():
            label = expectation.label
            # null joined with a label stays null, and `coalesce` begins the list
            also = pc.binary_join_element_wise(reasons, label, ", ")
            reasons = pc.if_else(broken, pc.coalesce(also, pa.scalar(label)), reasons)
    return reasons


def _breaks(expectation: RowExpectation, rows: pa.RecordBatch) -> pa.BooleanArray:
    # Arrow finds nulls without a Python object per value
    if expectation.type in NULL_TESTS and expectation.trees[0][0] == "column":
        is_missing = _missing(pc.struct_field(rows.column("value"), expectation.trees[0][1]))
        return pc.xor(is_missing, NULL_TESTS[expectation.type])
    columns = [_distinct(tree, rows) for tree in expectation.trees]
    if len(columns) == 1:
        ((values, places),) = columns
        verdicts = pa.array([not expectation.accepts(value) for value in values], pa.bool_())
        return verdicts.take(places)
    pairs = zip(*(map(values.__getitem__, places.to_pylist()) for values, places in columns), strict=True)
    return pa.array([not expectation.accepts(*pair) for pair in pairs], pa.bool_())


def _missing(column: pa.Array) -> pa.BooleanArray:
    if pa.types.is_floating(column.type):
        return pc.is_null(column, nan_is_null=True)
    return column.is_null()


def _distinct(tree: Tree, rows: pa.RecordBatch) -> tuple[list[Any], pa.Int32Array]:
    """Return the distinct values of a column of the value or the key, and per row the place of its value."""
    is_key = tree[0] == "key"
    column = rows.column("key") if is_key else pc.struct_field(rows.column("value"), tree[1])
    # Arrow cannot encode nested values as a dictionary.
    if pa.types.is_nested(column.type):
        return column.to_pylist(), pa.array(range(len(column)), pa.int32())
    encoded = column.dictionary_encode(null_encoding="encode")
    values = encoded.dictionary.to_pylist()
    if not is_key:
        return values, encoded.indices
    try:
        return [*map(compiled(tree), ({KEY: key} for key in values))], encoded.indices
    except Unfit as unfit:
        raise ConditionFailed(f"An expectation has no result: {unfit.what}", unfit.fix) from None
