"""What an aggregate function is, and what column rules share: running sums, results that begin with null."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import ConditionFailed
from tidegate.kernel.columns import Keys, accumulated
from tidegate.kernel.rows import Ints, Mask, ints, mask

Numbers = npt.NDArray[np.generic]


def same(value: Any) -> Any:
    """Return the value."""
    return value


def same_type(argument: pa.Field) -> pa.DataType:
    """Return the argument's type.

    Args:
        argument: The record column that the function folds.
    """
    return argument.type


def int64(_: pa.Field) -> pa.DataType:
    """Return the type of counts, whatever the argument is."""
    return pa.int64()


def _unlimited(argument: pa.Field) -> None:
    return None


def _never_large(name: str, keys: Keys) -> Mask | None:
    return None


@dataclass(frozen=True)
class ColumnRule:
    """The rule on whole columns, for arguments for which it is exact and cannot fail.

    Args:
        suits: Returns whether it supports arguments of a type.
        running: Returns the result after each row, of the record column of this name.
        may_overflow: Returns the rows of keys whose results may not fit; None: all do.
    """

    suits: Callable[[pa.DataType], bool]
    running: Callable[[str, Keys], pa.Array]
    may_overflow: Callable[[str, Keys], Mask | None] = _never_large


@dataclass(frozen=True)
class Parameter:
    """A constant behind the first expression of a function.

    Args:
        accepts: Returns whether a number can be the constant.
        rule: Returns the function for a constant.
        fix: How a file writes such an aggregate.
    """

    accepts: Callable[[int | float], bool]
    rule: Callable[[Any], Function]
    fix: str


def _is_number(type_: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(test(type_) for test in tests)


_ACCEPTED: dict[str, Callable[[pa.DataType], bool]] = {
    "anything": lambda _: True,
    "numbers": _is_number,
    "booleans": pa.types.is_boolean,
    "single values": lambda type_: not pa.types.is_nested(type_),
}
"""What a function takes -> whether a type is one of those."""


@dataclass(frozen=True)
class Function:
    """An aggregate function, with Spark's types. `fold(accumulator, argument)` gets no null arguments.

    Args:
        start: Makes an empty accumulator.
        finish: Returns the result of an accumulator.
        dump: Returns the accumulator in the form that Arrow takes.
        load: Returns the accumulator from the form that Arrow gives.
        fits: Returns a test whether an accumulator and its result fit into their types; None if all do.
        takes: The arguments that a file may give it; of a function that chooses, its second one.
        chooses: Whether it chooses one record's argument by another expression; see `chosen_by`.
        columns: The rule on whole columns; None: it goes record by record.
        parameter: The constant that a file must give it, and without which it has that of an example.
        retract: Takes an argument back that was folded before; None if it cannot.
        takes_back: How a stage that retracts takes arguments back: by a function of its own, or from a list
            of all arguments; `never` if the result depends on their order.
        repeats: Whether it matters how often an argument occurs.
    """

    fold: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any]
    accumulator_type: Callable[[pa.Field], pa.DataType]
    result_type: Callable[[pa.Field], pa.DataType]
    start: Callable[[], Any] = lambda: None
    finish: Callable[[Any], Any] = same
    dump: Callable[[Any], Any] = same
    load: Callable[[Any], Any] = same
    fits: Callable[[pa.Field], Callable[[Any], bool] | None] = _unlimited
    takes: Literal["anything", "numbers", "booleans", "single values"] = "anything"
    columns: ColumnRule | None = None
    chooses: bool = False
    parameter: Parameter | None = None
    retract: Callable[[Any, Any], Any] | None = None
    takes_back: Function | Literal["all", "never"] = "all"
    repeats: bool = True

    def result_of(self, text: str, argument: pa.Field) -> pa.DataType:
        """Return the type of the results for the arguments of an aggregate, such as `sum(x)`.

        Raises ConditionFailed if the function does not take such arguments: the grammar does not know the
        type of a looked-up column, or of a function of Spark.
        """
        pair = self.chooses and pa.types.is_struct(argument.type)
        type_ = argument.type.field(BY).type if pair else argument.type
        if not pa.types.is_null(type_) and not _ACCEPTED[self.takes](type_):
            fix = f"Give it {self.takes}, for example by a `cast`."
            raise ConditionFailed(f"`{text}` takes {self.takes}, and its argument is {type_}", fix)
        return self.result_type(argument)

    @property
    def is_accumulator_result(self) -> bool:
        """Whether the accumulator is the result."""
        # by identity: then `AggregateValues.output` calls nothing per aggregate
        return self.finish is same


def either(pick: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the merge of a function whose accumulator is one of its arguments.

    Example: `either(max)(1, 2)` is 2, `either(max)(1, None)` is 1.
    """
    return lambda older, newer: older if newer is None else pick(older, newer)


