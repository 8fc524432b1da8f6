"""`until` of `on: threshold`: a condition that the last record of a buffer fulfils."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernel.kernel_for_tests import Kernel
from tests.kernel.model import Batch, Record
from tests.kernel.model.strategies import Case
from tests.model.files import made, refused
from tidegate.errors import ConditionFailed

COLLECT = {"name": "out", "reduce": "collect", "select": {"i": "i", "x": "x"}}


def records(*values: tuple[int | None, int], start: int = 1) -> tuple[Record, ...]:
    """Records of one key and partition: value and timestamp."""
    return tuple(
        Record("a", {"i": i, "x": 1.0, "s": "s"}, "in", 0, offset, timestamp)
        for offset, (i, timestamp) in enumerate(values, start)
    )


def run(*batches: Batch, stage: dict[str, Any] = COLLECT, **emit: Any) -> Kernel:
    emit = {"on": "threshold", "clock": "stream", **emit}
    # what the model makes of a condition does not matter here
    kernel = Kernel(Case({**stage, "emit": emit}, conditions={emit["until"]: lambda row: None}))
    for batch in batches:
        kernel.apply(batch)
    return kernel


def emitted(kernel: Kernel) -> list[tuple[Any, str]]:
    """The emitted numbers, and the reason."""
    return [(_numbers(emission.value), emission.reason) for emission in kernel.emissions]


def _numbers(value: Any) -> Any:
    return [event["i"] for event in value["events"]] if "events" in value else value


def test_record_that_fulfils_it_is_included() -> None:
    kernel = run(Batch(records((1, 0), (9, 1), (2, 2), (9, 3), (4, 4))), until="i = 9")
    assert emitted(kernel) == [([1, 9], "until"), ([2, 9], "until")]
    assert kernel.buffered().records == 1


def test_buffer_of_the_state_ends_too() -> None:
    kernel = run(Batch(records((1, 0), (2, 1))), Batch(records((9, 2), start=3)), until="i = 9")
    assert emitted(kernel) == [([1, 2, 9], "until")]


def test_null_does_not_fulfil_it() -> None:
    assert emitted(run(Batch(records((None, 0), (9, 1))), until="i = 9")) == [([None, 9], "until")]


@pytest.mark.parametrize("until", ["n >= 2", "n >= 2 or i = 7"])
def test_number_of_records_is_n(until: str) -> None:
    assert emitted(run(Batch(records((1, 0), (2, 1), (3, 2))), until=until)) == [([1, 2], "until")]


def test_column_named_n_hides_the_number() -> None:
    counted = {"name": "out", "reduce": {"n": "sum(i)"}}
    assert emitted(run(Batch(records((1, 0), (2, 1), (3, 2))), stage=counted, until="n >= 5")) == [
        ({"n": 6}, "until")
    ]


def test_count_is_the_reason_if_both_hold() -> None:
    batch = Batch(records((1, 0), (9, 1), (3, 2), (4, 3)))
    assert emitted(run(batch, until="i = 9", count=2)) == [([1, 9], "count"), ([3, 4], "count")]


def test_time_ends_a_buffer_before_the_condition() -> None:
    batch = Batch(records((1, 0), (2, 30), (3, 31), (9, 32)))
    assert emitted(run(batch, until="i = 9", after="20ms")) == [([1, 2], "elapsed"), ([3, 9], "until")]


def test_aggregates_are_tested_with_the_record() -> None:
    totals = {"name": "out", "reduce": {"total": "sum(i)"}}
    kernel = run(Batch(records((60, 0), (50, 1), (99, 2), (1, 3))), stage=totals, until="total >= 100")
    assert emitted(kernel) == [({"total": 110}, "until"), ({"total": 100}, "until")]


def test_column_of_the_key_can_be_tested() -> None:
    emit = {"on": "threshold", "until": "s = 'a'"}
    source = {**Kernel(Case({**COLLECT, "emit": {"on": "update"}})).source, "key": ["s"]}
    kernel = Kernel(Case({**COLLECT, "emit": emit}, conditions={"s = 'a'": bool}), source=source)
    kernel.apply(Batch(records((1, 0))))
    assert emitted(kernel) == [([1], "until")]


@pytest.mark.parametrize("until", ["10 / i > 1", "10 / i > 1 and n > 0"])
def test_condition_that_fails_names_the_record(until: str) -> None:
    with pytest.raises(ConditionFailed, match=r"in/0/2.*divi|divi.*in/0/2"):
        run(Batch(records((20, 0), (0, 1))), until=until)


def test_record_on_which_it_fails_is_quarantined() -> None:
    stage = {**COLLECT, "on_error": "quarantine"}
    kernel = run(Batch(records((20, 0), (0, 1), (4, 2))), stage=stage, until="10 / i > 1")
    assert emitted(kernel) == [([20, 4], "until")]
    assert kernel.counts["quarantined"] == 1


def test_until_alone_is_a_threshold() -> None:
    emit = made({"reduce": "collect", "emit": {"on": "threshold", "until": "id = 9"}}).stages[0].emit
    assert not emit.max_text_bytes
    assert emit.longest_hold_ms(None) == 0


MISTAKES = [
    ({}, "emit", "there is no threshold"),
    ({"until": "idd = 9"}, "emit.until", "the column `idd` does not exist"),
    ({"until": "id + 1"}, "emit.until", "neither true nor false"),
    ({"until": "rand() > 0.5"}, "emit.until", "rand"),
    ({"until": 9}, "emit.until", "it has to be text, not 9"),
    ({"until": "events[0].id = 9"}, "emit.until", "the column `events` does not exist"),
]


@pytest.mark.parametrize(("options", "field", "part"), MISTAKES, ids=[str(case[0]) for case in MISTAKES])
def test_mistake_in_the_condition_is_reported(options: dict[str, Any], field: str, part: str) -> None:
    (mistake,) = refused({"reduce": "collect", "emit": {"on": "threshold", **options}})
    assert mistake[0].endswith(field)
    assert part in mistake[1]
