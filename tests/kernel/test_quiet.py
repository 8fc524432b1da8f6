"""`on: quiet`: a value goes out once per silence of its key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel, records
from tests.kernel.log_in_sql import GAPS, in_sql, log_of
from tests.kernel.model import Batch
from tests.kernel.model.strategies import Case

LATEST: dict[str, Any] = {"name": "out", "reduce": "latest", "select": {"i": "i"}}
COUNT: dict[str, Any] = {"name": "out", "reduce": {"n": "count(*)"}}
EVENTS: dict[str, Any] = {**LATEST, "reduce": "collect"}


def kernel_of(stage: dict[str, Any], clock: str = "stream", **options: Any) -> Kernel:
    emit = {"on": "quiet", "after": "10ms", "clock": clock, **options}
    return Kernel(Case({**stage, "emit": emit}), compacting=True)


def emitted(*batches: Batch, stage: dict[str, Any] = LATEST, clock: str = "stream") -> list[tuple[Any, ...]]:
    """Key, value, timestamp and instant of what goes out."""
    kernel = kernel_of(stage, clock)
    for batch in batches:
        kernel.apply(batch)
    assert {emission.reason for emission in kernel.emissions} <= {"quiet"}
    return [(emission.key, emission.value, emission.timestamp, emission.at) for emission in kernel.emissions]


def i(value: int) -> dict[str, int]:
    return {"i": value}


def test_last_value_is_emitted_once_per_silence() -> None:
    burst, again = records((1, 0), (2, 6), (3, 12)), records((4, 70), start=5)
    second_key = [records((9, at), key="b", start=start) for at, start in ((40, 4), (60, 6), (90, 7))]
    log = [burst, second_key[0], again, *second_key[1:]]
    assert [row for row in emitted(*map(Batch, log)) if row[0] == "a"] == [
        ("a", i(3), 12, 22),
        ("a", i(4), 70, 80),
    ]


def test_record_after_exactly_that_time_prolongs_silence() -> None:
    assert emitted(Batch(records((1, 0), (2, 10), (3, 20)))) == []
    assert emitted(Batch(records((1, 0))), Batch(records((2, 10), start=2))) == []


def test_record_beyond_a_silence_begins_another_one() -> None:
    for batches in (
        [records((1, 0), (2, 11), (3, 40))],
        [records((1, 0)), records((2, 11), (3, 40), start=2)],
    ):
        assert emitted(*map(Batch, batches)) == [("a", i(1), 0, 10), ("a", i(2), 11, 21)]


def test_older_record_does_not_shorten_the_silence() -> None:
    out_of_order = records((1, 8), (2, 1))
    assert emitted(Batch(out_of_order), Batch(records((0, 17), key="b", start=3))) == []
    assert emitted(Batch(out_of_order), Batch(records((0, 18), key="b", start=3))) == [("a", i(2), 1, 18)]


def test_late_record_is_emitted_at_once() -> None:
    late = emitted(Batch(records((0, 50), key="b")), Batch(records((1, 3), start=2)))
    assert late == [("a", i(1), 3, 50)]


def test_run_clock_emits_an_idle_key() -> None:
    batches = Batch(records((1, 0)), clock=5), Batch((), clock=9), Batch((), clock=10), Batch((), clock=90)
    assert emitted(*batches, clock="run") == [("a", i(1), 0, 10)]
    assert emitted(*batches) == []


def test_repeated_record_does_not_restart_the_silence() -> None:
    first = records((1, 0), (2, 4))
    kernel = kernel_of(LATEST, "run")
    kernel.apply(Batch(first, clock=5))
    kernel.apply(Batch((first[1],), clock=14))
    assert kernel.counts["deduplicated"] == 1
    assert [emission.at for emission in kernel.emissions] == [14]


def test_deletion_is_emitted_after_its_silence() -> None:
    deleted = records((None, 20), start=2)
    assert emitted(Batch(records((1, 0)), clock=15), Batch(deleted, clock=40), clock="run") == [
        ("a", i(1), 0, 10),
        ("a", None, 20, 30),
    ]
    assert emitted(Batch(records((1, 0), (None, 5)), clock=40), clock="run") == []


def test_counts_go_on_and_events_begin_anew() -> None:
    batches = Batch(records((1, 0), (2, 3)), clock=20), Batch(records((3, 30), start=3), clock=50)
    assert emitted(*batches, stage=COUNT, clock="run") == [("a", {"n": 2}, 3, 13), ("a", {"n": 3}, 30, 40)]
    assert emitted(*batches, stage=EVENTS, clock="run") == [
        ("a", {"events": [i(1), i(2)]}, 3, 13),
        ("a", {"events": [i(3)]}, 30, 40),
    ]


@pytest.mark.parametrize(("after", "instant"), [("4ms", 15), ("30ms", 35)])
def test_edit_of_after_counts_from_the_newest_record(after: str, instant: int) -> None:
    kernel = kernel_of(LATEST, "run")
    kernel.apply(Batch(records((1, 0), (2, 5)), clock=6))
    edited = kernel_of(LATEST, "run", after=after)
    edited.state, edited.times, edited.clock, edited.seq = kernel.state, kernel.times, kernel.clock, 1
    # a timer that is set already fires no earlier
    edited.apply(Batch((), clock=14))
    assert edited.emissions == []
    edited.apply(Batch(records((0, 20), key="b", start=3), clock=20))
    edited.apply(Batch((), clock=34))
    edited.apply(Batch((), clock=35))
    assert [emission.at for emission in edited.emissions if emission.key == "a"] == [instant]


def test_drain_emits_what_waits_for_silence() -> None:
    kernel = kernel_of(LATEST)
    kernel.apply(Batch(records((1, 0), (2, 5))))
    kernel.drain()
    kernel.apply(Batch(records((0, 90), key="b", start=3)))
    assert [(emission.key, emission.reason) for emission in kernel.emissions] == [("a", "drained")]


@examples(60)
@given(GAPS, st.integers(1, 20))
def test_silences_are_those_of_sql(gaps: list[tuple[str, int]], size: int) -> None:
    log, kernel = log_of(gaps), kernel_of(LATEST)
    for start in range(0, len(log), size):
        kernel.apply(Batch(tuple(log[start : start + size])))
    silences = [(emission.key, emission.timestamp, emission.at) for emission in kernel.emissions]
    # a key's own record at the end of its silence prolongs it, unless another key's record came there before
    until_next = "o.number between b.number and coalesce(next, 1000) - 1"
    ended = f"exists (select 1 from log o where {until_next} and o.ts - b.ts >= 10)"
    assert sorted(silences) == in_sql(log, f"after - ts > 10 or {ended}", "key, ts, ts + 10")