CHOSEN, BY = "value", "by"
"""The fields of the argument of a function that chooses."""


def chosen_type(argument: pa.Field) -> pa.DataType:
    """Return the type of the first expression of a function that chooses; null if it is unknown."""
    return argument.type.field(CHOSEN).type if pa.types.is_struct(argument.type) else pa.null()


def chosen_by(pick: Callable[[Any, Any], Any]) -> Function:
    """Return a function of two expressions: the first one of the record whose second one `pick` picks. Of
    several such records, the first counts; a record without a second value does not.
    """

    def fold(accumulator: Any, argument: Any) -> Any:
        by = argument[BY]
        if by is None:
            return accumulator
        if accumulator is None:
            return argument
        before = accumulator[BY]
        # only NaN differs from itself
        is_same = before == by or (before != before and by != by)
        return argument if not is_same and pick(before, by) is by else accumulator

    def finish(accumulator: Any) -> Any:
        return None if accumulator is None else accumulator[CHOSEN]

    return Function(
        *(fold, either(fold), same_type, chosen_type),
        finish=finish,
        takes="single values",
        chooses=True,
        repeats=False,
    )


def arguments(name: str, keys: Keys, number: Callable[[pa.Array], Numbers]) -> tuple[Numbers, Mask]:
    """Return per row the record's argument, or the state row's stored accumulator; and whether it has one.

    Args:
        name: The aggregate, and with it its record column.
        number: Returns a column as numbers, with a number in place of null.
    """
    argument = pc.struct_field(keys.column("value"), name)
    stored = pc.struct_field(keys.column("accumulator"), name)
    numbers = np.where(keys.is_state, number(stored), number(argument))
    return numbers, np.where(keys.is_state, mask(stored.is_valid()), mask(argument.is_valid()))


def running_sum(numbers: Ints, keys: Keys) -> Ints:
    """Return sums from each key's first row on. The sum over all rows may wrap around; differences stay
    right.

    Example: numbers 1, 2, 3 of two keys, the second with the last row only, give 1, 3, 3.
    """
    # one sum over all keys, instead of a loop over keys
    sums = np.cumsum(numbers)
    # what the rows of all earlier keys have added
    before = (sums - numbers)[keys.first]
    return sums - before[keys.number]


def null_until_argument(result: Numbers, has_argument: Mask, keys: Keys) -> pa.Array:
    """Return the results, null before a key's first argument that is not null.

    Args:
        result: The result after each row.
        has_argument: Per row, whether it has an argument that is not null.
    """
    return pa.array(result, mask=running_sum(has_argument.astype(np.int64), keys) == 0)


def booleans(neutral: bool) -> Function:
    """Return a function that combines booleans: `and` if True is neutral, `or` if False is."""
    pick = np.logical_and if neutral else np.logical_or

    def fold(accumulator: Any, value: bool) -> Any:
        return value if accumulator is None or accumulator is neutral else accumulator

    def running(name: str, keys: Keys) -> pa.Array:
        values, has_argument = arguments(name, keys, lambda column: mask(pc.fill_null(column, neutral)))
        combined = accumulated(pick, np.where(has_argument, values, neutral), keys)
        return null_until_argument(combined, has_argument, keys)

    rule = ColumnRule(pa.types.is_boolean, running)
    return Function(fold, either(fold), same_type, same_type, takes="booleans", columns=rule, repeats=False)


def extreme(pick: Callable[[Any, Any], Any], of_columns: np.ufunc, null: int) -> Function:
    """Return the function of the largest or smallest argument.

    Args:
        pick: Returns one of the accumulator, which may be None, and a value.
        of_columns: `np.maximum` or `np.minimum`.
        null: The whole number that changes no result, in place of a null argument.
    """

    def running(name: str, keys: Keys) -> pa.Array:
        numbers, has_argument = arguments(name, keys, ints)
        extremes = accumulated(of_columns, np.where(has_argument, numbers, null), keys)
        return null_until_argument(extremes, has_argument, keys)

    rule = ColumnRule(pa.types.is_integer, running)
    types = (same_type, same_type)
    return Function(pick, either(pick), *types, takes="single values", repeats=False, columns=rule)
