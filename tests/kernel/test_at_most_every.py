"""`on: change` with `at_most_every`: the first change at once, the last one of an interval at its end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernel.kernel_for_tests import Kernel, records
from tests.kernel.model import Batch
from tests.kernel.model.strategies import Case

SPACED = {"on": "change", "at_most_every": "30ms", "clock": "run"}
LATEST = {"name": "out", "reduce": "latest", "select": {"i": "i"}, "emit": SPACED}
COUNTED = {"name": "out", "reduce": {"n": "count(*)"}, "emit": SPACED}
Emitted = list[tuple[Any, int, str, int]]


def run(*batches: Batch, stage: dict[str, Any] = LATEST, **emit: Any) -> Kernel:
    """Return the kernel after these batches; `emit` are more options of the stage."""
    kernel = Kernel(Case({**stage, "emit": {**stage["emit"], **emit}}))
    for batch in batches:
        kernel.apply(batch)
    return kernel


def emitted(kernel: Kernel, key: str = "a") -> Emitted:
    """Value, timestamp, reason and instant of the key's emissions."""
    return [
        (emission.value and next(iter(emission.value.values())), *(emission.timestamp, emission.reason), at)
        for emission in kernel.emissions
        for at in [emission.at]
        if emission.key == key
    ]


def test_last_change_goes_out_at_the_end() -> None:
    changes = records((1, 0), (2, 10), (3, 20))
    assert emitted(run(Batch(changes, clock=29))) == [(1, 0, "new", 0)]
    assert emitted(run(Batch(changes, clock=30))) == [(1, 0, "new", 0), (3, 20, "at_most_every", 30)]


def test_interval_starts_again_at_its_own_end() -> None:
    kernel = run(Batch(records((1, 0), (2, 10)), clock=30), Batch(records((3, 59), start=3), clock=60))
    assert emitted(kernel)[1:] == [(2, 10, "at_most_every", 30), (3, 59, "at_most_every", 60)]


def test_change_after_the_interval_is_emitted_at_once() -> None:
    kernel = run(Batch(records((1, 0)), clock=40), Batch(records((2, 45), start=2), clock=45))
    assert emitted(kernel) == [(1, 0, "new", 0), (2, 45, "changed", 45)]


def test_record_that_reaches_the_end_replaces_what_waits() -> None:
    kernel = run(Batch(records((1, 0), (2, 10), (3, 30), (4, 59)), clock=59))
    assert emitted(kernel) == [(1, 0, "new", 0), (3, 30, "changed", 30)]
    assert kernel.counts["intermediate-result-suppression"] == 1


def test_record_of_another_key_ends_the_interval() -> None:
    other = records((9, 31), start=3, key="b")
    kernel = run(Batch((*records((1, 0), (2, 10)), *other, *records((3, 32), start=4)), clock=None))
    assert emitted(kernel)[1:] == [(2, 10, "at_most_every", 30)]
    assert kernel.buffered().records == 1


def test_value_that_returns_is_not_emitted() -> None:
    kernel = run(Batch(records((1, 0), (2, 10), (1, 20)), clock=90), Batch(records((3, 95), start=4)))
    assert emitted(kernel) == [(1, 0, "new", 0), (3, 95, "changed", 95)]
    assert kernel.counts["idempotent-update-skip"] == 1
    assert kernel.buffered().records == 0


def test_deletion_waits_like_any_change() -> None:
    kernel = run(Batch(records((1, 0), (None, 10)), clock=31))
    assert emitted(kernel) == [(1, 0, "new", 0), (None, 10, "at_most_every", 30)]


def test_deletion_of_a_value_that_waits_emits_nothing() -> None:
    changes = records((1, 0), (None, 40), (2, 50), (None, 60))
    assert emitted(run(Batch(changes, clock=90))) == [(1, 0, "new", 0), (None, 40, "deleted", 40)]


def test_deleted_key_returns_after_the_interval() -> None:
    kernel = run(Batch(records((1, 0), (None, 40), (2, 50)), clock=69))
    assert emitted(kernel)[1:] == [(None, 40, "deleted", 40)]
    kernel.apply(Batch((), clock=70))
    assert emitted(kernel)[2:] == [(2, 50, "at_most_every", 70)]


