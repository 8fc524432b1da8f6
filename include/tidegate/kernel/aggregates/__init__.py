"""`reduce: {name: aggregate}`: aggregate functions, one file each, and the reduce that folds several at once.

A file says how its function starts, folds, merges and finishes, its types, and its rule on whole columns. The
grammar, the kernel and the messages find it in `FUNCTIONS`. Null arguments are ignored; `count(*)` has an
argument that never is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib import import_module
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import RecordFailed
from tidegate.kernel.aggregates.formula import Formula, Results, computation
from tidegate.kernel.aggregates.function import BY, CHOSEN, ColumnRule, Function
from tidegate.kernel.aggregates.python import PythonAggregate
from tidegate.kernel.aggregates.retraction import retracting
from tidegate.kernel.columns import Keys
from tidegate.kernel.json_text import encoder
from tidegate.kernel.reduce import Reduce
from tidegate.kernel.rows import REPLACED, TAKES_BACK, Mask

_FILES = (
    *("count", "sum", "min", "max", "avg", "first", "last", "collect_list", "collect_set"),
    *("bool_and", "bool_or", "count_distinct", "max_by", "min_by", "stddev", "variance"),
    *("approx_count_distinct", "median", "percentile", "top"),
)
"""A file contains the function of its name."""

FUNCTIONS: dict[str, Function] = {name: import_module(f"{__name__}.{name}").FUNCTION for name in _FILES}
"""Name in a pipeline file -> function."""

DISTINCT = "count_distinct"
"""The function that a file has as `count(distinct x)`."""


@dataclass(frozen=True)
class Aggregate:
    """An aggregate function over the record column of the same name.

    `argument` is the expression that is computed per record for that column; None for `count(*)`. `by` is the
    one by which the function chooses among the records, if it does; None: the argument itself. `parameter` is
    the constant of functions that have one, `python` the user's class in place of a function.
    """

    name: str
    function: str
    argument: str | None = None
    by: str | None = None
    parameter: int | float | None = None
    python: PythonAggregate | None = None

    @property
    def rule(self) -> Function:
        """The function, with its constant."""
        if self.python is not None:
            return self.python.rule()
        function = FUNCTIONS[self.function]
        if function.parameter is None or self.parameter is None:
            return function
        return function.parameter.rule(self.parameter)

    @property
    def text(self) -> str:
        """The aggregate as a file has it, such as `sum(quantity)`."""
        if self.python is not None:
            return self.python.text
        if self.function == DISTINCT:
            return f"count(distinct {self.argument})"
        parts = (self.argument or "*", self.parameter, self.by)
        return f"{self.function}({', '.join(str(part) for part in parts if part is not None)})"

    @property
    def computed(self) -> str:
        """The SQL of the record column."""
        if self.python is None and FUNCTIONS[self.function].chooses:
            by = self.argument if self.by is None else self.by
            return f"named_struct('{CHOSEN}', {self.argument}, '{BY}', {by})"
        # `count(*)` has no argument; it counts any value that is not null.
        return self.argument or "1"


@dataclass(frozen=True)
class Aggregates(Reduce):
    """Several aggregates over one record's columns, side by side; each ignores null arguments by itself.

    The emitted columns are the `formulas`, computed from the aggregates; without any, the aggregates.
    `members` is the aggregate that counts the rows of a group, for a stage that retracts: without rows there
    is no value.
    """

    aggregates: tuple[Aggregate, ...]
    formulas: tuple[Formula, ...] = ()
    members: str | None = None

    def rule(self, aggregate: Aggregate) -> Function:
        """Return the function of an aggregate, which takes arguments back if the stage retracts."""
        return aggregate.rule if self.members is None else retracting(aggregate.rule)

    @property
    def by_name(self) -> Mapping[str, Aggregate]:
        return {aggregate.name: aggregate for aggregate in self}

    @property
    def description(self) -> list[str]:
        return [f"{column.name}: {column.text}" for column in self.formulas or self.aggregates]

    @property
    def functions(self) -> Mapping[str, str | None]:
        return {part.python.python: part.python.digest for part in self if part.python is not None}

    def with_digests(self) -> Aggregates:
        """Return it with present digests. Raises UserFunctionFailed if a class cannot be imported."""
        return replace(
            self,
            aggregates=tuple(
                part if part.python is None else replace(part, python=part.python.with_digest())
                for part in self
            ),
        )

    def computed(self, select: Mapping[str, str]) -> Mapping[str, str]:
        return {aggregate.name: aggregate.computed for aggregate in self}

    def emitted(self, computed: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of the formulas, or else of the aggregates."""
        return tuple(column.name for column in self.formulas or self.aggregates)

    def column_types(self, column: pa.Field) -> tuple[pa.DataType, ...]:
        function = self.rule(self.by_name[column.name])
        return function.accumulator_type(column), function.result_type(column)

    def accumulator_type(self, value: pa.DataType) -> pa.DataType:
        return pa.struct(
            [
                (aggregate.name, self.rule(aggregate).accumulator_type(value[aggregate.name]))
                for aggregate in self
            ]
        )

    def output_type(self, value: pa.DataType) -> pa.DataType:
        """Return a struct of the emitted columns. Raises ConditionFailed if types do not fit a formula."""
        results = self.result_type(value)
        if not self.formulas:
            return results
        return pa.struct([(formula.name, formula.type(results)) for formula in self.formulas])

    def result_type(self, value: pa.DataType) -> pa.StructType:
        """Return a struct of all results. Raises ConditionFailed if an argument does not fit."""
        return pa.struct([(part.name, part.rule.result_of(part.text, value[part.name])) for part in self])

    def bind(self, rows: pa.RecordBatch) -> AggregateValues:
        return AggregateValues(self, rows)

    def runs_on_columns(self, value: pa.StructType) -> bool:
        """Return whether all functions are exact on columns of these types; formulas go record by record."""
        if self.formulas or self.members is not None:
            return False
        for aggregate in self:
            rule = aggregate.rule.columns
            if rule is None or not rule.suits(value.field(aggregate.name).type):
                return False
        return True

    def may_overflow(self, keys: Keys) -> Mask:
        rows = np.zeros(keys.rows.num_rows, np.bool_)
        for aggregate, rule in self._column_rules():
            if (large := rule.may_overflow(aggregate.name, keys)) is not None:
                rows |= large
        return rows

    def running(self, keys: Keys, type_: pa.StructType) -> pa.StructArray:
        """Return the results after each row; a state row counts as its stored accumulator."""
        columns = [
            rule.running(aggregate.name, keys).cast(type_.field(aggregate.name).type)
            for aggregate, rule in self._column_rules()
        ]
        return pa.StructArray.from_arrays(columns, names=[aggregate.name for aggregate in self])

    def _column_rules(self) -> Iterator[tuple[Aggregate, ColumnRule]]:
        for aggregate in self:
            rule = aggregate.rule.columns
            assert rule is not None, "`runs_on_columns` is asked before"
            yield aggregate, rule

    def __iter__(self) -> Iterator[Aggregate]:
        return iter(self.aggregates)


