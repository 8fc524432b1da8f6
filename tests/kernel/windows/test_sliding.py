"""Sliding windows: the rules of Kafka Streams' SlidingWindows by hand, and against their plain definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel
from tests.kernel.model import Batch, Record
from tests.kernel.model.strategies import Case, cut, logs

SIZE = 10
Out = list[tuple[tuple[int, int] | None, str, int]]
"""The window, its texts one after the other, and the timestamp of each emission."""


def case(grace: str = "1d", **emit: Any) -> Case:
    window = {"sliding": f"{SIZE}ms", "grace": grace}
    emit = {"on": "update", "clock": "stream", **emit}
    return Case({"name": "out", "reduce": {"all": "collect_list(s)"}, "window": window, "emit": emit})


def records(*pairs: tuple[str, int], key: str = "k") -> list[Record]:
    return [
        Record(key, {"x": 1.0, "s": text, "i": 1, "d": None, "m": None}, "in", 0, offset, timestamp, None, 0)
        for offset, (text, timestamp) in enumerate(pairs, start=1)
    ]


def run(stage: Case, log: Sequence[Record], cuts: Sequence[int] = (), clock: int | None = None) -> Kernel:
    kernel = Kernel(stage)
    for start, end in pairwise([0, *cuts, len(log)]):
        kernel.apply(Batch(tuple(log[start:end]), clock if end == len(log) else None))
    return kernel


def out(kernel: Kernel) -> Out:
    return [(e.window, "".join(e.value["all"]), e.timestamp) for e in kernel.emissions if e.value]


def test_record_defines_left_and_right_windows() -> None:
    assert out(run(case(), records(("a", 10), ("b", 15), ("c", 40)))) == [
        ((0, 10), "a", 10),
        ((11, 21), "b", 15),  # just after a
        ((5, 15), "ab", 15),  # up to b
        ((30, 40), "c", 40),
    ]


def test_late_neighbour_gets_a_right_window() -> None:
    emitted = out(run(case(), records(("b", 20), ("a", 15))))
    assert emitted == [((10, 20), "b", 20), ((10, 20), "ba", 20), ((5, 15), "a", 15), ((16, 26), "b", 20)]


def test_both_ends_belong_to_a_window() -> None:
    assert ((10, 20), "ab", 20) in out(run(case(), records(("a", 10), ("b", 20))))
    assert ((11, 21), "ab", 21) not in out(run(case(), records(("a", 10), ("b", 21))))


def test_early_records_share_the_first_window() -> None:
    emitted = out(run(case(), records(("a", 3), ("b", 8), ("c", 5))))
    assert emitted == [
        ((0, 10), "a", 3),
        ((4, 14), "b", 8),
        ((0, 10), "ab", 8),
        ((4, 14), "bc", 8),
        ((6, 16), "b", 8),
        ((0, 10), "abc", 8),
    ]


def test_records_of_one_time_share_their_windows() -> None:
    emitted = out(run(case(), records(("a", 20), ("b", 20))))
    assert emitted == [((10, 20), "a", 20), ((10, 20), "ab", 20)]


def test_window_of_both_neighbours_is_emitted_twice() -> None:
    """Kafka Streams does so: the window begins just after b, and ends with c."""
    log = records(("a", 15), ("b", 20), ("c", 31))
    assert out(run(case(), log))[-2:] == [((21, 31), "c", 31)] * 2
    assert out(run(case(on="change"), log))[-2:] == [((10, 20), "ab", 20), ((21, 31), "c", 31)]


def test_windows_close_after_end_and_grace() -> None:
    log = records(("a", 20), ("x", 25), ("b", 20), ("x", 26), ("c", 20))
    kernel = run(case(grace="5ms", on="window_close"), log)
    assert out(kernel) == [((10, 20), "ab", 20)]
    # c comes too late for the window that ends with it, and in time for two others
    assert kernel.counts["late-record-drop"] == 1
    assert kernel.counts["used"] == 5


def test_record_too_late_for_all_windows_is_dropped() -> None:
    kernel = run(case(grace="5ms"), records(("a", 100), ("b", 85), ("c", 84)))
    assert (kernel.counts["used"], kernel.counts["expired-window-record-drop"]) == (1, 2)


def test_closed_window_still_gives_its_contents() -> None:
    """The window that ends with c begins with a, although the one that ends with a was over at b."""
    a, b, c = records(("a", 20), ("b", 25), ("c", 28))
    log = [a, replace(b, key="other"), c]
    for cuts in ((), (1,), (2,)):
        kernel = run(case(grace="0ms", on="window_close", clock="run"), log, cuts, clock=100)
        assert ((18, 28), "ac", 28) in out(kernel)


def test_contents_are_forgotten_in_the_end() -> None:
    kernel = run(case(grace="0ms", on="window_close", clock="run"), records(("a", 20), ("b", 28)), clock=100)
    assert kernel.counts["state-rows"] == 0


def test_windows_do_not_share_their_lists() -> None:
    log = records(("a", 20), ("b", 30), ("c", 25), ("d", 26))
    assert {window: texts for window, texts, _ in out(run(case(), log))} == defined(log)


@pytest.mark.parametrize("function", ["median(x)", "approx_count_distinct(x)", "collect_set(x)", "avg(x)"])
def test_windows_share_no_part_of_an_aggregate(function: str) -> None:
    stage = case().stage
    log = records(("a", 20), ("b", 30), ("c", 25), ("d", 26))
    values = [
        replace(record, value={**(record.value or {}), "x": float(at)}) for at, record in enumerate(log)
    ]
    kernel = Kernel(Case({**stage, "reduce": {"r": function}}))
    kernel.apply(Batch(tuple(values)))
    last = {emission.window: emission.value for emission in kernel.emissions}
    alone = Kernel(Case({**stage, "window": {"tumbling": "1h"}, "reduce": {"r": function}}))
    alone.apply(Batch(tuple(values[:1])))
    assert last[10, 20] == alone.emissions[-1].value


def defined(log: Sequence[Record]) -> dict[tuple[int, int] | None, str]:
    """Each window that the records define, with its texts in their order of arrival, if no record is late:
    `[t - size, t]` of each record, and `[t + 1, t + 1 + size]` if there are records in it.
    """
    starts = {max(0, record.timestamp - SIZE) for record in log} | {record.timestamp + 1 for record in log}
    windows: dict[tuple[int, int] | None, str] = {}
    for start in sorted(starts):
        texts = [
            record.value["s"] for record in log if record.value and start <= record.timestamp <= start + SIZE
        ]
        if texts:
            windows[start, start + SIZE] = "".join(texts)
    return windows


@examples(60)
@given(st.lists(st.integers(0, 60), max_size=14), st.data())
def test_windows_are_those_of_the_definition(times: list[int], data: st.DataObject) -> None:
    log = records(*zip("abcdefghijklmn", times, strict=False))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(log)), max_size=4)))
    emitted = out(run(case(), log, cuts))
    assert {window: texts for window, texts, _ in emitted} == defined(log)


@examples(60)
@given(st.lists(st.integers(0, 60), max_size=14))
def test_record_emits_the_windows_that_it_changes(times: list[int]) -> None:
    log = records(*zip("abcdefghijklmn", times, strict=False))
    kernel = Kernel(case())
    for number, record in enumerate(log):
        before, after = defined(log[:number]), defined(log[: number + 1])
        kernel.emissions.clear()
        kernel.apply(Batch((record,)))
        changed = {window: texts for window, texts in after.items() if before.get(window) != texts}
        assert {window: texts for window, texts, _ in out(kernel)} == changed


EMITS: list[dict[str, Any]] = [
    {"on": "update"},
    {"on": "change"},
    {"on": "window_close"},
    {"on": "time_limit", "after": "15ms"},
    {"on": "interval", "every": "7ms"},
    {"on": "time_limit", "after": "3ms", "buffer": {"max_records": 3, "when_full": "emit_early"}},
]


@examples(40)
@given(
    st.sampled_from(EMITS),
    st.sampled_from(["0ms", "4ms", "30ms"]),
    logs(one_partition_per_key=True),
    st.data(),
)
def test_sliding_emissions_do_not_depend_on_cuts(
    emit: dict[str, Any], grace: str, log: list[list[Record]], data: st.DataObject
) -> None:
    outcomes = []
    for batches in ([Batch(tuple(chain(*log)))], [Batch(tuple(group)) for group in log], data.draw(cut(log))):
        kernel = Kernel(case(grace, **emit))
        for batch in batches:
            kernel.apply(batch)
        emissions = {
            key: [e for e in kernel.emissions if e.key == key] for key in {e.key for e in kernel.emissions}
        }
        outcomes.append(
            (emissions, {n: c for n, c in kernel.counts.items() if "drop" in n or "emitted" in n})
        )
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize("emit", EMITS[:3])
def test_unusable_record_adds_no_window(emit: dict[str, Any]) -> None:
    stage = case(**emit).stage | {"reduce": {"total": "sum(i)"}, "on_error": "quarantine"}
    values = [1, 2**63 - 1, 3]
    log = [
        Record("k", {"x": 1.0, "s": "", "i": value, "d": None, "m": None}, "in", 0, at, 10 + 2 * at, None, 0)
        for at, value in enumerate(values)
    ]
    kernel, without = run(Case(stage), log), run(Case(stage), [log[0], log[2]])
    assert kernel.counts["quarantined"] == 1
    assert [e.value for e in kernel.emissions] == [e.value for e in without.emissions]
