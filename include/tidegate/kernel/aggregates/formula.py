"""Columns that are computed from aggregates, such as `sum(price) / count(*)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.errors import ConditionFailed, RecordFailed
from tidegate.expressions.arrow import arrow_type, type_of
from tidegate.expressions.rows import Tree, compiled
from tidegate.expressions.types import NULL, Typed
from tidegate.expressions.typing import typed_expression
from tidegate.expressions.values import Unfit

Results = tuple[Any, ...]


@dataclass(frozen=True)
class Formula:
    """An emitted column: `text` as the user wrote it, and its meaning `tree`, an expression over the results
    of aggregates by their names.

    Example: `Formula("mean", "sum(x) / 2", ("/", ("column", "_sum_1a2b3c4d"), ("literal", 2)))`.
    """

    name: str
    text: str
    tree: Tree

    def typed(self, results: pa.StructType) -> Typed:
        """Return the expression with the conversions that the types of the aggregates' results need.

        Raises ConditionFailed if the types do not fit the expression.
        """
        columns = {field.name: type_of(field.type) for field in results}
        typed, mistakes = typed_expression(self.tree, columns, {})
        if mistakes:
            raise ConditionFailed(f"`{self.name}: {self.text}`: {mistakes[0].message}", mistakes[0].fix)
        return typed

    def type(self, results: pa.StructType) -> pa.DataType:
        """Return the type of its results; Arrow's null if it is unknown."""
        type_ = self.typed(results).type
        return pa.null() if type_ is None or type_ == NULL or not type_.is_known else arrow_type(type_)


def computation(formulas: Sequence[Formula], results: pa.StructType) -> Callable[[Results], Results]:
    """Return the function that computes all formulas from the results of the aggregates, in their order.

    The function raises RecordFailed if a formula has no result.

    Args:
        formulas: The emitted columns.
        results: The names and types of the aggregates' results.
    """
    names = results.names
    parts = [(formula, compiled(formula.typed(results).tree)) for formula in formulas]

    def compute(values: Results) -> Results:
        row = dict(zip(names, values, strict=True))
        computed = []
        for formula, part in parts:
            try:
                computed.append(part(row))
            except Unfit as unfit:
                what = f"`{formula.name}: {formula.text}` has no result: {unfit.what}"
                raise RecordFailed(what, unfit.fix) from None
        return tuple(computed)

    return compute
