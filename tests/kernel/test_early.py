"""`early` of `on: window_close`: results before the window is over, and then the final one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernel.kernel_for_tests import Kernel, records
from tests.kernel.model import Batch
from tests.kernel.model.strategies import Case
from tests.model.files import refused

WINDOW = {"tumbling": "50ms", "grace": "10ms"}
MOST = {"name": "out", "window": WINDOW, "reduce": {"most": "max(i)"}}
LATEST = {"name": "out", "window": WINDOW, "reduce": "latest", "select": {"i": "i"}}
EVERY = {"early": {"every": "20ms"}, "clock": "run"}
CHANGES = {"early": {"on": "change"}, "clock": "run"}


def run(*batches: Batch, stage: dict[str, Any] = MOST, **emit: Any) -> Kernel:
    kernel = Kernel(Case({**stage, "emit": {"on": "window_close", **emit}}))
    for batch in batches:
        kernel.apply(batch)
    return kernel


def emitted(kernel: Kernel) -> list[tuple[Any, int, str, int]]:
    """Value, timestamp, reason and instant of the emissions of key a."""
    return [
        (
            emission.value and next(iter(emission.value.values())),
            *(emission.timestamp, emission.reason, emission.at),
        )
        for emission in kernel.emissions
        if emission.key == "a"
    ]


def test_multiples_count_from_the_window_start() -> None:
    kernel = run(Batch(records((1, 55), (2, 75)), clock=150), **EVERY)
    # the record of 75 reaches the multiple 70 itself, and is in its result
    assert emitted(kernel) == [(2, 75, "early", 70), (2, 75, "window_close", 110)]


def test_each_multiple_with_a_change_emits() -> None:
    kernel = run(Batch(records((1, 55)), clock=69), Batch(records((2, 69), start=2), clock=90), **EVERY)
    assert emitted(kernel) == [(2, 69, "early", 70)]
    kernel.apply(Batch(records((3, 91), start=3), clock=200))
    assert emitted(kernel)[1:] == [(3, 91, "window_close", 110)]


def test_early_results_go_on_in_the_grace() -> None:
    kernel = run(Batch(records((1, 55)), clock=101), **{**EVERY, "early": {"every": "26ms"}})
    kernel.apply(Batch(records((2, 99), start=2), clock=105))
    assert emitted(kernel) == [(1, 55, "early", 76), (2, 99, "early", 102)]
    kernel.apply(Batch((), clock=110))
    assert emitted(kernel)[2:] == [(2, 99, "window_close", 110)]


def test_unchanged_value_is_not_emitted_early() -> None:
    kernel = run(Batch(records((2, 55)), clock=75), Batch(records((1, 76), start=2), clock=95), **EVERY)
    assert emitted(kernel) == [(2, 55, "early", 70)]
    assert kernel.counts["idempotent-update-skip"] == 1


def test_final_result_equals_the_last_early_one() -> None:
    kernel = run(Batch(records((2, 55)), clock=75), Batch((), clock=110), Batch((), clock=300), **EVERY)
    assert emitted(kernel) == [(2, 55, "early", 70), (2, 55, "window_close", 110)]
    assert not kernel.state[-1]["live"]


def test_record_that_changes_the_value_is_emitted_early() -> None:
    kernel = run(Batch(records((2, 55), (1, 56), (3, 57)), clock=300), **CHANGES)
    assert emitted(kernel) == [(2, 55, "early", 55), (3, 57, "early", 57), (3, 57, "window_close", 110)]


def test_late_record_waits_for_the_next_multiple() -> None:
    kernel = run(Batch((), clock=85), Batch(records((1, 55)), clock=89), **EVERY)
    assert emitted(kernel) == []
    kernel.apply(Batch((), clock=90))
    assert emitted(kernel) == [(1, 55, "early", 90)]


def test_deletion_is_an_early_result() -> None:
    kernel = run(Batch(records((1, 55), (None, 56)), clock=300), stage=LATEST, **CHANGES)
    assert emitted(kernel) == [(1, 55, "early", 55), (None, 56, "early", 56)]


def test_hopping_windows_each_have_early_results() -> None:
    hopping = {**MOST, "window": {"hopping": "50ms", "every": "25ms"}}
    kernel = run(Batch(records((1, 60)), clock=71), stage=hopping, **EVERY)
    assert [(emission.window, emission.at) for emission in kernel.emissions] == [
        ((25, 75), 65),
        ((50, 100), 70),
    ]


SESSION = {"window": {"session": "1h"}, "reduce": {"n": "count(*)"}}
CUMULATING = {"window": {"cumulating": "1h", "every": "10m"}, "reduce": {"n": "count(*)"}}
HOUR = {"window": {"tumbling": "1h"}, "reduce": {"n": "count(*)"}}
MISTAKES: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    (HOUR, {"early": {}}, "emit.early", "at fixed times, or with changes"),
    (HOUR, {"early": {"every": "1m", "on": "change"}}, "emit.early", "at fixed times, or with changes"),
    (HOUR, {"early": {"on": "update"}}, "emit.early.on", "'update' is not known"),
    (HOUR, {"early": {"every": "1h"}}, "emit", "over before the first early result"),
    (HOUR, {"early": {"after": "1m"}}, "emit.early.after", "unknown field `after`"),
    (SESSION, {"early": {"every": "1m"}}, "emit", "a session has no window"),
    (CUMULATING, {"early": {"every": "1m"}}, "emit", "go with tumbling and hopping windows"),
    ({**HOUR, "reduce": "collect"}, {"early": {"every": "1m"}}, "emit", "take the events out"),
    (HOUR, {"early": {"every": "1m"}, "buffer": {"max_records": 5}}, "emit.early", "a bounded buffer"),
]


@pytest.mark.parametrize(
    ("stage", "emit", "field", "part"), MISTAKES, ids=[str(case[1]) for case in MISTAKES]
)
def test_early_results_that_cannot_be_are_refused(
    stage: dict[str, Any], emit: dict[str, Any], field: str, part: str
) -> None:
    (mistake,) = refused({**stage, "emit": {"on": "window_close", **emit}})
    assert mistake[0].endswith(field)
    assert part in mistake[1]