def test_deleted_key_leaves_no_live_state() -> None:
    kernel = run(Batch(records((1, 0), (None, 40)), clock=69))
    assert [row["live"] for row in kernel.state][-1]
    kernel.apply(Batch((), clock=70))
    assert not kernel.state[-1]["live"]
    assert kernel.state[-1]["due_at"] is None


def test_stream_clock_waits_for_the_partitions_time() -> None:
    kernel = run(Batch(records((1, 0), (2, 10)), clock=500), clock="stream")
    assert emitted(kernel) == [(1, 0, "new", 0)]
    kernel.apply(Batch(records((7, 30), start=3, key="b")))
    assert emitted(kernel)[1:] == [(2, 10, "at_most_every", 30)]


def test_late_change_waits_from_the_partitions_time() -> None:
    kernel = run(Batch((), clock=100), Batch(records((1, 3), (2, 5)), clock=130))
    assert emitted(kernel) == [(1, 3, "new", 100), (2, 5, "at_most_every", 130)]


def test_heartbeat_waits_for_the_end_of_the_interval() -> None:
    beating = {"heartbeat": "30ms", "clock": "stream"}
    kernel = run(Batch(records((1, 0), (2, 10)), clock=None), **beating)
    kernel.apply(Batch((*records((7, 31), start=3, key="b"), *records((2, 45), (2, 60), start=4))))
    # the value has the timestamp 10, and was emitted at 30
    assert emitted(kernel)[1:] == [(2, 10, "at_most_every", 30), (2, 60, "heartbeat", 60)]


def test_clock_repeats_a_value_that_waited() -> None:
    kernel = run(Batch(records((1, 0), (2, 10)), clock=95), heartbeat="40ms")
    assert emitted(kernel)[1:] == [(2, 10, "at_most_every", 30), (2, 70, "heartbeat", 70)]


def test_value_within_tolerance_does_not_wait() -> None:
    within = {"equal": {"within": {"i": 5}}}
    kernel = run(Batch(records((10, 0), (20, 10), (13, 20)), clock=90), **within)
    assert emitted(kernel) == [(10, 0, "new", 0)]


def test_aggregate_is_emitted_as_at_the_end() -> None:
    kernel = run(Batch(records((1, 0), (1, 10), (1, 20)), clock=30), stage=COUNTED)
    assert emitted(kernel) == [(1, 0, "new", 0), (3, 20, "at_most_every", 30)]


def test_change_of_a_window_waits_past_its_end() -> None:
    windowed = {**COUNTED, "window": {"tumbling": "20ms"}}
    kernel = run(Batch(records((1, 0), (1, 10)), clock=29), Batch((), clock=30), stage=windowed)
    assert emitted(kernel) == [(1, 0, "new", 0), (2, 10, "at_most_every", 30)]
    assert not kernel.state[-1]["live"]


def test_drain_emits_what_waits() -> None:
    kernel = run(Batch(records((1, 0), (2, 10)), clock=20))
    kernel.drain()
    assert emitted(kernel)[1:] == [(2, 10, "drained", 20)]
    assert kernel.buffered().records == 0


@pytest.mark.parametrize("clock", [3, 29])
def test_replayed_batch_changes_nothing_that_waits(clock: int) -> None:
    first = Batch(records((1, 0), (2, 10)), clock=clock)
    kernel = run(first, first, Batch((), clock=30))
    assert emitted(kernel)[1:] == [(2, 10, "at_most_every", 30)]
    assert kernel.counts["deduplicated"] == 2


def test_added_interval_begins_with_next_emission() -> None:
    kernel = run(Batch(records((1, 0)), clock=5), at_most_every="1ms")
    edited = Kernel(Case(LATEST))
    edited.state, edited.times, edited.clock, edited.seq = kernel.state, kernel.times, kernel.clock, 1
    for row in edited.state:
        row["flushed_at"] = None  # as a stage without `at_most_every` writes it
    edited.apply(Batch(records((2, 6), (3, 7), start=2), clock=36))
    assert emitted(edited) == [(2, 6, "changed", 6), (3, 7, "at_most_every", 36)]