class AggregateValues:
    """Values by aggregate: an accumulator is a list of their parts, an output a tuple of their results."""

    pool = None

    def __init__(self, aggregates: Aggregates, rows: pa.RecordBatch) -> None:
        value = rows.column("value")
        self._rows = rows
        self._names = [aggregate.name for aggregate in aggregates]
        self._functions = [aggregates.rule(aggregate) for aggregate in aggregates]
        self._accumulator_type = aggregates.accumulator_type(value.type)
        self._output_type = aggregates.output_type(value.type)
        self._emitted = self._output_type.names
        self._compute = None
        if aggregates.formulas:
            self._compute = computation(aggregates.formulas, aggregates.result_type(value.type))
        self._text = encoder(self._output_type)
        self._finished = all(function.is_accumulator_result for function in self._functions)
        self.null = value.is_null().to_pylist()
        columns = [pc.struct_field(value, name).to_pylist() for name in self._names]
        self._members = None if aggregates.members is None else self._names.index(aggregates.members)
        self._columns = columns
        self._changes = [] if self._members is None else rows.column("change").to_pylist()
        self._labels = [f"`{aggregate.name}`, {aggregate.function}(…)," for aggregate in aggregates]
        fits = [f.fits(value.type[name]) for f, name in zip(self._functions, self._names, strict=True)]
        folds = list(enumerate(zip(self._functions, columns, fits, strict=True)))
        self._folds = [(at, function.fold, column) for at, (function, column, test) in folds if test is None]
        self._limited = [
            (at, function.fold, column, test) for at, (function, column, test) in folds if test is not None
        ]

    def fold(self, accumulator: Any, row: int) -> Any:
        """Fold in a record. Raises RecordFailed, with nothing changed, if a number becomes too large."""
        if accumulator is None:
            accumulator = [function.start() for function in self._functions]
        if self._members is not None:
            return self._change(accumulator, row)
        if self._limited:
            self._fold_limited(accumulator, row)
        for at, fold, column in self._folds:
            argument = column[row]
            if argument is not None:
                accumulator[at] = fold(accumulator[at], argument)
        return accumulator

    def _change(self, accumulator: Any, row: int) -> Any:
        """Add the row of a table, or take it back; return None if the group has no rows."""
        change = self._changes[row]
        for at, (function, column) in enumerate(zip(self._functions, self._columns, strict=True)):
            argument = column[row]
            if argument is not None:
                fold = function.retract if change in TAKES_BACK else function.fold
                assert fold is not None, "a function of a stage that retracts"
                accumulator[at] = fold(accumulator[at], argument)
        # Nothing goes out before the next row, which adds a replaced row as it is now, and is tested.
        limited = () if change == REPLACED else self._limited
        for at, _, _, fits in limited:
            if not fits(accumulator[at]):
                raise self._too_large(at)
        return accumulator if accumulator[self._members] else None

    def _fold_limited(self, accumulator: Any, row: int) -> None:
        """Fold the functions whose results may not fit; replace their parts together, once all fit."""
        folded = []
        for at, fold, column, fits in self._limited:
            argument = column[row]
            if argument is not None:
                part = fold(accumulator[at], argument)
                if not fits(part):
                    raise self._too_large(at)
                folded.append((at, part))
        for at, part in folded:
            accumulator[at] = part

    def _too_large(self, at: int) -> RecordFailed:
        return RecordFailed(
            f"{self._labels[at]} becomes too large: whole numbers have 64 bits, decimals at most 38 digits",
            "Give it `cast(x as double)` or fewer digits, or keep such values out of it with `case`.",
        )

    def output(self, accumulator: Any) -> Any:
        """Return the results so far. Raises RecordFailed if a formula has none."""
        if accumulator is None or (self._members is not None and accumulator[self._members] < 1):
            return None
        if self._finished:
            results: Results = tuple(accumulator)  # a copy: the accumulator is folded on in place
        else:
            results = tuple([f.finish(part) for f, part in zip(self._functions, accumulator, strict=True)])
        return results if self._compute is None else self._compute(results)

    def merge(self, older: Any, newer: Any) -> Any:
        """Merge two sessions, the older one's records first. Raises RecordFailed as `fold` does."""
        if older is None or newer is None:
            return older or newer
        merged = [f.merge(a, b) for f, a, b in zip(self._functions, older, newer, strict=True)]
        for at, _, _, fits in self._limited:
            if not fits(merged[at]):
                raise self._too_large(at)
        return merged

    def copy(self, accumulator: Any) -> Any:
        """Return another accumulator with the same parts; those that grow in place are copied, too."""
        if accumulator is None:
            return None
        return [part.copy() if isinstance(part, (list, dict)) else deepcopy(part) for part in accumulator]

    def mark(self, accumulator: Any) -> Any:
        """Return the accumulators, and the lengths of those that grow in place, lists and sets.

        Args:
            accumulator: As it is before a record that may be unusable.
        """
        if accumulator is None:
            return None
        return accumulator, [
            (part, len(part) if isinstance(part, (list, dict)) else None) for part in accumulator
        ]

    def undo(self, mark: Any) -> Any:
        """Restore the accumulator in the same list; what lists and sets have got since is removed.

        Args:
            mark: What `mark` returned.
        """
        if mark is None:
            return None
        accumulator, parts = mark
        for part, length in parts:
            while length is not None and len(part) > length:
                part.pop() if isinstance(part, list) else part.popitem()  # the newest, of either
        # in the same list, to which the entry refers
        accumulator[:] = [part for part, _ in parts]
        return accumulator

    def restore(self, row: int) -> tuple[Any, Any]:
        accumulator = self._rows.column("accumulator")[row].as_py()
        emitted = self._rows.column("emitted")[row].as_py()
        return (
            None
            if accumulator is None
            else [f.load(accumulator[n]) for f, n in zip(self._functions, self._names, strict=True)],
            None if emitted is None else tuple([emitted[name] for name in self._emitted]),
        )

    def field(self, name: str) -> Callable[[Any], Any]:
        return itemgetter(self._emitted.index(name))

    def type_of(self, name: str) -> pa.DataType:
        return self._output_type.field(name).type

    def size(self, accumulator: Any) -> int:
        """Return the bytes of the results' JSON text; 0 as long as a formula has no result."""
        try:
            output = self.output(accumulator)
        # a value that waits need not have a result yet
        except RecordFailed:
            return 0
        return (
            0 if output is None else len(self._text(dict(zip(self._emitted, output, strict=True))).encode())
        )

    def event_size(self, row: int) -> int:
        return len(encoder(self._rows.column("value").type)(self._rows.column("value")[row].as_py()).encode())

    def accumulator_array(self, accumulators: Sequence[Any]) -> pa.Array:
        return self._struct(
            [
                None
                if accumulator is None
                else [f.dump(p) for f, p in zip(self._functions, accumulator, strict=True)]
                for accumulator in accumulators
            ],
            self._accumulator_type,
        )

    def output_array(self, outputs: Sequence[Any]) -> pa.Array:
        return self._struct(outputs, self._output_type)

    def _struct(self, rows: Sequence[Sequence[Any] | None], type_: pa.StructType) -> pa.Array:
        columns = [
            pa.array([None if row is None else row[at] for row in rows], type_[at].type)
            for at in range(len(type_))
        ]
        # a mask: a struct of nulls is a value, a null struct is none
        missing = pa.array([row is None for row in rows], pa.bool_())
        return pa.StructArray.from_arrays(columns, names=type_.names, mask=missing)
