"""Expectations about single rows, which an output must meet to be emitted.

They have the names and the meaning of Great Expectations over a pandas frame: a null is ignored, except by
expectations about nulls, and a NaN counts as null; numbers are compared as in Python, a decimal exactly, also
with a double; a pattern is one of `re`, found anywhere in a text. `where` has Spark's meaning instead
(`expressions`), so expectations are not conditions.

`spec.row_expectations` lists the supported ones, and checks their types.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tidegate.expressions import Tree
from tidegate.expressions.rows import Part, Row, compiled

Options = Mapping[str, Any]
Test = Callable[..., bool]
"""Returns whether a value, or a pair of values, none of which is missing, is as expected."""


@dataclass(frozen=True)
class RowExpectation:
    """An expectation about one column, or about two.

    `type` and `options` have the names of Great Expectations. `leaves` has the tree that reads each column
    from a row (`expressions.rows`); without leaves, all columns are columns of the value.

    Example: `RowExpectation("expect_column_values_to_not_be_null", ("price",))`.
    """

    type: str
    columns: tuple[str, ...]
    options: Options = field(default_factory=dict)
    leaves: tuple[Tree, ...] = ()

    @property
    def label(self) -> str:
        """The name for people, such as `expect_column_values_to_not_be_null(price)`."""
        return f"{self.type}({', '.join(self.columns)})"

    @cached_property
    def _test(self) -> Test:
        return TESTS[self.type](self.options)

    @property
    def trees(self) -> tuple[Tree, ...]:
        """The trees that read its columns from a row."""
        return self.leaves or tuple(("column", name) for name in self.columns)

    @cached_property
    def _parts(self) -> tuple[Part, ...]:
        return tuple(map(compiled, self.trees))

    def values(self, row: Row) -> list[Any]:
        """Return the values of its columns. Raises `expressions.values.Unfit` if a key's text has none."""
        return [read(row) for read in self._parts]

    def accepts(self, *values: Any) -> bool:
        """Return whether values of its columns are as expected."""
        if self.type in NULL_TESTS:
            return missing(values[0]) is NULL_TESTS[self.type]
        absent = [*map(missing, values)].count(True)
        if absent == len(values) or (absent and self.options.get("ignore_row_if") == EITHER_MISSING):
            return True
        return not absent and self._test(*values)

    def __reduce__(self) -> tuple[Any, ...]:
        # pickle only the settings: the compiled lambdas cannot be pickled
        return RowExpectation, (self.type, self.columns, self.options, self.leaves)


def refusal(expectations: Iterable[RowExpectation], row: Row) -> str | None:
    """Return the labels of the expectations that a row breaks; None if it breaks none.

    Raises `expressions.values.Unfit` if a key's text has no value of the column's type.
    """
    broken = [
        expectation.label for expectation in expectations if not expectation.accepts(*expectation.values(row))
    ]
    return ", ".join(broken) or None


def missing(value: Any) -> bool:
    """Return whether a value is null, or NaN, which pandas counts as null.

    Example: it is True for None and NaN, and False for 0 and an empty text.
    """
    return value is None or (isinstance(value, float) and math.isnan(value))


def _between(options: Options) -> Test:
    low, high = options.get("min_value"), options.get("max_value")
    above = operator.gt if options.get("strict_min") else operator.ge
    below = operator.lt if options.get("strict_max") else operator.le
    return lambda value: (low is None or above(value, low)) and (high is None or below(value, high))


def _lengths_between(options: Options) -> Test:
    between = _between(options)
    return lambda value: between(len(value))


def _in_set(options: Options) -> Test:
    # found in constant time; as in Python, 1 and 1.0 are equal
    return frozenset(options["value_set"]).__contains__


def _matches(options: Options) -> Test:
    search = re.compile(options["regex"]).search
    return lambda value: search(value) is not None


def _not(test: Callable[[Options], Test]) -> Callable[[Options], Test]:
    def build(options: Options) -> Test:
        opposite = test(options)
        return lambda value: not opposite(value)

    return build


def _greater(options: Options) -> Test:
    return operator.ge if options.get("or_equal") else operator.gt


NULL_TESTS = {"expect_column_values_to_be_null": True, "expect_column_values_to_not_be_null": False}
"""Expectations about nulls -> whether the value must be null."""

EITHER_MISSING = "either_value_is_missing"
"""The `ignore_row_if` of a pair that ignores it if one value is missing; otherwise both must be missing."""

TESTS: dict[str, Callable[[Options], Test]] = {
    "expect_column_values_to_be_between": _between,
    "expect_column_values_to_be_in_set": _in_set,
    "expect_column_values_to_not_be_in_set": _not(_in_set),
    "expect_column_values_to_match_regex": _matches,
    "expect_column_values_to_not_match_regex": _not(_matches),
    "expect_column_value_lengths_to_be_between": _lengths_between,
    "expect_column_value_lengths_to_equal": lambda options: lambda value: len(value) == options["value"],
    "expect_column_pair_values_to_be_equal": lambda options: operator.eq,
    "expect_column_pair_values_a_to_be_greater_than_b": _greater,
}
"""The other expectations."""
