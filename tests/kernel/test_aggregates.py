"""Aggregate functions one by one: batches and merges change no result; columns give what records give."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import kernel
from tidegate.errors import ConditionFailed
from tidegate.kernel.aggregates import FUNCTIONS
from tidegate.kernel.aggregates.function import Function
from tidegate.kernel.aggregates.percentile import percentile
from tidegate.kernel.aggregates.top import top

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


def test_argument_of_another_type_is_refused() -> None:
    total, flags, last = kernel.Aggregate("t", "sum", "x"), FUNCTIONS["bool_and"], FUNCTIONS["max_by"]
    with pytest.raises(ConditionFailed, match=r"`sum\(x\)` takes numbers, and its argument is string"):
        kernel.Aggregates((total,)).result_type(pa.struct([("t", pa.string())]))
    with pytest.raises(ConditionFailed, match="takes booleans"):
        flags.result_of("bool_and(x)", pa.field("x", pa.int64()))
    pair = pa.struct([("value", pa.list_(pa.int64())), ("by", pa.list_(pa.int64()))])
    with pytest.raises(ConditionFailed, match="takes single values"):
        last.result_of("max_by(x, y)", pa.field("x", pair))
    assert FUNCTIONS["sum"].result_of("sum(x)", pa.field("x", pa.decimal128(5, 2))) == pa.decimal128(15, 2)


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


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_percentile_lies_between_two_arguments(values: list[float], rank: float) -> None:
    assert aggregate(percentile(rank), values) == pytest.approx(
        float(np.percentile(values, rank * 100)), abs=1e-9
    )


def test_percentile_of_nothing_is_null() -> None:
    assert [result("median", values) for values in ([], [math.nan, math.inf])] == [None, None]
    assert result("median", [math.nan, 3, -math.inf, Decimal("4.5")]) == 3.75


def aggregate(function: Function, values: Sequence[Any], batch: int = 10**9) -> Any:
    """The result of the values, with a load and a dump after each batch."""
    accumulator = function.start()
    for at, value in enumerate(values, start=1):
        accumulator = function.fold(accumulator, value)
        if at % batch == 0:
            accumulator = function.load(function.dump(accumulator))
    return function.finish(accumulator)


@pytest.mark.parametrize("rank", [0, 0.01, 0.5, 0.9, 0.99, 1])
def test_percentile_of_many_arguments_is_near(rank: float) -> None:
    values = np.random.default_rng(1).lognormal(size=20_000)
    actual_rank = (values <= aggregate(percentile(rank), values)).mean()
    assert actual_rank == pytest.approx(rank, abs=0.005)


@pytest.mark.parametrize("function", [percentile(0.9), FUNCTIONS["approx_count_distinct"], top(5)])
@pytest.mark.parametrize("batch", [1, 7, 1000, 1001])
def test_batches_change_no_sketch(function: Function, batch: int) -> None:
    numbers = [float(number * 7919 % 2003) for number in range(2500)]
    values = [{"value": number, "by": number} for number in numbers] if function.chooses else numbers
    whole, cut = function.start(), function.start()
    for at, value in enumerate(values, start=1):
        whole, cut = function.fold(whole, value), function.fold(cut, value)
        if at % batch == 0:
            function.finish(cut)
            cut = function.load(function.dump(cut))
    assert function.dump(cut) == function.dump(whole)


def test_distinct_arguments_are_estimated() -> None:
    few, many = range(512), range(30_000)
    assert result("approx_count_distinct", [*few, *few]) == 512
    assert aggregate(FUNCTIONS["approx_count_distinct"], [*many, *many]) == pytest.approx(30_000, rel=0.05)


@pytest.mark.parametrize(
    ("values", "number"),
    [
        ([0.0, -0.0, math.nan, -math.nan, 1.0], 3),
        (["", "a", "a", "A"], 3),
        ([Decimal("1.0"), Decimal("1.00"), Decimal("10")], 2),
        ([b"", b"a", b"a"], 2),
        ([True, False, True], 2),
    ],
)
def test_equal_arguments_count_once(values: list[Any], number: int) -> None:
    assert result("approx_count_distinct", values) == number


@given(st.lists(st.integers(0, 9)), st.integers(1, 5))
def test_top_has_the_largest_arguments(values: list[int], size: int) -> None:
    pairs = [{"value": place, "by": value} for place, value in enumerate(values)]
    order = sorted(range(len(values)), key=lambda place: (-values[place], place))
    assert aggregate(top(size), pairs) == order[:size]


def test_top_begins_with_nan() -> None:
    pairs = [{"value": by, "by": by} for by in (1.0, math.nan, None, math.inf)]
    assert [str(value) for value in aggregate(top(2), pairs)] == ["nan", "inf"]


def test_variance_needs_two_arguments() -> None:
    assert [result(function, [5]) for function in ("variance", "stddev")] == [None, None]
    assert [result(function, [5, 5]) for function in ("variance", "stddev")] == [0.0, 0.0]


def test_variance_of_large_numbers_is_exact() -> None:
    assert result("variance", [10**9 + number for number in (1, 2, 3)]) == 1.0


def test_variance_of_an_infinite_value_is_nan() -> None:
    assert math.isnan(result("variance", [1.0, math.inf]))
    assert math.isnan(result("stddev", [math.nan, 1.0]))
