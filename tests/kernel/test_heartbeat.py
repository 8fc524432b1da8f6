"""`heartbeat` under `clock: run`: an unchanged value also goes out without a record."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel, records
from tests.kernel.model import Batch, Record
from tests.kernel.model.strategies import Case, cases, cut, histories, logs
from tests.kernel.test_against_model import assert_alike, by_key, counted, filled

HOURLY = {"on": "change", "heartbeat": "10ms", "clock": "run"}
LATEST = {"name": "out", "reduce": "latest", "select": {"i": "i"}, "emit": HOURLY}


def emitted(*batches: Batch, stage: dict[str, Any] = LATEST) -> list[tuple[Any, int, str, int]]:
    """Value, timestamp, reason and instant of what goes out."""
    kernel = Kernel(Case(stage))
    for batch in batches:
        kernel.apply(batch)
    return [
        (emission.value and emission.value["i"], emission.timestamp, emission.reason, emission.at)
        for emission in kernel.emissions
    ]


def test_idle_key_repeats_at_each_heartbeat() -> None:
    assert emitted(Batch(records((1, 0)), clock=5), Batch((), clock=25), Batch((), clock=30)) == [
        (1, 0, "new", 0),
        (1, 10, "heartbeat", 10),
        (1, 20, "heartbeat", 20),
        (1, 30, "heartbeat", 30),
    ]


def test_a_change_starts_the_heartbeat_again() -> None:
    assert emitted(Batch(records((1, 0), (2, 7)), clock=16), Batch((), clock=17)) == [
        (1, 0, "new", 0),
        (2, 7, "changed", 7),
        (2, 17, "heartbeat", 17),
    ]


def test_late_value_repeats_a_heartbeat_after_its_emission() -> None:
    late = Batch(records((1, 3)), clock=109)
    assert emitted(Batch((), clock=100), late, Batch((), clock=110)) == [
        (1, 3, "new", 100),
        (1, 110, "heartbeat", 110),
    ]


def test_record_that_reaches_the_heartbeat_replaces_it() -> None:
    assert emitted(Batch(records((1, 0), (1, 12)), clock=21)) == [(1, 0, "new", 0), (1, 12, "heartbeat", 12)]


def test_a_deleted_key_has_no_heartbeat() -> None:
    deleted = emitted(Batch(records((1, 0), (None, 4)), clock=5), Batch((), clock=90))
    assert deleted == [(1, 0, "new", 0), (None, 4, "deleted", 4)]


def test_stream_clock_heartbeat_needs_a_record() -> None:
    by_records = {**LATEST, "emit": {**HOURLY, "clock": "stream"}}
    assert emitted(Batch(records((1, 0)), clock=90), stage=by_records) == [(1, 0, "new", 0)]


def test_a_window_that_is_over_has_no_heartbeat() -> None:
    windowed = {**LATEST, "window": {"tumbling": "25ms"}}
    assert emitted(Batch(records((1, 0)), clock=90), stage=windowed) == [
        (1, 0, "new", 0),
        (1, 10, "heartbeat", 10),
        (1, 20, "heartbeat", 20),
    ]


def test_edit_that_removes_heartbeat_keeps_last_emission() -> None:
    kernel = Kernel(Case(LATEST))
    kernel.apply(Batch(records((1, 0)), clock=5))
    edited = Kernel(Case({**LATEST, "emit": {"on": "change", "equal": "bytes", "clock": "run"}}))
    edited.state, edited.times, edited.clock, edited.seq = kernel.state, kernel.times, kernel.clock, 1
    edited.apply(Batch(records((1, 50), (1, 51), start=2), clock=60))
    assert edited.emissions == []


RUNS: dict[str, Any] = {"emits": ["change"], "clocks": ["run"]}


@examples(200)
@given(cases(**RUNS), histories(one_partition_per_key=True), st.integers(1, 7), st.booleans())
def test_the_kernel_repeats_what_the_model_repeats(
    case: Case, batches: list[Batch], arrow_rows: int, sparing: bool
) -> None:
    case.stage["emit"].setdefault("heartbeat", case.stage["emit"].get("at_most_every", "10ms"))
    case.stage["emit"].pop("state", None)
    kernel, model = Kernel(case, arrow_rows, sparing), case.model()
    assert not filled(model, batches)
    assert not filled(kernel, batches)
    assert_alike(kernel, model, ordered=True)


@examples(100)
@given(cases(**RUNS), logs(one_partition_per_key=True), st.integers(0, 90), st.data())
def test_heartbeats_do_not_depend_on_interval_splits(
    case: Case, log: Sequence[list[Record]], clock: int, data: st.DataObject
) -> None:
    case.stage["emit"].setdefault("heartbeat", case.stage["emit"].get("at_most_every", "10ms"))
    case.stage["emit"].pop("state", None)
    whole = [Batch(tuple(itertools.chain(*log)), clock)]
    *first, last = data.draw(cut(log))
    outcomes = []
    for batches in (whole, [*first, Batch(last.records, clock)]):
        kernel = Kernel(case)
        filled(kernel, batches)
        outcomes.append(repr((by_key(kernel.emissions), counted(kernel.counts))))
    assert outcomes[0] == outcomes[1]
