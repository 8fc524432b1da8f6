"""Random conditions, and the rows that they are tested on: with nulls, NaN, signed zeros, equal values."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

COLUMNS = (
    "a bigint, b bigint, i int, x double, y double, d decimal(10,2), e decimal(6,3), f float, "
    "s string, t string, p boolean, q boolean, xs array<bigint>, ys array<double>, "
    "n struct<b:bigint,s:string,deep:struct<x:double>>"
)

_WHOLE = [None, 0, 1, -1, 2, 7, 100, -250]
_DOUBLES = [None, 0.0, -0.0, 0.5, 1.0, -1.5, 2.5, 3.1415, 7.0, math.nan, math.inf, -math.inf, 0.1]
_CENTS = [None, Decimal("0.00"), Decimal("0.10"), Decimal("1.00"), Decimal("-2.50"), Decimal("7.05")]
_MILLS = [None, Decimal("0.100"), Decimal("7.050"), Decimal("-0.125"), Decimal("1.000")]
_FLOATS = [None, 0.5, -0.25, 2.0, math.nan, 0.0]
_TEXTS = [None, "", "a", "A", "ab", " ab ", "a%b", "ä", "aß", "zz", "100%"]
_TRUTHS = [None, True, False]


def random_row(source: random.Random) -> dict[str, Any]:
    """One row of COLUMNS, as Python has it."""
    pick = source.choice
    inner = {"b": pick(_WHOLE), "s": pick(_TEXTS), "deep": pick([None, {"x": pick(_DOUBLES)}])}
    return {
        **{name: pick(_WHOLE) for name in ("a", "b", "i")},
        **{name: pick(_DOUBLES) for name in ("x", "y")},
        "d": pick(_CENTS),
        "e": pick(_MILLS),
        "f": pick(_FLOATS),
        **{name: pick(_TEXTS) for name in ("s", "t")},
        "p": pick(_TRUTHS),
        "q": pick(_TRUTHS),
        "xs": pick([None, [], [pick(_WHOLE) for _ in range(3)]]),
        "ys": pick([None, [pick(_DOUBLES) for _ in range(2)]]),
        "n": pick([None, inner, inner]),
    }


class RandomCondition:
    """Texts of conditions that have a result for every row: nothing overflows or divides by zero."""

    def __init__(self, source: random.Random) -> None:
        self.random = source

    def boolean(self, depth: int) -> str:
        """Something that is true, false or null."""
        leaves = [
            "p",
            "q",
            "true",
            "false",
            "cast(null as boolean)",
            "isnull(a)",
            "isnotnull(s)",
            "p is not true",
        ]
        return self.drawn(depth, leaves, [self._compared] * 3 + [self._connected] * 3 + [self._tested] * 3)

    def drawn(self, depth: int, leaves: list[str], makers: list[Callable[[int], str]]) -> str:
        """A leaf, or something deeper."""
        if depth <= 0:
            return self.random.choice(leaves)
        return self.random.choice(makers)(depth - 1)

    def maybe(self, text: str) -> str:
        """Often in parentheses."""
        return f"({text})" if self.random.random() < 0.6 else text

    def _connected(self, depth: int) -> str:
        left, right = self.maybe(self.boolean(depth)), self.maybe(self.boolean(depth))
        return self.random.choice(
            [f"{left} and {right}", f"{left} or {right}", f"not {left}", f"{left} <=> {right}"]
        )

    def _compared(self, depth: int) -> str:
        operator = self.random.choice(
            ["=", "<>", "!=", "<", "<=", ">", ">=", "<=>", "==", "is distinct from"]
        )
        kind = self.random.choice([self.number, self.number, self.number, self.text])
        return f"{self.maybe(kind(depth))} {operator} {self.maybe(kind(depth))}"

    def _tested(self, depth: int) -> str:
        not_ = self.random.choice(["", "not "])
        number, text = self.maybe(self.number(depth)), self.maybe(self.text(depth))
        return self.random.choice(
            [
                f"{number} {not_}between {self.number(0)} and {self.number(0)}",
                f"{number} {not_}in ({self.number(0)}, {self.number(0)}, {self.number(0)})",
                f"{text} {not_}in ('a', {self.text(0)})",
                f"{text} {not_}like '{self.random.choice(['a%', '%b', '_', '%', 'a_', '', 'A%'])}'",
                f"{text} {not_}like 'a!%%' escape '!'",
                f"{text} like '%\\\\%%'",
                f"{number} is {not_}null",
                f"{self.maybe(self.boolean(depth))} is {not_}{self.random.choice(['true', 'false', 'null'])}",
                f"isnan({number})",
                f"{self.random.choice(['startswith', 'endswith', 'contains'])}({text}, {self.text(0)})",
                f"case when {self.boolean(depth)} then {self.boolean(0)} else {self.boolean(0)} end",
                f"if({self.boolean(depth)}, {self.boolean(0)}, {self.boolean(0)})",
                f"coalesce({self.boolean(depth)}, {self.boolean(0)})",
                f"cast({number} as boolean)",
            ]
        )

    def number(self, depth: int) -> str:
        """A number of any type."""
        leaves = [
            "a",
            "b",
            "i",
            "x",
            "y",
            "d",
            "e",
            "f",
            "n.b",
            "n.deep.x",
            "0",
            "1",
            "-2",
            "0.5",
            "1.10",
            "1e2",
        ]
        makers = [self.whole, self.whole, self._floating, self._decimal, self._mixed]
        return self.drawn(depth, leaves, makers)

    def whole(self, depth: int) -> str:
        """A bigint."""
        if depth <= 0:
            return self.random.choice(["a", "b", "i", "n.b", "3", "-1", "length(s)", "size(xs)"])
        inner = self.whole(depth - 1)
        return self.random.choice(
            [
                f"{self.maybe(inner)} {self.random.choice('+-*')} {self.whole(0)}",
                f"{self.maybe(inner)} % nullif({self.whole(0)}, 0)",
                f"abs({inner})",
                f"-({inner})",
                f"floor({self._floating(0)} % 1000)",  # a larger one leaves no room for a sum
                f"ceil({self._decimal(0)})",
                f"char_length({self.text(depth - 1)})",
                f"cast({self._decimal(0)} as bigint)",
                f"cast({self.random.choice('pq')} as bigint)",
                f"size({self.random.choice(['xs', 'ys'])})",
                f"nullif({inner}, {self.whole(0)})",
                f"case {self.whole(0)} when 1 then {inner} when a then 2 end",
            ]
        )

    def _floating(self, depth: int) -> str:
        if depth <= 0:
            return self.random.choice(["x", "y", "0.25D", "1e1", "n.deep.x"])
        inner = self._floating(depth - 1)
        return self.random.choice(
            [
                f"{self.maybe(inner)} {self.random.choice('+-*')} {self.number_but_float()}",
                f"{self.maybe(inner)} / nullif({self._floating(0)}, 0)",
                f"{self.whole(0)} / nullif({self.whole(0)}, 0)",
                f"{self.maybe(inner)} % nullif({self._floating(0)}, 0.0)",
                f"abs({inner})",
                f"-({inner})",  # `--` would begin a comment
                f"sqrt({self.number(0)})",
                f"round({self._floating(0)}, {self.random.randint(0, 3)})",
                f"sign({self.number(0)})",
                f"cast({self.number(0)} as double)",
            ]
        )

    def number_but_float(self) -> str:
        """A column of 32 bits cannot be computed with."""
        return self.random.choice(["a", "x", "d", "0.5", "2", "e"])

    def _decimal(self, depth: int) -> str:
        if depth <= 0:
            return self.random.choice(["d", "e", "0.1", "2.50"])
        inner = self._decimal(0)
        return self.random.choice(
            [
                f"{inner} {self.random.choice('+-*')} {self._decimal(0)}",
                f"{inner} {self.random.choice('+-*')} {self.whole(0)}",
                f"{inner} % nullif({self.random.choice('de')}, 0)",
                f"floor({inner})",
                f"abs({inner})",
                f"-({inner})",
            ]
        )

    def _mixed(self, depth: int) -> str:
        first, second = self.number(depth), self.number(0)
        return self.random.choice(
            [
                f"coalesce({first}, {second})",
                f"nvl({first}, {second})",
                f"ifnull({first}, {second})",
                f"nvl2({self.number(0)}, {first}, {second})",
                f"least({first}, {second}, {self.number(0)})",
                f"greatest({first}, {second})",
                f"if({self.boolean(depth)}, {first}, {second})",
                f"case when {self.boolean(depth)} then {first} when q then {second} else 0 end",
                f"nullif({first}, {second})",
            ]
        )

    def text(self, depth: int) -> str:
        """A string."""
        if depth <= 0:
            return self.random.choice(["s", "t", "n.s", "'a'", "'ab'", "''", "'\\u00e4'", "r'a%'", '"A"'])
        inner = self.text(depth - 1)
        return self.random.choice(
            [
                f"lower({inner})",
                f"upper({inner})",
                f"trim({inner})",
                f"concat({inner}, {self.text(0)}, 'b')",
                f"coalesce({inner}, {self.text(0)})",
                f"nullif({inner}, 'a')",
                f"cast({self.random.choice(['a', 'i', 'p', 'length(s)', '1 + a'])} as string)",
                f"if({self.boolean(0)}, {inner}, {self.text(0)})",
                f"least({inner}, {self.text(0)})",
                f"greatest({inner}, {self.text(0)})",
            ]
        )
