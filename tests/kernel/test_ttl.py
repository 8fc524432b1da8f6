"""`ttl`: a key's state is removed so long after the last record that changed it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel, records
from tests.kernel.log_in_sql import GAPS, in_sql, log_of
from tests.kernel.model import Batch, Record
from tests.kernel.model.strategies import Case, cut, logs
from tests.kernel.test_against_model import by_key, counted, filled

CHANGE: dict[str, Any] = {"name": "out", "reduce": "latest", "select": {"i": "i"}, "emit": {"on": "change"}}
DELETING: dict[str, Any] = {"after": "10ms", "emit": "deletion"}
LARGEST: dict[str, Any] = {"name": "out", "reduce": {"most": "max(i)"}, "emit": {"on": "change"}}


def kernel_of(stage: dict[str, Any] = CHANGE, ttl: Any = DELETING, clock: str = "stream") -> Kernel:
    emit = {**stage["emit"], "clock": clock}
    case = Case({**stage, "emit": emit, **({"ttl": ttl} if ttl else {})})
    return Kernel(case, sparing=True, compacting=True)


def emitted(*batches: Batch, **options: Any) -> list[tuple[Any, ...]]:
    """Value, reason and instant of the emissions of the key `a`."""
    kernel = kernel_of(**options)
    for batch in batches:
        kernel.apply(batch)
    return out(kernel)


def out(kernel: Kernel) -> list[tuple[Any, ...]]:
    return [
        (emission.value and next(iter(emission.value.values())), emission.reason, emission.at)
        for emission in kernel.emissions
        if emission.key == "a"
    ]


def other(timestamp: int, offset: int = 90) -> Batch:
    """A record of another key, with which time passes."""
    return Batch(records((0, timestamp), key="b", start=offset))


def test_idle_key_expires_by_other_records() -> None:
    assert emitted(Batch(records((1, 0))), other(9)) == [(1, "new", 0)]
    assert emitted(Batch(records((1, 0))), other(30)) == [(1, "new", 0), (None, "expired", 10)]


def test_run_clock_expires_an_idle_key() -> None:
    batches = Batch(records((1, 0)), clock=9), Batch((), clock=10)
    assert emitted(*batches, clock="run") == [(1, "new", 0), (None, "expired", 10)]
    assert emitted(*batches) == [(1, "new", 0)]


def test_value_that_returns_counts_as_new() -> None:
    for ttl in ("10ms", DELETING):
        deletion = [(None, "expired", 10)] if ttl == DELETING else []
        expected = [(1, "new", 0), *deletion, (1, "new", 10)]
        assert emitted(Batch(records((1, 0), (1, 10))), ttl=ttl) == expected
        assert emitted(Batch(records((1, 0))), Batch(records((1, 10), start=2)), ttl=ttl) == expected


def test_suppressed_record_does_not_extend_the_time() -> None:
    kernel = kernel_of()
    kernel.apply(Batch(records((1, 0))))
    kernel.apply(Batch(records((1, 8), start=2)))
    assert len(kernel.rows) == 1, "only counts: a suppressed record writes no state"
    kernel.apply(Batch(records((1, 9), start=3)))
    kernel.apply(other(12))
    assert out(kernel) == [(1, "new", 0), (None, "expired", 10)]


def test_changed_value_extends_the_time() -> None:
    assert emitted(Batch(records((1, 0), (2, 8))), other(17), other(18, 91)) == [
        (1, "new", 0),
        (2, "changed", 8),
        (None, "expired", 18),
    ]


def test_older_record_does_not_shorten_the_time() -> None:
    assert emitted(Batch(records((1, 8), (2, 3))), other(17), other(18, 91))[2:] == [(None, "expired", 18)]


def test_aggregate_lives_while_its_value_changes() -> None:
    assert emitted(Batch(records((5, 0), (3, 8))), other(17), stage=LARGEST)[1:] == [(None, "expired", 10)]
    drifting = {**LARGEST, "emit": {"on": "change", "equal": {"within": {"most": 50}}}}
    assert emitted(Batch(records((5, 0), (6, 8))), other(17), stage=drifting) == [(5, "new", 0)]


def test_aggregate_begins_anew_after_its_time() -> None:
    total = {**LARGEST, "reduce": {"n": "count(*)"}, "emit": {"on": "update"}}
    assert emitted(Batch(records((1, 0), (1, 4), (1, 14))), stage=total, ttl="10ms") == [
        (1, "new", 0),
        (2, "changed", 4),
        (1, "new", 14),
    ]


def test_values_that_wait_are_emitted_before() -> None:
    quiet = {**CHANGE, "emit": {"on": "quiet", "after": "10ms"}}
    assert emitted(Batch(records((1, 0))), other(30), stage=quiet) == [
        (1, "quiet", 10),
        (None, "expired", 10),
    ]


def test_deleted_key_does_not_expire() -> None:
    kernel = kernel_of()
    kernel.apply(Batch(records((1, 0), (None, 4))))
    kernel.apply(other(40))
    assert out(kernel) == [(1, "new", 0), (None, "deleted", 4)]
    assert kernel.counts["expired"] == 0


def test_heartbeat_by_the_clock_ends_with_the_state() -> None:
    beating = {**CHANGE, "emit": {"on": "change", "heartbeat": "4ms"}}
    assert emitted(Batch(records((1, 0)), clock=40), stage=beating, clock="run") == [
        (1, "new", 0),
        (1, "heartbeat", 4),
        (1, "heartbeat", 8),
        (None, "expired", 10),
    ]


def test_expired_keys_are_counted_and_leave_nothing() -> None:
    kernel = kernel_of(ttl="10ms")
    kernel.apply(Batch(records((1, 0))))
    assert [row["due_at"] for row in kernel.state] == [10]
    kernel.apply(other(10))
    assert (kernel.counts["expired"], kernel.counts["emitted"]) == (1, 2)
    assert [row["key"] for row in kernel.state] == ["b"]


def test_repeated_root_stays_repeated_after_expiry() -> None:
    case = Case({**CHANGE, "emit": {"on": "update"}, "ttl": "10ms"}, deduplicate="root")
    origin, again = (
        Record("a", {"i": 1}, "in", 0, offset, timestamp, "up/0/7;mid/0/1")
        for offset, timestamp in ((1, 0), (2, 20))
    )
    for batches in ([Batch((origin, again))], [Batch((origin,)), Batch((again,))]):
        kernel = Kernel(case, compacting=True)
        for batch in batches:
            kernel.apply(batch)
        assert [emission.reason for emission in kernel.emissions] == ["new"]


@pytest.mark.parametrize(("before", "after"), [(None, DELETING), (DELETING, None), ("90ms", DELETING)])
def test_edited_ttl_counts_from_the_next_change(before: Any, after: Any) -> None:
    kernel, edited = kernel_of(ttl=before), kernel_of(ttl=after)
    kernel.apply(Batch(records((1, 0))))
    edited.state, edited.times, edited.seq = kernel.state, kernel.times, 1
    edited.apply(other(30))
    assert out(edited) == []
    edited.apply(Batch(records((2, 31), start=2)))
    edited.apply(other(60, 92))
    deletion = [(None, "expired", 90)] if before == "90ms" else [(None, "expired", 41)] if after else []
    edited.apply(other(95, 93))
    assert out(edited) == [(2, "changed", 31), *deletion]


LIVING = st.sampled_from(
    [
        {**stage, "emit": {**stage["emit"], "clock": "stream"}, "ttl": ttl}
        for stage in (CHANGE, LARGEST, {**CHANGE, "emit": {"on": "time_limit", "after": "5ms"}})
        for ttl in ("6ms", {"after": "20ms", "emit": "deletion"})
    ]
)


@examples(100)
@given(LIVING, logs(one_partition_per_key=True), st.data())
def test_expiry_does_not_depend_on_cuts(
    stage: dict[str, Any], log: Sequence[list[Record]], data: st.DataObject
) -> None:
    outcomes = []
    for batches in (
        [Batch(tuple(itertools.chain(*log)))],
        [Batch(tuple(group)) for group in log],
        data.draw(cut(log)),
    ):
        kernel = Kernel(Case(stage), sparing=True, compacting=True)
        filled(kernel, batches)
        outcomes.append(repr((by_key(kernel.emissions), counted(kernel.counts))))
    assert outcomes[0] == outcomes[1] == outcomes[2]


@examples(60)
@given(GAPS, st.integers(1, 20))
def test_returned_values_are_those_of_sql(gaps: list[tuple[str, int]], size: int) -> None:
    log, kernel = log_of(gaps), kernel_of({**CHANGE, "emit": {"on": "update"}})
    for start in range(0, len(log), size):
        kernel.apply(Batch(tuple(log[start : start + size])))
    instants: dict[str, list[tuple[str, int]]] = {"new": [], "expired": [], "changed": []}
    for emission in kernel.emissions:
        instants[emission.reason].append((emission.key, emission.at))
    assert sorted(instants["new"]) == in_sql(log, "before is null or ts - before >= 10", "key, ts")
    over = "coalesce(after, (select max(ts) from log)) - ts >= 10"
    assert sorted(instants["expired"]) == in_sql(log, over, "key, ts + 10")
