"""What history suggests: it holds on all of what it comes from, and leaves room."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate import kernel
from tidegate.quality.facts import BatchCounts
from tidegate.quality.observations import UsualRange, emitted_share_as_before
from tidegate.quality.proposals import PATTERNS, Proposal, propose_for_columns, propose_for_stage

CHANGE = kernel.Stage(kernel.Latest(), kernel.Change(("x",)), name="out")
CLOSE = kernel.Stage(kernel.Latest(), kernel.WindowClose(), window=kernel.Tumbling(10, 0), name="out")


def holds(proposal: Proposal, batch: pa.Table) -> bool:
    """Check the expectation value by value."""
    kwargs = proposal.kwargs
    values = batch[kwargs["column"]].to_pylist()
    present = [value for value in values if value is not None and value == value]
    if proposal.type == "expect_column_values_to_not_be_null":
        return values.count(None) <= len(values) * (1 - kwargs.get("mostly", 1)) + 1e-9
    if proposal.type == "expect_column_values_to_be_in_set":
        return set(present) <= set(kwargs["value_set"])
    if proposal.type == "expect_column_values_to_match_regex":
        return all(re.match(kwargs["regex"], value) for value in present)
    least, most = kwargs.get("min_value", -math.inf), kwargs.get("max_value", math.inf)
    return all(least <= value <= most for value in present)


columns = st.one_of(
    *(
        st.tuples(st.just(type_), st.just(values))
        for type_, values in (
            (pa.int64(), st.integers(-(2**62), 2**62)),
            (pa.int32(), st.integers(-5, 5)),
            (pa.float64(), st.floats(width=32)),
            (pa.decimal128(10, 2), st.decimals(-1000, 1000, places=2, allow_nan=False)),
            (pa.string(), st.sampled_from(["a", "b", "c"])),
            (pa.string(), st.from_regex(PATTERNS[1], fullmatch=True)),
            (pa.string(), st.text(max_size=5)),
            (pa.bool_(), st.booleans()),
            (pa.list_(pa.int64()), st.lists(st.integers(0, 3), max_size=2)),
        )
    )
)


@settings(max_examples=150)
@given(st.data())
def test_proposal_holds_on_each_of_its_batches(data: st.DataObject) -> None:
    type_, values = data.draw(columns)
    nullable = st.one_of(st.none(), *[values] * data.draw(st.integers(1, 9)))
    chosen = data.draw(st.sampled_from([values, nullable]))
    batches = [
        pa.table({"x": pa.array(data.draw(st.lists(chosen, max_size=40)), type_)})
        for _ in range(data.draw(st.integers(0, 4)))
    ]
    for proposal in propose_for_columns(batches, ()):
        assert proposal.source
        assert [batch for batch in batches if not holds(proposal, batch)] == [], proposal


def proposed(values: list[Any], *more: list[Any], key: bool = False) -> dict[str, Any]:
    """Type -> its options, of a column with these values in one batch, and more in others."""
    batches = [pa.table({"x": part}) for part in (values, *more)]
    proposals = propose_for_columns(batches, ("x",) if key else ())
    return {
        proposal.type: {k: v for k, v in proposal.kwargs.items() if k != "column"} for proposal in proposals
    }


NULL, SET = "expect_column_values_to_not_be_null", "expect_column_values_to_be_in_set"
RANGE, REGEX = "expect_column_values_to_be_between", "expect_column_values_to_match_regex"


def test_range_has_a_tenth_of_room_above_zero() -> None:
    assert proposed([3, 100])[RANGE] == {"min_value": 0, "max_value": 110}
    assert proposed([-100, 100])[RANGE] == {"min_value": -120, "max_value": 120}
    assert proposed([7])[RANGE] == {"min_value": 6, "max_value": 8}
    assert proposed([0.5, 1.5])[RANGE] == {"min_value": 0.4, "max_value": 1.6}
    assert proposed([Decimal("1.00"), Decimal("2.00")])[RANGE] == {"min_value": 0.9, "max_value": 2.1}


def test_rising_column_gets_no_upper_bound() -> None:
    assert proposed([10, 11], [12], [20])[RANGE] == {"min_value": 9}
    assert "max_value" in proposed([10, 11], [12], [11])[RANGE]


def test_what_is_infinite_has_no_range() -> None:
    assert RANGE not in proposed([1.0, math.inf])


def test_few_frequent_texts_become_a_set() -> None:
    assert proposed(["good", "stop"] * 5)[SET] == {"value_set": ["good", "stop"]}
    assert SET not in proposed(["good", "stop"] * 4)
    assert SET not in proposed([f"{n}x!" for n in range(21)] * 5)


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ("00000000-0000-4000-8000-0000000000{:02}", PATTERNS[0]),
        ("2026-01-{:02}", PATTERNS[1]),
        ("{:05}", PATTERNS[2]),
        ("item_{}", PATTERNS[4]),
        ("item {}", None),
    ],
)
def test_narrowest_known_format_is_proposed(form: str, pattern: str | None) -> None:
    values = [form.format(number) for number in range(1, 31)]
    assert proposed(values).get(REGEX) == (None if pattern is None else {"regex": pattern})


def test_key_column_gets_a_format_only() -> None:
    assert set(proposed(["a", "b"] * 50, key=True)) == {NULL}
    assert set(proposed([1, 2] * 50, key=True)) == {NULL}
    assert set(proposed([f"k{n}" for n in range(30)], key=True)) == {NULL, REGEX}


def test_mostly_filled_column_expects_most_values() -> None:
    assert proposed([1, None, 3, 4], [1, 2, 3, 4])[NULL] == {"mostly": 0.65}
    assert NULL not in proposed([1, None])


def test_window_times_get_order_but_no_range() -> None:
    rows = pa.table({"timestamp": [5], "window_start": [0], "window_end": [10], "n": [1]})
    types = {(proposal.type, proposal.kwargs.get("column")) for proposal in propose_for_columns([rows], ())}
    assert types == {
        (NULL, "timestamp"),
        (NULL, "n"),
        (RANGE, "n"),
        ("expect_column_pair_values_a_to_be_greater_than_b", None),
    }


def test_patterns_are_quick_on_long_mismatches() -> None:
    for pattern in PATTERNS:
        assert not re.search(r"[+*}]\)[+*{](?!3\})", pattern)  # no repetition of a repetition, but one of 3
        assert re.match(pattern, "0" * 100_000 + "!") is None


def types_of(proposals: list[Proposal]) -> list[str]:
    return [proposal.type.removeprefix("expect_") for proposal in proposals]


def test_stage_proposes_what_its_strategy_promises() -> None:
    always = ["keys_to_not_be_null", "counts_to_add_up"]
    assert types_of(propose_for_stage(CHANGE, [], drops_late=False)) == [
        *always,
        "equal_neighbours_to_be_absent",
        "quarantined_share_to_be_at_most",
    ]
    assert types_of(propose_for_stage(CLOSE, [], drops_late=True)) == [
        *always,
        "one_final_per_window_and_key",
        "quarantined_share_to_be_at_most",
        "late_share_to_be_at_most",
    ]


def counts(came_in: int, emitted: int, quarantined: int = 0) -> BatchCounts:
    used = came_in - quarantined
    return BatchCounts(
        *(came_in, used, quarantined, 0, 0, emitted, emitted), quarantined_in_stages=quarantined
    )


@pytest.mark.parametrize(("quarantined", "bound"), [(0, 0.01), (3, 0.01), (12, 0.024), (700, 1.0)])
def test_share_gets_twice_its_room(quarantined: int, bound: float) -> None:
    proposals = propose_for_stage(CHANGE, [counts(1000, 1, quarantined), counts(1000, 1)], drops_late=False)
    (share,) = (proposal for proposal in proposals if "quarantined" in proposal.type)
    assert share.kwargs == {"max_share": bound}


@given(st.lists(st.builds(counts, st.integers(0, 300), st.integers(0, 300)), max_size=40))
def test_proposed_emitted_share_holds_for_the_history(
    history: list[BatchCounts],
) -> None:
    proposals = [
        proposal for proposal in propose_for_stage(CHANGE, history, False) if "emitted" in proposal.type
    ]
    for proposal in proposals:
        for at, now in enumerate(history):
            before = history[max(0, at - 20) : at][::-1]
            assert emitted_share_as_before(now, before, UsualRange(**proposal.kwargs)).passed


def test_steady_share_needs_more_than_few_batches() -> None:
    steady = [counts(1000, 200 + at % 7) for at in range(12)]
    assert "emitted_share_to_be_as_before" in types_of(propose_for_stage(CHANGE, steady, False))
    assert "emitted_share_to_be_as_before" not in types_of(propose_for_stage(CHANGE, steady[:5], False))
    wild = [counts(1000, 0) for _ in range(7)] + [counts(1000, 900)]
    assert "emitted_share_to_be_as_before" not in types_of(propose_for_stage(CHANGE, wild, False))
