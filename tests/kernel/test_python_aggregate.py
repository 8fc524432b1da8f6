"""Aggregates by a class of the user's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.kernel.test_on_error import decide, failure, record, setting_aside
from tidegate import kernel
from tidegate.errors import UserFunctionFailed
from tidegate.expressions.types import BIGINT
from tidegate.kernel.aggregates.python import PythonAggregate

SPREAD = """
class Spread:
    def __init__(self):
        self.numbers = []
        self.added = 0

    def add(self, number):
        if number < 0:
            raise ValueError("below zero")
        self.numbers.append(number)
        self.added += 1

    def merge(self, other):
        self.numbers += other.numbers
        self.added += other.added

    def result(self):
        return max(self.numbers) - min(self.numbers)


class Vague(Spread):
    def result(self):
        return "much"


class Hidden(Spread):
    def add(self, number):
        self.numbers = {number}
"""


@pytest.fixture
def module(modules: Path) -> str:
    name = f"shop_{uuid4().hex}"
    (modules / f"{name}.py").write_text(SPREAD)
    return name


def stage(module: str, name: str = "Spread") -> kernel.Stage:
    python = PythonAggregate(f"{module}:{name}", "n", BIGINT).with_digest()
    reduce = kernel.Aggregates((kernel.Aggregate("n", "python", "n", python=python),))
    return kernel.Stage(reduce, kernel.Update(), name="spreads")


def values(decided: Any) -> list[Any]:
    return [row["value"]["n"] for row in decided.emissions]


def test_class_folds_the_records_of_a_key(module: str) -> None:
    decided = decide(stage(module), [record(0, n=3), record(1, n=None), record(2, n=9)])
    assert values(decided) == [0, 0, 6]
    assert decided.states[0]["accumulator"] == {"n": '{"added":2,"numbers":[3,9]}'}


def test_state_goes_on_in_the_next_batch(module: str) -> None:
    state = decide(stage(module), [record(0, n=3)]).states
    assert values(decide(stage(module), [record(1, n=9)], state)) == [6]


def test_sessions_that_become_one_are_merged(module: str) -> None:
    sessions = replace(stage(module), window=kernel.Session(10, 100))
    records = [record(0, 0, n=3), record(1, 20, n=9), record(2, 10, n=4)]
    assert decide(sessions, records).emissions[-1]["value"] == {"n": 6}


def test_error_of_a_method_names_its_record(module: str) -> None:
    error = failure(stage(module), record(0, n=3), record(1, n=-1))
    assert isinstance(error, UserFunctionFailed)
    assert f"The method {module}:Spread.add raised ValueError: below zero" in error.what
    assert "t/0/1" in error.what


def test_record_that_a_method_refuses_leaves_no_trace(module: str) -> None:
    decided = decide(setting_aside(stage(module)), [record(0, n=3), record(1, n=-1), record(2, n=5)])
    assert (values(decided), len(decided.quarantined)) == ([0, 2], 1)
    assert decided.states[0]["accumulator"] == {"n": '{"added":2,"numbers":[3,5]}'}


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("Vague", "result gave 'much', which is no bigint"),
        ("Hidden", "add leaves attributes that are no JSON"),
    ],
)
def test_class_that_cannot_be_used_is_named(module: str, name: str, part: str) -> None:
    assert part in str(failure(stage(module, name), record(0, n=3)))


def test_class_of_another_plan_is_refused(module: str) -> None:
    reduce = stage(module).reduce
    assert isinstance(reduce, kernel.Aggregates)
    (part,) = reduce.aggregates
    assert part.python is not None
    changed = replace(part, python=replace(part.python, digest="0"))
    error = failure(replace(stage(module), reduce=kernel.Aggregates((changed,))), record(0, n=3))
    assert "is not that of the function which the batch was planned with" in error.what


def test_class_can_take_values_back(module: str) -> None:
    from tidegate.kernel.aggregates.retraction import retracting

    rule = retracting(PythonAggregate(f"{module}:Spread", "n", BIGINT).rule())
    assert rule.retract is not None
    bag = rule.fold(rule.fold(rule.fold(rule.start(), 3), 9), 4)
    assert rule.finish(rule.retract(bag, 9)) == 1
