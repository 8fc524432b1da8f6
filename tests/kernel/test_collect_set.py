"""`collect_set`: each value once, in order of first appearance, at a price that does not grow with it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidegate.kernel.aggregates import FUNCTIONS
from tidegate.kernel.equality import equal, identity

DISTINCT = FUNCTIONS["collect_set"]


class Compared(str):
    """A text that counts how often it is compared."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return str.__eq__(self, other)


def collected(values: list[Any], stored: list[Any] | None = None) -> list[Any]:
    """Return the set of the values, after the set of an earlier batch."""
    accumulator = DISTINCT.start() if stored is None else DISTINCT.load(stored)
    for value in values:
        accumulator = DISTINCT.fold(accumulator, value)
    assert DISTINCT.dump(accumulator) == DISTINCT.finish(accumulator)
    result: list[Any] = DISTINCT.dump(accumulator)
    return result


@pytest.mark.parametrize("restored", [False, True])
def test_set_compares_a_value_with_its_equals_only(restored: bool) -> None:
    thousand = [Compared(number) for number in range(1000)]
    stored = collected([], list(thousand)) if restored else None
    Compared.comparisons = 0
    distinct = collected(
        [Compared(number) for number in range(1000)] + [Compared("new")], stored or thousand[:0]
    )
    assert len(distinct) == 1001
    assert Compared.comparisons < 3000  # once or twice a value: half a million in a list


NAN = math.nan
SAME = [
    (NAN, -NAN),
    (0.0, -0.0),
    ({"a": NAN}, {"a": NAN}),
    ([1, [NAN]], [1, [NAN]]),
    ([("k", 1), ("l", NAN)], [("k", 1), ("l", NAN)]),
    ([[("k", 0.0)]], [[("k", -0.0)]]),
]


@pytest.mark.parametrize(("first", "other"), SAME, ids=map(repr, SAME))
def test_set_keeps_the_first_of_equal_values(first: Any, other: Any) -> None:
    (distinct,) = collected([first, other])
    assert distinct is first
    (merged,) = DISTINCT.dump(DISTINCT.merge(DISTINCT.load([first]), DISTINCT.load([other])))
    assert merged is first


def test_set_keeps_equal_maps_once_in_any_order() -> None:
    first, other = [("k", 1), ("l", 2)], [("l", 2), ("k", 1)]
    assert collected([first, other]) == [first]
    assert collected([[1, 2], [2, 1]]) == [[1, 2], [2, 1]]


def test_merged_sessions_keep_the_older_values_first() -> None:
    older, newer = DISTINCT.load([2, 1]), DISTINCT.load([3, 1])
    assert DISTINCT.dump(DISTINCT.merge(older, newer)) == [2, 1, 3]
    assert (DISTINCT.dump(older), DISTINCT.dump(newer)) == ([2, 1], [3, 1])


SINGLE = st.none() | st.sampled_from([NAN, 0.0, -0.0, 1.0, 2.0]) | st.text("ab", max_size=1)
ENTRIES = st.dictionaries(st.sampled_from(["k", "l"]), SINGLE, max_size=2).map(lambda d: sorted(d.items()))
VALUES = st.recursive(
    SINGLE,
    lambda part: st.lists(part, max_size=2) | ENTRIES | st.fixed_dictionaries({"f": part}),
    max_leaves=6,
)


@examples(500)
@given(VALUES, VALUES)
def test_equal_values_have_one_identity(left: Any, right: Any) -> None:
    assert (identity(left) == identity(right)) == equal(left, right)
    assert hash(identity(left)) == hash(identity(left))
