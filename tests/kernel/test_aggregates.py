"""Aggregate functions one by one: batches and merges change no result; columns give what records give."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.aggregates import FUNCTIONS

ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "anything": st.integers(-3, 3),
    "single values": st.integers(-3, 3),
    "booleans": st.booleans(),
    "numbers": st.integers(-(10**6), 10**6),
}


def folded(function: str, values: Sequence[Any], accumulator: Any = None) -> Any:
    """The accumulator of the values, stored and loaded after each of them, as if each were a batch."""
    rule = FUNCTIONS[function]
    accumulator = rule.start() if accumulator is None else accumulator
    for value in values:
        accumulator = rule.load(rule.dump(rule.fold(accumulator, value)))
    return accumulator


def result(function: str, values: Sequence[Any]) -> Any:
    return FUNCTIONS[function].finish(folded(function, values))


@pytest.mark.parametrize("function", FUNCTIONS)
@given(data=st.data())
def test_merge_gives_what_all_records_give(function: str, data: st.DataObject) -> None:
    drawn = ARGUMENTS[FUNCTIONS[function].takes]
    if FUNCTIONS[function].chooses:
        drawn = st.fixed_dictionaries({"value": st.none() | st.integers(0, 9), "by": st.none() | drawn})
    values = data.draw(st.lists(drawn, max_size=8))
    cut = data.draw(st.integers(0, len(values)))
    rule = FUNCTIONS[function]
    merged = rule.finish(rule.merge(folded(function, values[:cut]), folded(function, values[cut:])))
    whole = result(function, values)
    assert merged == (pytest.approx(whole, rel=1e-9, abs=1e-6) if isinstance(whole, float) else whole)


def chosen(function: str, *pairs: tuple[Any, Any]) -> Any:
    return result(function, [{"value": value, "by": by} for value, by in pairs])


def test_record_is_chosen_by_its_second_expression() -> None:
    pairs = [("a", 2), ("b", None), ("c", 5), ("d", 2), ("e", 5)]
    assert (chosen("min_by", *pairs), chosen("max_by", *pairs)) == ("a", "c")


def test_chosen_record_may_have_a_null() -> None:
    assert (chosen("min_by", ("a", 2), (None, 1)), chosen("max_by", (None, None))) == (None, None)


def test_nan_is_larger_than_every_number() -> None:
    pairs = [("a", math.nan), ("b", 1.0), ("c", math.nan), ("d", math.inf)]
    assert (chosen("min_by", *pairs), chosen("max_by", *pairs)) == ("b", "a")


@given(st.lists(st.booleans(), min_size=1))
def test_all_or_any_argument_is_true(values: list[bool]) -> None:
    assert (result("bool_and", values), result("bool_or", values)) == (all(values), any(values))


@given(st.lists(st.integers(-5, 5)))
def test_distinct_arguments_are_counted_once(values: list[int]) -> None:
    assert result("count_distinct", values) == len(set(values))


@given(st.lists(st.floats(-1e6, 1e6), min_size=2))
def test_variance_is_that_of_the_sample(values: list[float]) -> None:
    expected = statistics.variance(values)
    assert result("variance", values) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert result("stddev", values) == pytest.approx(math.sqrt(expected), rel=1e-3, abs=1e-3)


def test_variance_needs_two_arguments() -> None:
    assert [result(function, [5]) for function in ("variance", "stddev")] == [None, None]
    assert [result(function, [5, 5]) for function in ("variance", "stddev")] == [0.0, 0.0]


def test_variance_of_large_numbers_is_exact() -> None:
    assert result("variance", [10**9 + number for number in (1, 2, 3)]) == 1.0


def test_variance_of_an_infinite_value_is_nan() -> None:
    assert math.isnan(result("variance", [1.0, math.inf]))
    assert math.isnan(result("stddev", [math.nan, 1.0]))
