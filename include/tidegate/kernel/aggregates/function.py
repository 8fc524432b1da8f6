"""What an aggregate function is; each has a file beside this one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from tidegate.kernel.columns import Keys
from tidegate.kernel.rows import Mask


def same(value: Any) -> Any:
    """Return the value."""
    return value


def same_type(argument: pa.Field) -> pa.DataType:
    """Return the argument's type.

    Args:
        argument: The record column that the function folds.
    """
    return argument.type


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
class Function:
    """An aggregate function, with Spark's types. `fold(accumulator, argument)` gets no null arguments.

    Args:
        start: Makes an empty accumulator.
        finish: Returns the result of an accumulator.
        dump: Returns the accumulator in the form that Arrow takes.
        load: Returns the accumulator from the form that Arrow gives.
        fits: Returns a test whether an accumulator and its result fit into their types; None if all do.
        takes: The arguments that a file may give it.
        columns: The rule on whole columns; None: it goes record by record.
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
    takes: Literal["anything", "numbers", "single values"] = "anything"
    columns: ColumnRule | None = None

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
