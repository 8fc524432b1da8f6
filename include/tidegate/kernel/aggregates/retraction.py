"""Aggregates that take values back, for a stage that regroups a table whose rows change.

`count`, `sum` and `avg` subtract. All other functions keep each distinct argument with the number of its
occurrences, and fold them anew for each result.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidegate.kernel.aggregates.function import Function
from tidegate.kernel.equality import identity

Bag = dict[Hashable, list[Any]]
"""The identity of an argument -> the argument, and the number of its occurrences, in the order in which each
came first. A number is below zero while a value was taken back by one partition before another one adds it.
"""


def retracting(function: Function) -> Function:
    """Return the function that can take arguments back, with the same results."""
    assert function.takes_back != "never", "the grammar refuses it"
    if isinstance(function.takes_back, Function):
        return function.takes_back
    return _over_bag(function)


def _over_bag(function: Function) -> Function:
    def finish(bag: Bag) -> Any:
        accumulator = function.start()
        for argument, number in bag.values():
            for _ in range(number if function.repeats else min(number, 1)):
                accumulator = function.fold(accumulator, argument)
        return function.finish(accumulator)

    def bag_type(argument: pa.Field) -> pa.DataType:
        return pa.list_(pa.struct([("value", argument.type), ("number", pa.int64())]))

    return replace(
        function,
        fold=lambda bag, argument: _added(bag, argument, 1),
        retract=lambda bag, argument: _added(bag, argument, -1),
        accumulator_type=bag_type,
        start=dict,
        finish=finish,
        dump=lambda bag: [{"value": value, "number": number} for value, number in bag.values()],
        load=lambda stored: {identity(item["value"]): [item["value"], item["number"]] for item in stored},
        columns=None,
    )


def _added(bag: Bag, argument: Any, number: int) -> Bag:
    # in place: a stage that retracts stops at a record that cannot be used, and undoes nothing
    key = identity(argument)
    entry = bag.setdefault(key, [argument, 0])
    entry[1] += number
    if not entry[1]:
        del bag[key]
    return bag


class ExactSum:
    """A sum of doubles without rounding, from which each of them can be subtracted again.

    `parts` do not overlap, and add up to the sum of the finite numbers, as in Python's `math.fsum`. `number`
    counts all of them, `nans`, `highs` and `lows` those without a finite value.
    """

    __slots__ = ("highs", "lows", "nans", "number", "parts")

    def __init__(
        self, parts: Iterable[float] = (), number: int = 0, nans: int = 0, highs: int = 0, lows: int = 0
    ) -> None:
        self.parts = [*parts]
        self.number = number
        self.nans, self.highs, self.lows = nans, highs, lows

    def add(self, value: float, number: int) -> ExactSum:
        """Add a number, or with `number` -1 subtract it."""
        self.number += number
        if value != value:
            self.nans += number
        elif value == math.inf:
            self.highs += number
        elif value == -math.inf:
            self.lows += number
        else:
            self._grow(value * number)
        return self

    def _grow(self, value: float) -> None:
        # Shewchuk's algorithm: what a sum of two rounds away becomes a part of its own
        remaining = []
        for part in self.parts:
            if abs(value) < abs(part):
                value, part = part, value
            total = value + part
            if math.isinf(total):
                remaining.append(part)  # no double has their sum, so they stay apart
                continue
            if rest := part - (total - value):
                remaining.append(rest)
            value = total
        self.parts = [*remaining, value] if value else remaining

    @property
    def total(self) -> float:
        """The sum, rounded once."""
        if self.nans or (self.highs and self.lows):
            return math.nan
        if self.highs or self.lows:
            return math.inf if self.highs else -math.inf
        try:
            return math.fsum(self.parts)
        except OverflowError:  # the largest parts have one sign: the sum of two with different signs fits
            return math.copysign(math.inf, max(self.parts, key=abs))

    def stored(self) -> dict[str, Any]:
        """Return the sum in the form of `EXACT_SUM`."""
        return {name: getattr(self, name) for name in EXACT_SUM.names}


EXACT_SUM = pa.struct(
    [("parts", pa.list_(pa.float64())), *((name, pa.int64()) for name in ("number", "nans", "highs", "lows"))]
)
"""The type of an `ExactSum` in state."""
