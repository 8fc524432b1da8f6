"""Columns that are expressions over aggregates, record by record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.kernel.test_on_error import decide, failure, record, setting_aside
from tidegate import kernel
from tidegate.errors import ConditionFailed, RecordFailed

SUM, COUNT = kernel.Aggregate("_sum", "sum", "n"), kernel.Aggregate("times", "count", "xs")
MEAN = kernel.Formula("mean", "sum(n) / count(xs)", ("/", ("column", "n"), ("column", "xs")))
SHARE = kernel.Formula("share", "count(xs) / sum(n)", ("/", ("column", "xs"), ("column", "n")))
PARTS = (kernel.Aggregate("n", "sum"), kernel.Aggregate("xs", "count"))
UPDATE = kernel.Stage(kernel.Aggregates(PARTS, (MEAN,)), kernel.Update(), name="means")
SHARES = replace(UPDATE, reduce=kernel.Aggregates(PARTS, (SHARE,)))


def values(decided: Any) -> list[Any]:
    return [row["value"] for row in decided.emissions]


def test_only_the_result_of_the_formula_goes_out() -> None:
    decided = decide(UPDATE, [record(0, n=3), record(1, n=4)])
    assert values(decided) == [{"mean": 3.0}, {"mean": 3.5}]


def test_state_has_the_aggregates_and_the_last_result() -> None:
    (state,) = decide(UPDATE, [record(0, n=3), record(1, n=4)]).states
    assert (state["accumulator"], state["emitted"]) == ({"n": 7, "xs": 2}, {"mean": 3.5})


@pytest.mark.parametrize("emit", [kernel.Update(), kernel.Change(("mean",))])
def test_cut_changes_no_result(emit: kernel.Emit) -> None:
    stage, state, emitted = replace(UPDATE, emit=emit), [], []
    numbers = [3, 3, 4, -10, 0]
    for offset, n in enumerate(numbers):
        decided = decide(stage, [record(offset, n=n)], state)
        state = [{**row, "updated_seq": offset} for row in decided.states] or state
        emitted += values(decided)
    assert emitted == values(decide(stage, [record(offset, n=n) for offset, n in enumerate(numbers)]))


def test_division_by_zero_names_its_record() -> None:
    error = failure(SHARES, record(3, n=1), record(4, n=-1))
    assert isinstance(error, RecordFailed)
    assert "`share: count(xs) / sum(n)` has no result: it divides by zero" in error.what
    assert "at the record t/0/4 in the stage `means`" in error.what
    assert "nullif" in error.fix


def test_record_without_a_result_goes_into_quarantine() -> None:
    decided = decide(setting_aside(SHARES), [record(3, n=1), record(4, n=-1), record(5, n=3)])
    assert values(decided) == [{"share": 1.0}, {"share": 0.5}]
    (reason,) = [row["input"]["reason"] for row in decided.quarantined]
    assert "it divides by zero" in reason


def test_waiting_value_needs_no_result_yet() -> None:
    stage = replace(SHARES, emit=kernel.TimeLimit(1000))
    (state,) = decide(stage, [record(3, n=0)]).states
    assert (state["pending"], state["bytes"]) == (1, 0)
    decided = decide(stage, [record(4, timestamp=999, n=4), record(5, timestamp=1000, n=0, key="j")], [state])
    assert values(decided) == [{"share": 0.5}]


def test_condition_of_the_stage_names_the_result() -> None:
    from tidegate.expressions import Condition

    where = Condition("mean > 3", (">", ("column", "mean"), ("literal", 3.0)))
    assert values(decide(replace(UPDATE, where=where), [record(0, n=3), record(1, n=4)])) == [{"mean": 3.5}]


def test_types_that_do_not_fit_are_named() -> None:
    wrong = kernel.Formula("x", "max(at) + 1", ("+", ("column", "at"), ("literal", 1)))
    stage = replace(UPDATE, reduce=kernel.Aggregates((kernel.Aggregate("at", "max"),), (wrong,)))
    with pytest.raises(ConditionFailed, match=r"`x: max\(at\) \+ 1`: `\+` computes with timestamp"):
        decide(stage, [record(0, at=0)])
