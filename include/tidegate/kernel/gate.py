"""Expectations about single rows, which an output must meet to be emitted.

They have the names and the meaning of Great Expectations over a pandas frame: a null is ignored, except by
expectations about nulls, and a NaN counts as null; numbers are compared as in Python, a decimal exactly, also
with a double; a pattern is one of `re`, found anywhere in a text. `where` has Spark's meaning instead
(`expressions`), so expectations are not conditions.

`model.row_expectations` lists the supported ones, and checks their types.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import ConditionFailed
from tidegate.expressions import Tree
from tidegate.expressions.rows import KEY, Part, Row, compiled
from tidegate.expressions.values import Unfit
from tidegate.kernel.counts import Counts
from tidegate.kernel.equivalence import Exact
from tidegate.kernel.reduce import Values
from tidegate.kernel.rows import RECORD, REFUSED, fill
from tidegate.kernel.state import NEVER, Entry
from tidegate.kernel.strategy import Marker, Sameness

if TYPE_CHECKING:
    from tidegate.kernel.stage import Stage

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
    def test(self) -> Test:
        """The test of values that are not missing."""
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
        return not absent and self.test(*values)

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


class Gate:
    """A stage's conditions, bound to the values of one Arrow batch. `hashed`: the stage stores hashes.

    Args:
        values: The values to which the stage's reduce is bound.
        output: The type of emissions.
    """

    def __init__(self, stage: Stage, values: Values, output: pa.StructType) -> None:
        self.hashed = stage.remembers_hashes
        self._emit = stage.emit
        self._window = stage.window
        self._digest: Marker | None = None
        self.same: Sameness | None = None
        if self.hashed:
            self._digest = stage.emit.marker(values)
            self.same = self._repeats
        else:
            self.same = stage.emit.compare(values)
        if stage.window is not None and stage.window.accumulates and stage.emit.is_final:
            self.same = Exact().bind(values, tuple(field.name for field in output))
        self._where = stage.where
        # A condition on values that are in Arrow is computed for all of them at once, if Arrow can.
        self._verdicts: list[bool | None] | None = None
        if stage.where is not None and values.pool is not None:
            self._verdicts = stage.where.of_rows(values.pool)
        self._expectations = stage.expectations
        self._values = values
        self._names = [field.name for field in output]
        self._fields: list[tuple[str, Callable[[Any], Any]]] = []
        if stage.where is not None:
            self._fields = self._readers(self._names)
        self._expected: list[tuple[str, Callable[[Any], Any]]] = []
        if stage.expectations:
            # only these columns: reading one makes a Python object per value
            expected = {name for expectation in stage.expectations for name in expectation.columns}
            self._expected = self._readers([name for name in self._names if name in expected])

    def _readers(self, names: Sequence[str]) -> list[tuple[str, Callable[[Any], Any]]]:
        return [(name, self._values.field(name)) for name in names]

    def passes(self, entry: Entry, output: Any) -> bool:
        """Return whether `where` is true of an output, and of its entry's key and window; null is not true.

        Deletions always pass: consumers have the values that they delete. Raises ConditionFailed if there is
        no result.

        Args:
            output: A reference of the reduce; None is a deletion.
        """
        if self._where is None or output is None:
            return True
        if self._verdicts is not None:
            return self._verdicts[output] is True
        return self._where.evaluate(_row(self._fields, entry, output)) is True

    def refusal(self, entry: Entry, output: Any) -> str | None:
        """Return the labels of the expectations that an output breaks; None if it may be emitted, as
        deletions may.

        Raises ConditionFailed if the key cannot be read.
        """
        if not self._expectations or output is None:
            return None
        try:
            return refusal(self._expectations, _row(self._expected, entry, output))
        except Unfit as unfit:
            raise ConditionFailed(f"An expectation has no result: {unfit.what}", unfit.fix) from None

    def described(self, entry: Entry) -> dict[str, Any]:
        """Return an entry's state for people: its window, its last emission, the number of records that it
        holds back, when its timer is due, and when its time to live is over (epoch ms); without what it does
        not have.

        Example: an entry that waits gives `{"held": 2, "due": 1700000000000}`.
        """
        emitted = entry.emitted
        if emitted is not None and not self.hashed:
            emitted = self.described_output(emitted)
        last = {} if emitted is None else self._emit.described(emitted)
        description = {**self.described_window(entry), **last, "held": entry.pending or None}
        if entry.due != NEVER:
            description["due"] = entry.due
        if entry.expires_at is not None:
            description["expires"] = entry.expires_at
        return {name: value for name, value in description.items() if value is not None}

    def described_output(self, output: Any) -> Mapping[str, Any] | None:
        """Return the columns of an output for people; None for a deletion."""
        return None if output is None else {name: read(output) for name, read in self._readers(self._names)}

    def described_window(self, entry: Entry) -> Mapping[str, Any]:
        """Return the window of an entry for people, by `window`; nothing without a window."""
        if self._window is None or entry.window is None:
            return {}
        return self._window.described(entry.window)

    def remembered(self, output: Any, timestamp: int) -> Any:
        """Return what is stored of an emitted output.

        Args:
            output: The emitted output; None is a deletion.
            timestamp: Its timestamp, in epoch ms.
        """
        return output if self._digest is None or output is None else self._digest(output, timestamp)

    def _repeats(self, last: Any, now: Any, last_ms: int, now_ms: int) -> bool:
        assert self._digest is not None
        return self._emit.repeats(last, self._digest(now, now_ms))


def _row(fields: Sequence[tuple[str, Callable[[Any], Any]]], entry: Entry, output: Any) -> dict[str, Any]:
    """Return the row for conditions and expectations: an output's columns, its key and window."""
    row = {name: read(output) for name, read in fields}
    row[KEY] = entry.key
    if entry.window is not None:
        row["window_start"], row["window_end"] = entry.window
    return row


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
