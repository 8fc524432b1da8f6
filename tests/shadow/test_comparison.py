"""The comparison of two jobs: what each emission is, and what does not change the others."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shadow.emissions import EXACT, classes, emission
from tidegate.kernel.within import Amount
from tidegate.shadow import alignment
from tidegate.shadow.alignment import Aligner, Row
from tidegate.shadow.comparison import Horizon
from tidegate.shadow.emission import SentEmission, last_hop

VALUES = st.one_of(st.none(), st.integers(0, 3))
EMISSIONS = st.lists(st.builds(emission, VALUES, st.integers(0, 20), st.sampled_from("ab")), max_size=30)


def counted(**numbers: int) -> dict[str, int]:
    """Return the classes that have emissions."""
    return {name: number for name, number in numbers.items() if number}


@given(EMISSIONS)
def test_list_compared_with_itself_is_equal(ours: list[SentEmission]) -> None:
    assert classes(ours, ours) == counted(equal=len(ours))


@given(EMISSIONS, st.data())
def test_removed_emissions_are_missing_and_no_others(ours: list[SentEmission], data: st.DataObject) -> None:
    keeps = data.draw(st.lists(st.booleans(), min_size=len(ours), max_size=len(ours)))
    theirs = [item for item, stays in zip(ours, keeps, strict=True) if stays]
    removed = len(ours) - len(theirs)
    assert classes(ours, theirs) == counted(equal=len(theirs), missing=removed)
    assert classes(theirs, ours) == counted(equal=len(theirs), extra=removed)


@given(EMISSIONS, st.data())
def test_changed_values_are_different_and_no_others(ours: list[SentEmission], data: st.DataObject) -> None:
    changes = data.draw(st.lists(st.booleans(), min_size=len(ours), max_size=len(ours)))
    theirs = [
        replace(item, value={"value": f"changed {number}"}) if changed else item
        for number, (item, changed) in enumerate(zip(ours, changes, strict=True))
    ]
    changed = sum(changes)
    assert classes(ours, theirs) == counted(equal=len(ours) - changed, different=changed)


@given(EMISSIONS, EMISSIONS)
def test_each_emission_has_exactly_one_class(ours: list[SentEmission], theirs: list[SentEmission]) -> None:
    counts = classes(ours, theirs)
    pairs = sum(counts.get(name, 0) for name in ("equal", "late", "different"))
    assert pairs + counts.get("missing", 0) == len(ours)
    assert pairs + counts.get("extra", 0) == len(theirs)


@given(st.permutations(range(6)))
def test_reordered_emissions_are_late_and_never_missing(order: list[int]) -> None:
    ours = [emission(number, number) for number in range(6)]
    counts = classes(ours, [ours[number] for number in order])
    assert counts.keys() <= {"equal", "late"}


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        pytest.param([(1, 1), (2, 2), (3, 3)], [(1, 1), (3, 3)], {"equal": 2, "missing": 1}, id="suppressed"),
        pytest.param([(1, 1), (2, 2)], [(1, 1), (1, 1), (2, 2)], {"equal": 2, "extra": 1}, id="duplicate"),
        pytest.param([(5, 1), (6, 2), (7, 3)], [(6, 1), (7, 2), (8, 3)], {"different": 3}, id="off by one"),
        pytest.param(
            [(1, 10), (2, 20), (3, 30)],
            [(1, 14), (9, 24), (3, 34)],
            {"equal": 2, "different": 1},
            id="other timestamps",
        ),
        pytest.param([(1, 1), (None, 2)], [(1, 1), (2, 2)], {"equal": 1, "different": 1}, id="not deleted"),
        pytest.param([(1, 1), (2, 2), (3, 3)], [(2, 2), (3, 3), (1, 9)], {"equal": 2, "late": 1}, id="late"),
    ],
)
def test_typical_faults_of_a_job_are_named(
    ours: list[tuple[Any, int]], theirs: list[tuple[Any, int]], expected: dict[str, int]
) -> None:
    assert classes([emission(*item) for item in ours], [emission(*item) for item in theirs]) == expected


def test_value_that_comes_later_than_allowed_is_late() -> None:
    rules = replace(EXACT, within_ms=10)
    assert classes([emission(1, 100)], [emission(1, 110)], rules) == {"equal": 1}
    assert classes([emission(1, 100)], [emission(1, 111)], rules) == {"late": 1}


def test_windows_and_keys_are_compared_each_by_itself() -> None:
    ours = [emission(1, 1, window=(0, None)), emission(2, 2, window=(10, None)), emission(3, 3, "other")]
    assert classes(ours, ours[::-1]) == {"equal": 3}


def test_source_positions_count_in_place_of_timestamps() -> None:
    ours = [emission(number, number, source=("in", 0, number)) for number in range(3)]
    theirs = [replace(item, value={"value": item.timestamp + 7}, timestamp=99) for item in ours]
    assert classes(ours, theirs) == {"different": 3}


def test_emission_behind_the_other_job_is_not_missing() -> None:
    ours = [emission(number, number) for number in (1, 5, 6)]
    horizon = Horizon(other_ms=5)
    assert classes(ours, [], horizon=horizon) == {"missing": 1, "not_yet_comparable": 2}
    assert classes(ours, [], horizon=Horizon()) == {"not_yet_comparable": 3}


def test_result_of_a_timer_counts_when_it_fires() -> None:
    final = emission(1, 3, at=60)
    assert classes([final], [], horizon=Horizon(other_ms=50)) == {"not_yet_comparable": 1}
    assert classes([final], [], horizon=Horizon(other_ms=61)) == {"missing": 1}


def test_record_that_tidegate_lacks_is_not_extra() -> None:
    theirs = [emission(1, 4), emission(2, 5)]
    horizon = Horizon(other_ms=5, own_ms=5)
    assert classes([], theirs, horizon=horizon) == {"extra": 1, "not_yet_comparable": 1}
    assert classes([], theirs, horizon=Horizon(other_ms=5)) == {"extra": 2}


def test_source_offsets_bound_both_jobs() -> None:
    placed = [emission(number, number, source=("in", 0, number)) for number in range(6)]
    horizon = Horizon({("in", 0): 3}, {("in", 0): (1, 5)})
    assert classes(placed, [], horizon=horizon) == {"missing": 3, "not_yet_comparable": 3}
    expected = {"before_start": 1, "extra": 4, "not_yet_comparable": 1}
    assert classes([], placed, horizon=horizon) == expected


def test_emissions_before_both_have_records_are_left_out() -> None:
    horizon = Horizon(first_ms=5, other_ms=9)
    assert classes([emission(1, 4)], [], horizon=horizon) == {"before_start": 1}
    assert classes([], [emission(1, 4)], horizon=horizon) == {"before_start": 1}


def test_intermediate_result_that_is_replaced_is_superseded() -> None:
    ours = [emission(number, number) for number in range(4)]
    rules = replace(EXACT, intermediate=True)
    assert classes(ours, [ours[2]], rules) == {"equal": 1, "superseded": 2, "missing": 1}
    assert classes(ours, [ours[3]], rules) == {"equal": 1, "superseded": 3}


def test_tolerance_of_a_column_makes_values_equal() -> None:
    amount = Amount(Decimal("0.5"))
    rules = replace(EXACT, same=lambda old, new, *_: amount.accepts("value", old["value"], new["value"]))
    ours = [emission(value, number) for number, value in enumerate((1.0, 2.0, 3.0))]
    theirs = [emission(value, number) for number, value in enumerate((1.5, 2.6, 3.0))]
    assert classes(ours, theirs, rules) == {"equal": 2, "different": 1}


def test_long_lists_are_cut_where_both_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = [emission(number % 5, number) for number in range(400)]
    theirs = [item for number, item in enumerate(ours) if number % 7]
    expected = classes(ours, theirs)
    monkeypatch.setattr(alignment, "MOST_CELLS", 50)
    assert classes(ours, theirs) == expected == {"equal": len(theirs), "missing": 58}


def test_long_lists_without_a_common_place_are_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "MOST_CELLS", 4)
    row, other = (Row(np.arange(9) + by, np.zeros(9, np.int64) - by) for by in (0, 100))
    assert Aligner().pairs(row, other) == []
    assert Aligner().pairs(row, row) == [(number, number) for number in range(9)]


def test_last_hop_is_the_newest_position() -> None:
    assert last_hop("orders/0/7;totals/1/3") == ("totals", 1, 3)
    assert last_hop("a/b/0/7") == ("a/b", 0, 7)
    assert [last_hop(text) for text in (None, "", "orders", "orders/0", "orders/0/x", "/0/1")] == [None] * 6
