"""The kernel against the model, which is written from the same two texts and shares nothing with it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel import kafka_streams
from tests.kernel.kernel_for_tests import Kernel
from tests.kernel.model import Batch, BufferFull, Emission, Model
from tests.kernel.model.records import Record, Refused
from tests.kernel.model.strategies import Case, cases, cut, histories, logs
from tests.kernel.model.values import same
from tidegate import errors

COUNTED = (
    "used", "deduplicated", "expired-window-record-drop", "late-record-drop", "tombstones", "filtered",
    "idempotent-update-skip", "intermediate-result-suppression", "buffer-evict",
    "keys-in-several-partitions", "refused", "expired",
)  # fmt: skip
Out = TypeVar("Out", Emission, Refused)


def filled(runner: Model | Kernel, batches: Iterable[Batch], drained: bool = False) -> bool:
    """Runs the history; whether a bounded buffer was full."""
    try:
        for batch in batches:
            runner.apply(batch)
        if drained:
            runner.drain()
    except (BufferFull, errors.BufferFull):
        return True
    return False


def counted(counts: Counter[str]) -> dict[str, int]:
    """The counts that are compared, without zeros."""
    return {
        name: count
        for name, count in sorted(counts.items())
        if count and (name in COUNTED or name == "emitted" or name.startswith("emitted."))
    }


def by_key(emissions: Iterable[Out], ordered: bool = True) -> dict[str, list[Out]]:
    """Return the emissions by key. Where a key's entries belong to several partitions, `ordered` is
    False: they have no common order.
    """
    emissions_by_key: dict[str, list[Out]] = {}
    for emission in sorted(emissions, key=lambda emission: emission.key):
        emissions_by_key.setdefault(emission.key, []).append(emission)
    return (
        emissions_by_key if ordered else {key: sorted(out, key=repr) for key, out in emissions_by_key.items()}
    )


def plain(emission: Emission | Refused) -> dict[str, Any]:
    """An emission, to be compared by `same`: NaN equals NaN, and 0.0 equals -0.0."""
    return dict(vars(emission))


def assert_alike(kernel: Kernel, model: Model, ordered: bool) -> None:
    emitted, expected = by_key(kernel.emissions, ordered), by_key(model.emissions, ordered)
    for key in sorted(emitted.keys() | expected.keys()):
        left, right = emitted.get(key, []), expected.get(key, [])
        assert same([*map(plain, left)], [*map(plain, right)]), f"{key}: {left} instead of {right}"
    refused = by_key(kernel.refused, ordered), by_key(model.refused, ordered)
    assert [*refused[0]] == [*refused[1]]
    for left, right in zip(*(itertools.chain(*counts.values()) for counts in refused), strict=True):
        assert same(plain(left), plain(right)), f"{left} instead of {right}"
    assert counted(kernel.counts) == counted(model.counts)
    assert kernel.counts["emitted-tombstones"] == [emission.value for emission in model.emissions].count(None)
    assert kernel.buffered() == model.buffered()


@examples(500)
@given(cases(), st.data(), st.integers(1, 7), st.booleans(), st.booleans())
def test_the_kernel_does_what_the_model_does(
    case: Case, data: st.DataObject, arrow_rows: int, sparing: bool, drained: bool
) -> None:
    one_partition_per_key = data.draw(st.booleans())
    batches = data.draw(histories(one_partition_per_key))
    kernel = Kernel(case, arrow_rows, sparing, dropping=data.draw(st.booleans()))
    model = case.model()
    full = filled(model, batches, drained)
    assert filled(kernel, batches, drained) == full
    if not full:
        assert_alike(kernel, model, one_partition_per_key or not model.settings.bounded)


@examples(200)
@given(cases(clocks=["stream"]), logs(one_partition_per_key=True), st.data())
def test_stream_clock_emissions_do_not_depend_on_cuts(
    case: Case, log: Sequence[Any], data: st.DataObject
) -> None:
    whole = [Batch(tuple(itertools.chain(*log)))]
    after_each = [Batch(tuple(group)) for group in log]
    outcomes = []
    for batches in (whole, after_each, data.draw(cut(log))):
        kernel = Kernel(case)
        full = filled(kernel, batches)
        outcomes.append("full" if full else repr((by_key(kernel.emissions), counted(kernel.counts))))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_expired_session_takes_no_record_of_another_partition() -> None:
    emit = {"on": "interval", "every": "30ms", "clock": "stream"}
    window = {"session": "5ms", "grace": "0ms"}
    case = Case({"name": "out", "reduce": "latest", "select": {"x": "x"}, "window": window, "emit": emit})
    first, over, behind = (
        Record("k", {"x": 1.0}, "in", partition, offset, timestamp, None, 0)
        for partition, offset, timestamp in ((0, 1, 0), (0, 2, 12), (1, 1, 1))
    )
    kernel, model = Kernel(case), case.model()
    for runner in (kernel, model):
        filled(runner, [Batch((first, over)), Batch((behind,))], drained=True)
    assert sorted(emission.window for emission in kernel.emissions if emission.window) == [
        (0, 0),
        (1, 1),
        (12, 12),
    ]
    assert_alike(kernel, model, ordered=False)


def test_close_emits_the_final_result_only() -> None:
    """The first multiple of `every` after the record is the end of its window."""
    emit = {"on": "window_close", "early": {"every": "10ms"}, "clock": "stream"}
    window = {"tumbling": "20ms", "grace": "0ms"}
    case = Case({"name": "out", "reduce": {"n": "count(x)"}, "window": window, "emit": emit})
    log = [Record("k", {"x": 1.0}, "in", 0, at, at, None, 0) for at in (17, 20)]
    kernel, model = Kernel(case), case.model()
    for runner in (kernel, model):
        filled(runner, [Batch(tuple(log))])
    assert [(emission.reason, emission.at) for emission in kernel.emissions] == [("window_close", 20)]
    assert_alike(kernel, model, ordered=True)


@pytest.mark.parametrize("timestamp", [0, 2, 5, 9])
def test_closed_session_stays_closed_in_the_next_batch(
    timestamp: int,
) -> None:
    emit = {"on": "time_limit", "after": "30ms", "clock": "stream"}
    window = {"session": "8ms", "grace": "6ms"}
    case = Case({"name": "out", "reduce": "collect", "select": {"x": "x"}, "window": window, "emit": emit})
    log = [
        [(0, 1, 0), (0, 5, 1)],
        [(0, 7, 13), (1, 1, 25)],  # the first session is over at 15, and goes out at 30
        [(0, 8, timestamp), (0, 9, 25), (0, 11, 37)],
    ]
    kernel, model = Kernel(case), case.model()
    for runner in (kernel, model):
        filled(
            runner,
            [
                Batch(tuple(Record("k", {"x": 1.0}, "in", *at, None, 0) for at in positions))
                for positions in log
            ],
        )
    closed = [emission for emission in kernel.emissions if emission.window == (0, 1)]
    assert [(len(emission.value["events"]), emission.at) for emission in closed] == [(2, 30)]
    assert_alike(kernel, model, ordered=True)


@pytest.mark.parametrize("path", kafka_streams.FILES, ids=kafka_streams.NAMES)
def test_kernel_equals_kafka_streams_however_cut(path: Path) -> None:
    case = kafka_streams.load(path)
    records, expected = kafka_streams.records_of(case), case["expect"]
    for cuts in ((), range(1, len(records)), (len(records) // 3, len(records) // 2)):
        # with all earlier state rows, as if nobody compacted, 60 batches take thrice as long
        source, stage = case["pipeline"]["source"], case["pipeline"]["stages"][0]
        kernel = Kernel(Case(stage), source=source, compacting=True)
        assert filled(kernel, kafka_streams.cut(records, cuts)) == ("error" in expected)
        if "error" not in expected:
            assert kafka_streams.as_expected(kernel.emissions) == expected["emissions"]
            assert kernel.counts["late-record-drop"] == expected.get("late_dropped", 0)
