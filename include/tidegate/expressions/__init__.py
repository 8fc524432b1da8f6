"""SQL expressions that tidegate evaluates itself, with Spark's own results: nulls, NaN and number types as
under ANSI mode.

A condition (`where`, `equal: {sql: …}`) is tested between records, where Spark cannot evaluate it. A selected
column is computed where its record is read, which saves the way through Spark. `model` checks the text and
makes the tree; `rows` describes the tree's form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import ConditionFailed
from tidegate.expressions.columns import column_of, typed_column
from tidegate.expressions.rows import Part, Tree, compiled
from tidegate.expressions.values import Unfit

__all__ = ["Condition", "Expression", "RowUnfit", "Tree"]


@dataclass(frozen=True)
class Condition:
    """A condition: `text` as the user wrote it, for messages, and its meaning `tree`.

    Example: `Condition("total > 0", (">", ("column", "total"), ("literal", 0))).evaluate({"total": 1})` is
    True.
    """

    text: str
    tree: Tree

    @cached_property
    def _root(self) -> Part:
        return compiled(self.tree)

    def evaluate(self, row: Mapping[str, Any]) -> bool | None:
        """Return True, False or null for a row, a mapping of columns in which structs are mappings.

        Raises ConditionFailed if there is no result, such as after a division by zero, or it is no boolean.
        """
        try:
            result = self._root(row)
        except Unfit as unfit:
            raise ConditionFailed(f"`{self.text}` has no result: {unfit.what}", unfit.fix) from None
        if result is None or result is True or result is False:
            return result
        what = f"`{self.text}` gives {result!r}, which is neither true nor false"
        raise ConditionFailed(what, "Write a comparison, such as `total > 0`.")

    def of_rows(self, rows: pa.StructArray) -> list[bool | None] | None:
        """Return the results for all rows, computed by Arrow; None if they must be evaluated one by one.

        Args:
            rows: One struct per row; the result for a null struct means nothing.
        """
        column = self.column(rows)
        return None if column is None else column.to_pylist()

    def column(self, rows: pa.StructArray) -> pa.BooleanArray | None:
        """Return the results for all rows as `of_rows` does, as an array of Arrow."""
        column = column_of(self.tree, rows)
        return column if column is not None and pa.types.is_boolean(column.type) else None

    def __reduce__(self) -> tuple[type[Condition], tuple[str, Tree]]:
        # pickle only the tree: the compiled lambdas cannot be pickled
        return Condition, (self.text, self.tree)


@dataclass(frozen=True)
class RowUnfit:
    """An expression has no result for the row with the number `row`: `what` happened, and the `fix`."""

    row: int
    what: str
    fix: str


@dataclass(frozen=True)
class Expression:
    """A column that is computed from a record: `text` as the user wrote it, its meaning `tree`, and its
    `type` in Spark's form.

    Example: `Expression("n > 0", (">", ("column", "n"), ("literal", 0)), "boolean")`.
    """

    text: str
    tree: Tree
    type: str

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns that it names."""
        return frozenset(_columns(self.tree))

    def of_rows(self, rows: pa.StructArray, type_: pa.DataType) -> tuple[pa.Array, list[RowUnfit]]:
        """Return the values for all rows, and the rows that have none, for which the value is null.

        Args:
            rows: One struct per record; none is null.
            type_: `type` as Arrow has it.
        """
        column = typed_column(self.tree, rows, type_)
        return self._row_by_row(rows, type_) if column is None else (column, [])

    def rejected(
        self, rows: pa.RecordBatch, tested: pa.BooleanArray
    ) -> tuple[pa.BooleanArray, list[RowUnfit]]:
        """Return which of the tested rows do not fulfil the expression, a condition; False for the others.

        Also return the tested rows for which there is no result.
        """
        fulfilled, unfit = self.of_rows(rows.filter(tested).to_struct_array(), pa.bool_())
        if unfit:
            places = pc.indices_nonzero(tested)
            unfit = [RowUnfit(places[failure.row].as_py(), failure.what, failure.fix) for failure in unfit]
        rejected = pc.replace_with_mask(
            pa.repeat(False, rows.num_rows), tested, pc.invert(pc.fill_null(fulfilled, False))
        )
        return rejected, unfit

    def _row_by_row(self, rows: pa.StructArray, type_: pa.DataType) -> tuple[pa.Array, list[RowUnfit]]:
        compute = compiled(self.tree)
        values, failures = [], []
        for number, row in enumerate(rows.to_pylist()):
            try:
                values.append(compute(row))
            except Unfit as unfit:
                values.append(None)
                failures.append(RowUnfit(number, f"`{self.text}` has no result: {unfit.what}", unfit.fix))
        return pa.array(values, type_), failures


def _columns(tree: Tree) -> Iterator[str]:
    operation, *operands = tree
    if operation == "column":
        yield operands[0]
    elif operation != "literal":
        for operand in operands:
            # also of the pairs of `case`, whose first part is a tree and no operation
            if isinstance(operand, tuple):
                yield from _columns(operand if isinstance(operand[0], str) else ("case", *operand))
